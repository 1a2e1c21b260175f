"""Fuzz one target, guided by coverage: ``python tests/fuzz/run.py TARGET [--runs N]``.

Needs atheris, of requirements/fuzz.txt. Inputs grow from the seeds of a target and from
earlier runs. The one that breaks a promise is written to the folder, and ends the
process with an exit code other than 0.
"""

import argparse
import hashlib
import importlib
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: For finds and inputs.
FOLDER = Path("fuzz-finds")

#: Bytes of the largest input.
MAX_LENGTH = 4096
#: Seconds after which one input counts as a hang.
PATIENCE = 10
#: Tokens that a mutator may put in, beside those of the seeds.
MORE_TOKENS = (
    *(
        b"NaN +Inf .inf 1e400 1e-400 -0 null true [] {} != !!bool !!int &a *a <<: --- "
        b"%40 [::1] ms GiB"
    ).split(),
    *b'9007199254740992 "error": "n":2 HTTP/1.0 \\u0000 \\ud800'.split(),
    b"0\r\n\r\n",
)


def main() -> None:
    """Run; libFuzzer ends the process."""
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "exporter")]
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "target",
        choices=sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py")),
    )
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs to try")
    arguments = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["vllm_specdec_exporter"]):
        target = importlib.import_module(f"fuzz.targets.{arguments.target}")
    corpus = FOLDER / f"{arguments.target}.corpus"
    dictionary = FOLDER / f"{arguments.target}.dictionary"
    corpus.mkdir(parents=True, exist_ok=True)
    tokens = set(MORE_TOKENS)
    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
        tokens.update(re.findall(rb'[\w:.="{}/-]{3,50}', seed))
    dictionary.write_text("".join(f'"{_escaped(token)}"\n' for token in sorted(tokens)))
    options = {
        "runs": arguments.runs,
        "dict": dictionary,
        "artifact_prefix": FOLDER / f"{arguments.target}-",
        "max_len": MAX_LENGTH,
        "timeout": PATIENCE,
        "seed": 1,
        "rss_limit_mb": 2048,
    }
    flags = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], target.check)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
