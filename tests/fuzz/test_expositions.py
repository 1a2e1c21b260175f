"""Expositions that are built as servers build them, and then damaged: the promises of
the target hold.
"""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.targets import exposition
from vllm_specdec_exporter.engines import read

NAMES = sorted(exposition._COUNTED)

blanks = st.text(" \t", max_size=2)
comments = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=20)
some_blanks = st.text(" \t", min_size=1, max_size=2)
label_names = st.sampled_from(
    ["model_name", "engine", "position", "pid", "le"]
) | st.from_regex("[a-zA-Z_][a-zA-Z0-9_]{0,4}", fullmatch=True)
label_values = st.sampled_from(
    ["", "0", "1", "7", "256", "+Inf", "a\\b", 'a"b', "a\nb", "}", " # {"]
) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
values = st.sampled_from(
    ["0", "3", "1e18", "-1", "NaN", "+Inf", "6.42568e+06"]
) | st.floats(0, 1e18).map(repr)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """Labels as Prometheus takes them: with blanks anywhere, and with a comma behind
    the last.
    """
    labels = draw(st.dictionaries(label_names, label_values, max_size=4))
    texts = [
        f'{name}{draw(blanks)}={draw(blanks)}"'
        + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        + f'"{draw(blanks)}'
        for name, value in labels.items()
    ]
    comma = ""
    if texts:
        comma = draw(st.sampled_from(["", ","]))
    pairs = f",{draw(blanks)}".join(texts)
    return f"{{{draw(blanks)}{pairs}{comma}{draw(blanks)}}}"


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    """One line of a sample, or a comment."""
    if draw(st.integers(0, 5)) == 0:
        return f"{draw(blanks)}# {draw(comments)}"
    name = draw(st.sampled_from(NAMES) | st.just("process_start_time_seconds"))
    if draw(st.booleans()):
        labels = f"{draw(blanks)}{draw(blocks())}{draw(blanks)}"
    else:
        labels = draw(some_blanks)
    stamp = ""
    if draw(st.integers(0, 4)) == 0:
        stamp = f"{draw(some_blanks)}1795203444000"
    return f"{draw(blanks)}{name}{labels}{draw(values)}{stamp}{draw(blanks)}"


texts = st.lists(sample_lines(), max_size=12).map(
    lambda rows: "".join(row + "\n" for row in rows).encode()
)
modes = st.sampled_from([b"0", b"1"])


@given(modes, texts)
def test_what_prometheus_takes(mode: bytes, text: bytes) -> None:
    """Every generated line is one that a server takes, so nothing is skipped; all
    promises hold.
    """
    assert exposition.reference(text, openmetrics=False) is not None
    exposition.check(mode + text)


observed = st.tuples(st.sampled_from(["1", "2"]), st.integers(0, 99))


@given(st.lists(observed, min_size=1, max_size=4))
def test_processes_add_up(processes: list[tuple[str, int]]) -> None:
    """Series that differ only in labels which mean nothing here, of counters and of
    histograms.
    """
    rows = ["vllm:num_requests_running 1"]
    for pid, (engine, value) in enumerate(processes):
        labels = f'{{engine="{engine}",pid="{pid}"}}'
        names = ("generation_tokens_total", "e2e_request_latency_seconds_sum")
        rows.extend(f"vllm:{name}{labels} {value}" for name in names)
    exposition.check(b"1" + "".join(row + "\n" for row in rows).encode())


@given(
    modes,
    texts,
    st.lists(
        st.tuples(st.integers(0, 2000), st.binary(max_size=3), st.integers(0, 4)),
        max_size=3,
    ),
)
def test_what_is_damaged(
    mode: bytes, text: bytes, damages: list[tuple[int, bytes, int]]
) -> None:
    """Bytes put in, left out and replaced anywhere: a reading, or a refusal of its own
    kind.
    """
    for position, new, gone in damages:
        at = position % (len(text) + 1)
        text = text[:at] + new + text[at + gone :]
    exposition.check(mode + text)


_NAME = b"vllm:spec_decode_num_drafts_total"
_MEGA = 1 << 20

HOSTILE = {
    "quotes": _NAME + b"{" + b'"' * _MEGA,
    "quotes that are closed": (_NAME + b'{a="' + b'",a="' * 3000 + b'"} 1\n') * 60,
    "backslashes": (_NAME + b'{a="' + b"\\" * 16000 + b"\n") * 60,
    "braces": (_NAME + b"{" * 16000 + b"\n") * 60,
    "blanks": (b" " * 16000 + b"x\n") * 60,
    "blanks before nothing": b"\n" + b" \t" * _MEGA,
    "line feeds": b"\n" * 4 * _MEGA,
    "beginnings of names": b"\n".join([_NAME[:-1]] * (_MEGA // 8)) + b"\n",
    "one name without an end": _NAME * (_MEGA // 8) + b"\n",
    "labels": (_NAME + b"{" + b",".join(b'l%d="x"' % n for n in range(1500)) + b"} 1\n")
    * 60,
    "series": b"".join(_NAME + b'{pid="%d"} 1\n' % n for n in range(20_000)),
    "digits": (_NAME + b" " + b"9" * 16000 + b"\n") * 60,
}


_READ = """
import contextlib, pickle, sys
from vllm_specdec_exporter.engines import Unrecognized, read
from vllm_specdec_exporter.exposition.text import MalformedExposition
for name, text in pickle.load(sys.stdin.buffer):
    with contextlib.suppress(MalformedExposition, Unrecognized):
        read(text, latencies=True)
    print(name, flush=True)
"""


def test_time_grows_with_the_size_alone() -> None:
    """Megabytes of what makes careless expressions go back and forth take a second, not
    for ever.

    In a process of its own: an expression that goes on for ever cannot be stopped in
    this one.
    """
    assert min(map(len, HOSTILE.values())) >= 300_000
    pickled = pickle.dumps(list(HOSTILE.items()))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _READ],
            input=pickled,
            capture_output=True,
            timeout=250,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"it does not end, after {(error.stdout or b'').decode()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == list(HOSTILE)


def test_defects_are_told_in_part() -> None:
    """Thousands of gauges that cannot be do not become thousands of sentences."""
    rows = [
        _NAME + b" 5\n",
        *(b'vllm:num_requests_running{pid="%d"} NaN\n' % n for n in range(3000)),
    ]
    (engine,) = read(b"".join(rows)).engines
    assert 1 <= len(engine.defects) <= 10


# --- the seeds of every target, and what fuzzing found


HERE = Path(__file__).parent
TARGETS = sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_was_found_keep_the_promises(name: str) -> None:
    """What fuzzing begins with, the recorded answers and the documented examples; and
    what it found.
    """
    target = importlib.import_module(f"fuzz.targets.{name}")
    inputs = {f"seed {number}": seed for number, seed in enumerate(target.seeds())}
    assert len(inputs) > 10
    inputs |= {
        path.name: path.read_bytes() for path in HERE.glob(f"regressions/{name}/*")
    }
    broken = {}
    for case, data in inputs.items():
        try:
            target.check(data)
        except Exception as error:  # noqa: BLE001 whatever a parser may raise
            broken[case] = repr(error)
    assert broken == {}
