"""`baseline`: the real command against simulated and recorded servers."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from golden.cases import recorded_baseline
from prometheus.replay import ReplayServer, Reply, series
from support.commands import Outcome, run
from support.ports import free_port
from support.programs import COMMAND, clean_environment, simulator
from vllm_specdec_exporter import baseline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PHASES, NOSPEC = series("ngram-phases"), series("nospec")
#: From here on the recorded server without speculation is busy.
BUSY = NOSPEC[5:]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_AT_ONCE = 4
SHORT = ("--for", "1s", "--interval", "100ms")


# --- a server without speculation


@dataclass(frozen=True)
class Recorded:
    """What the command said and wrote, for the first time and with `--append`."""

    first: Outcome
    once: baseline.Baseline
    second: Outcome
    twice: baseline.Baseline
    path: Path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A simulator without speculation, recorded at one load and then at another."""
    path = tmp_path_factory.mktemp("baseline") / "baseline.json"
    flags = ("--out", str(path), "--for", "2s", "--interval", "200ms")
    calm = path.with_name("calm.yml")
    calm.write_text("phases: [{phase: healthy, seconds: 3600, clients: 3, think_seconds: 0}]")
    none = ("--num-speculative-tokens", "0", "--speed", "20", "--seed", "1")
    with simulator(*none) as busy_one, simulator(*none, "--scenario.file", str(calm)) as calm_one:
        first = run("baseline", busy_one, *flags)
        once = baseline.load(str(path))
        second = run("baseline", calm_one, "--append", *flags)
    return Recorded(first, once, second, baseline.load(str(path)), path)


def test_a_server_without_speculation_is_recorded(recorded: Recorded) -> None:
    """The file says of what it is, and holds requests at the load that the server had."""
    assert (recorded.first.code, recorded.first.err) == (0, "")
    once = recorded.once
    assert (once.model_name, once.dialect) == (MODEL, "vllm-v1")
    assert once.upstream_version.startswith("0.")
    assert all(bucket.requests > 0 for bucket in once.buckets)
    assert all(8 < bucket.requests_running < 40 for bucket in once.buckets)
    for bucket in once.buckets:
        assert bucket.latencies.time_per_output_token is not None
        # A plain step takes 18 ms and 0.04 ms for each request; prefills of others come on top.
        assert 0.018 < (bucket.latencies.time_per_output_token.mean or 0) < 0.025


def test_what_was_recorded_is_shown_as_a_table(recorded: Recorded) -> None:
    """A row for each load, and how to go on."""
    lines = recorded.first.out.splitlines()
    assert lines[0] == f"{MODEL} without speculation, by running requests:"
    rows = [line for line in lines if re.match(r" +\d+\.\d ", line)]
    assert len(rows) == len(recorded.once.buckets)
    assert [float(row.split()[0]) for row in rows] == [
        round(bucket.requests_running, 1) for bucket in recorded.once.buckets
    ]
    assert (
        lines[-1]
        == f"written to {recorded.path}; give it to the exporter with --baseline.file {recorded.path}"
    )


def test_the_exporter_takes_the_file(recorded: Recorded) -> None:
    """What the command wrote is what `--baseline.file` reads."""
    outcome = run("--config.check", "--baseline.file", str(recorded.path))
    assert (outcome.code, outcome.out, outcome.err) == (0, "the configuration is valid\n", "")


def test_append_adds_a_load_and_keeps_the_others(recorded: Recorded) -> None:
    """Both recordings are in the file, each at its own load."""
    assert (recorded.second.code, recorded.second.err) == (0, "")
    kept = recorded.twice.buckets[-len(recorded.once.buckets) :]
    assert [(b.requests, b.seconds) for b in kept] == [
        (pytest.approx(b.requests), pytest.approx(b.seconds)) for b in recorded.once.buckets
    ]
    assert len(recorded.twice.buckets) > len(recorded.once.buckets)
    assert recorded.twice.buckets[0].requests_running == pytest.approx(3, abs=0.5)


# --- the end before the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_recording_keeps_what_there_is(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C is how a recording without a fixed length ends: the file is written, and the code is 0."""
    out = tmp_path / "baseline.json"
    with ReplayServer(BUSY) as server:
        process = _start(server, out)
        end = time.monotonic() + 20
        while server.replies_given < 12:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(number)
        said, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
    assert "tiny-llama without speculation" in said
    assert sum(bucket.requests for bucket in baseline.load(str(out)).buckets) > 0


def test_a_recording_interrupted_at_once_says_that_there_is_nothing(tmp_path: Path) -> None:
    """No file is written, and the code is 1."""
    out = tmp_path / "baseline.json"
    with ReplayServer(PHASES[68:69]) as server:
        process = _start(server, out)
        end = time.monotonic() + 20
        while server.replies_given < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, err = process.communicate(timeout=10)
    assert (process.returncode, said) == (1, "")
    assert err.count("\n") == 1
    assert "nothing was generated" in err
    assert list(tmp_path.iterdir()) == []


