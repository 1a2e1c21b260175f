"""Fuzz one target, guided by coverage: ``python tests/fuzz/run.py TARGET [--runs N | --seconds N]``.

Needs atheris, of the extra ``fuzz``. Inputs grow from the target's seeds; the first one that breaks a
promise is written to the folder of finds, and ends the run with exit code 1. What libFuzzer prints passes
through, and the last line sums it up as one row of the table in tests/fuzz/README.md.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent

#: Bytes of the largest input.
MAX_LENGTH = 4096
#: Seconds after which one input counts as a hang.
PATIENCE = 10

_STATUS = re.compile(r"#(\d+)\t\S+ +cov: (\d+) ft: (\d+) corp: (\d+)")
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")


def main() -> int:
    """Run, and return 1 where something was found."""
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "exporter")]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    known = sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))
    parser.add_argument("target", choices=known)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--runs", type=int, help="inputs to try")
    amount.add_argument("--seconds", type=int, help="seconds to try; by default 60")
    parser.add_argument(
        "--corpus", type=Path, help="folder that keeps what was reached; by default none does"
    )
    parser.add_argument("--finds", type=Path, default=Path("fuzz-finds"), help="folder for what was found")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--in-process", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_process:
        return _fuzz(given)
    with tempfile.TemporaryDirectory() as scratch:
        return _watch(given, scratch)


def _watch(given: argparse.Namespace, scratch: str) -> int:
    """Run the fuzzer in a process of its own, which libFuzzer ends as it likes; sum up what it prints."""
    command = [sys.executable, __file__, *sys.argv[1:], "--in-process", scratch]
    covered, features, corpus, runs, seconds = "0", "0", "0", 0, 0.0
    started = datetime.datetime.now(datetime.UTC)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="backslashreplace") as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if match := _STATUS.match(line):
                runs, covered, features, corpus = int(match[1]), *match.groups()[1:]
            if match := _DONE.match(line):
                runs = int(match[1])
    seconds = (datetime.datetime.now(datetime.UTC) - started).total_seconds()
    finds = sorted(path for path in Path(scratch).glob("find-*") if path.is_file())
    for path in finds:
        given.finds.mkdir(parents=True, exist_ok=True)
        kept = given.finds / f"{given.target}-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        kept.write_bytes(_load(given.target).plain(path.read_bytes()))
        print(f"found: {kept}")
    print(
        f"| {started:%Y-%m-%d} | {given.target} | {runs:,} | {seconds:,.0f} | {runs / max(seconds, 1):,.0f} "
        f"| {covered} | {features} | {corpus} | {len(finds)} |"
    )
    return 1 if finds or process.returncode else 0


def _fuzz(given: argparse.Namespace) -> int:
    import atheris

    with atheris.instrument_imports(include=list(instrumented(given.target))):
        target = _load(given.target)
    scratch = Path(given.in_process)
    corpus = given.corpus or scratch / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    words = scratch / "dictionary"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.dictionary()))
    amount = f"-runs={given.runs}" if given.runs else f"-max_total_time={given.seconds or 60}"
    options = {
        "dict": words,
        "artifact_prefix": f"{scratch}/find-",
        "max_len": MAX_LENGTH,
        "timeout": PATIENCE,
        "seed": given.seed,
        "rss_limit_mb": 2048,
    }
    flags = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, amount, str(corpus)], target.check)
    atheris.Fuzz()
    return 0


def instrumented(name: str) -> tuple[str, ...]:
    """Return the modules that a target wants instrumented, without importing it."""
    source = (HERE / "targets" / f"{name}.py").read_text()
    found = re.search(r"^INSTRUMENTED = (\(.*?^\))", source, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{name} names no modules to instrument"
    return tuple(re.findall(r'"([\w.]+)"', found[1]))


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"fuzz.targets.{name}")


def _escaped(word: bytes) -> str:
    return "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else f"\\x{b:02x}" for b in word)


if __name__ == "__main__":
    sys.exit(main())