def _start(server: ReplayServer, out: Path) -> subprocess.Popen[str]:
    words = (COMMAND, "baseline", server.url, "--out", str(out), "--for", "1h", "--interval", "100ms")
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    )


# --- what cannot be recorded


@dataclass(frozen=True)
class Case:
    """A server, flags, and how the command ends.

    Attributes:
        replies: what the server answers; without any nothing listens.
        code: the exit code.
        says: what the line on standard error holds.
        flags: beside the URL.
        earlier: what the file holds before.
    """

    replies: tuple[Reply | bytes, ...]
    code: int
    says: str
    flags: tuple[str, ...] = ()
    earlier: str = ""


def _two_models() -> tuple[bytes, ...]:
    """The recorded server, with another model beside it."""
    own = [re.compile(rb'^vllm:.*model_name="tiny-llama".*\n', re.MULTILINE)] * 2
    return tuple(
        body + b"".join(own[0].findall(body)).replace(b'"tiny-llama"', b'"other"') for body in BUSY[:3]
    )


def _without_latencies() -> tuple[bytes, ...]:
    """An older vLLM, which does not count the time per output token of a request."""
    lines = re.compile(rb"^(?:# \w+ )?vllm:request_time_per_output_token_seconds.*\n", re.MULTILINE)
    return tuple(lines.sub(b"", body) for body in BUSY[:3])


def _earlier(**changes: str) -> str:
    return baseline.encode(replace(recorded_baseline(), **changes)).decode()


def _other_buckets() -> str:
    document = json.loads(_earlier())
    for bucket in document["buckets"]:
        histogram = bucket["latencies"]["time_per_output_token"]
        histogram["bounds"] = [bound * 1.5 for bound in histogram["bounds"]]
    return json.dumps(document)


APPEND = (*SHORT, "--append")
REFUSED = {
    "nothing listens": Case((), 4, "refused: nothing listens at the address", SHORT),
    "an error": Case((Reply(b"", 503),), 4, "http_status: HTTP 503", SHORT),
    "a page": Case((Reply(b"<!doctype html><html></html>\n"),), 4, "malformed: an HTML page", SHORT),
    "other metrics": Case((b"node_load1 1\n",), 4, "unrecognized: no series of a known server", SHORT),
    "speculates all the time": Case(PHASES[3:], 1, "the server speculated nearly all the time", SHORT),
    "idle": Case((PHASES[68],), 1, "nothing was generated: send it the usual traffic", SHORT),
    "no latencies": Case(
        _without_latencies(), 1, "the server has no vllm:request_time_per_output_token_seconds", SHORT
    ),
    "several models": Case(
        _two_models(), 1, "the server has several models, choose one with --model: other, tiny-llama", SHORT
    ),
    "another model": Case(BUSY, 1, "no model 'huge'; the server has tiny-llama", (*SHORT, "--model", "huge")),
    "no duration": Case(BUSY, 2, '--for "soon": ', ("--for", "soon")),
    "no unit": Case(BUSY, 2, '--for "10": a duration needs a unit', ("--for", "10")),
    "too short": Case(BUSY, 2, '--for "500ms": allowed: from 1s up', ("--for", "500ms")),
    "a beat too fast": Case(BUSY, 2, '--interval "1ms": allowed: from 100ms up', ("--interval", "1ms")),
    "a beat too slow": Case(
        BUSY, 2, "--interval 2s: must be less than --for 1s", ("--for", "1s", "--interval", "2s")
    ),
    "negative": Case(BUSY, 2, '--settle "-1s": ', ("--settle=-1s",)),
    "no folder": Case(
        BUSY,
        2,
        '--out "/nowhere/at/all.json": its folder does not exist, or it is a folder itself',
        (*SHORT, "--out", "/nowhere/at/all.json"),
    ),
    "a folder": Case(
        BUSY, 2, '--out "/": its folder does not exist, or it is a folder itself', (*SHORT, "--out", "/")
    ),
    "cannot be written": Case(
        BUSY, 2, '--out "/proc/baseline.json": cannot be written: ', (*SHORT, "--out", "/proc/baseline.json")
    ),
    "append to another model": Case(
        BUSY,
        1,
        "the baseline is of model 'other', and this server serves 'tiny-llama'",
        APPEND,
        _earlier(model_name="other"),
    ),
    "append to another release": Case(
        BUSY,
        1,
        "the baseline is of version 0.9.1, and this server has 0.32.0",
        APPEND,
        _earlier(upstream_version="0.9.1"),
    ),
    "append to another format": Case(
        BUSY,
        2,
        'its format is "something/2", and this exporter reads vllm-specdec-baseline/1',
        APPEND,
        _earlier(format="something/2"),
    ),
    "append to other buckets": Case(
        BUSY, 1, "recorded with other histogram buckets, so it cannot be added to", APPEND, _other_buckets()
    ),
    "append to no JSON": Case(BUSY, 2, "not JSON: ", APPEND, "{"),
    "two servers": Case((), 2, "unrecognized arguments: http://b", ("http://b",)),
    "the flag of serve": Case((), 2, "unrecognized arguments: --vllm.url", ("--vllm.url", "http://a")),
}


@dataclass(frozen=True)
class Ended:
    """How a refused recording ended: the outcome, and what the file then held."""

    outcome: Outcome
    left: dict[str, str]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Every case, run once, a few at a time."""

    def one(name: str) -> Ended:
        case, folder = REFUSED[name], tmp_path_factory.mktemp("refused")
        if case.earlier:
            (folder / "baseline.json").write_text(case.earlier)
        out = () if "--out" in case.flags else ("--out", str(folder / "baseline.json"))
        with contextlib.ExitStack() as stack:
            url = f"http://127.0.0.1:{free_port()}"
            if case.replies:
                url = stack.enter_context(ReplayServer(case.replies)).url
            outcome = run("baseline", url, *out, *case.flags)
        return Ended(outcome, {path.name: path.read_text() for path in folder.iterdir()})

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(REFUSED, pool.map(one, REFUSED), strict=True))


#: The notice of a server that drafts.
DRAFTS = "the server drafts: nothing is recorded until it stops\n"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_recorded_is_told_in_one_line(refused: dict[str, Ended], name: str) -> None:
    """1 nothing could be recorded, 2 bad usage, 4 no server: each with one line that says why."""
    outcome = refused[name].outcome
    assert (outcome.code, outcome.out) == (REFUSED[name].code, "")
    told = outcome.err.removeprefix(DRAFTS if name == "speculates all the time" else "")
    assert told.startswith("vllm-specdec-exporter baseline: error: ")
    assert REFUSED[name].says in told
    assert told.count("\n") == 1


def test_a_server_that_drafts_is_told_while_it_is_watched(refused: dict[str, Ended]) -> None:
    """Once, not at every sample: whoever waits for hours learns at once that nothing is recorded."""
    assert refused["speculates all the time"].outcome.err.startswith(DRAFTS)
    assert refused["speculates all the time"].outcome.err.count(DRAFTS) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_recorded_leaves_the_file_as_it_was(refused: dict[str, Ended], name: str) -> None:
    """Neither half a file nor an emptied one is left behind."""
    earlier = REFUSED[name].earlier
    assert refused[name].left == ({"baseline.json": earlier} if earlier else {})


def test_one_of_several_models_can_be_chosen(tmp_path: Path) -> None:
    """Only its own engines are recorded."""
    twins = tuple(
        body
        + b"".join(re.findall(rb'(?m)^vllm:.*model_name="tiny-llama".*\n', body)).replace(
            b'"tiny-llama"', b'"other"'
        )
        for body in BUSY[:25]
    )
    out = tmp_path / "baseline.json"
    with ReplayServer(twins) as server:
        outcome = run(
            "baseline", server.url, "--model", "other", "--out", str(out), "--for", "2s", *SHORT[2:]
        )
    assert (outcome.code, outcome.err) == (0, "")
    assert baseline.load(str(out)).model_name == "other"


def test_phases_without_drafts_are_enough(tmp_path: Path) -> None:
    """A server that speculates at times is recorded at the others, once its last draft has settled."""
    out = tmp_path / "baseline.json"
    mixed = (*PHASES[3:6], *_without_drafts())
    with ReplayServer(mixed) as server:
        outcome = run(
            "baseline", server.url, "--out", str(out), "--for", "2s", "--settle", "300ms", *SHORT[2:]
        )
    assert (outcome.code, outcome.err) == (0, DRAFTS)
    assert sum(bucket.requests for bucket in baseline.load(str(out)).buckets) > 0


def _without_drafts() -> Iterator[bytes]:
    """The recorded server, had it drafted nothing from the sixth second on."""
    counters = re.compile(rb"^vllm:spec_decode_num_.*\n", re.MULTILINE)
    still = counters.findall(PHASES[5])
    for body in PHASES[6:30]:
        lines = iter(still)
        yield counters.sub(lambda _, lines=lines: next(lines), body)  # type: ignore[misc]


def test_a_model_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Neither in the table nor in the error, which stays one line."""
    hostile = tuple(body.replace(b'"tiny-llama"', b'"tiny\x1b[31m\\nllama"') for body in BUSY[:25])
    shown = "tiny\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}llama"
    out = str(tmp_path / "baseline.json")
    with ReplayServer(hostile) as server:
        done = run("baseline", server.url, "--out", out, "--for", "2s", *SHORT[2:])
    with ReplayServer(hostile) as server:
        refused = run("baseline", server.url, "--model", "x", "--out", out + "2", "--for", "2s", *SHORT[2:])
    assert (done.code, done.err) == (0, "")
    assert f"{shown} without speculation" in done.out
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "\x1b" not in done.out + refused.out + refused.err
