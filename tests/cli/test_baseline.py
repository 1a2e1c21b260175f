"""`baseline`: the real command against simulated and recorded servers."""

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from golden.cases import recorded_baseline
from prometheus.replay import ReplayServer, Reply, series
from support.commands import Outcome, run, run_here
from support.ports import free_port
from support.programs import COMMAND, clean_environment, eventually, simulator
from vllm_specdec_exporter.economics import baseline
from vllm_specdec_exporter.serve.configuration import load_baseline

PHASES, NOSPEC = series("ngram-phases"), series("nospec")
#: From here on the recorded server without speculation is busy.
BUSY = NOSPEC[5:]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_AT_ONCE = 4
BEAT = ("--interval", "100ms")
SHORT = ("--for", "1s", *BEAT)


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
        first = run_here("baseline", busy_one, *flags)
        once = load_baseline(str(path))
        second = run_here("baseline", calm_one, "--append", *flags)
    return Recorded(first, once, second, load_baseline(str(path)), path)


def test_a_server_without_speculation_is_recorded_and_the_exporter_takes_the_file(recorded: Recorded) -> None:
    """The file says of what it is, and holds requests at the load that the server had."""
    assert (recorded.first.code, recorded.first.err) == (0, "")
    once = recorded.once
    assert (once.model_name, once.dialect) == (MODEL, "vllm-v1")
    assert once.upstream_version.startswith("0.")
    for bucket in once.buckets:
        assert bucket.requests > 0
        assert 8 < bucket.requests_running < 40
        assert bucket.latencies.time_per_output_token is not None
        # A plain step takes 18 ms and 0.04 ms for each request; prefills of others come on top.
        assert 0.018 < (bucket.latencies.time_per_output_token.mean or 0) < 0.025
    outcome = run_here("serve", "--config.check", "--baseline.file", str(recorded.path))
    assert outcome == Outcome(0, "the configuration is valid\n")


def test_what_was_recorded_is_shown_as_a_table(recorded: Recorded) -> None:
    """A row for each load, and how to go on."""
    lines = recorded.first.out.splitlines()
    assert lines[0] == f"{MODEL} without speculation, by running requests:"
    rows = [line for line in lines if re.match(r" +\d+\.\d ", line)]
    assert [float(row.split()[0]) for row in rows] == [
        round(bucket.requests_running, 1) for bucket in recorded.once.buckets
    ]
    path = recorded.path
    assert lines[-1] == f"written to {path}; give it to the exporter with --baseline.file {path}"


def test_append_adds_a_load_and_keeps_the_others(recorded: Recorded) -> None:
    """Both recordings are in the file, each at its own load."""
    assert (recorded.second.code, recorded.second.err) == (0, "")
    kept = recorded.twice.buckets[-len(recorded.once.buckets) :]
    assert [(b.requests, b.seconds) for b in kept] == [
        (pytest.approx(b.requests), pytest.approx(b.seconds)) for b in recorded.once.buckets
    ]
    assert len(recorded.twice.buckets) > len(recorded.once.buckets)
    assert 0 < recorded.twice.buckets[0].requests_running <= 3  # the calm server's clients


# --- the end before the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_recording_keeps_what_there_is(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C is how a recording without a fixed length ends: the file is written, and the code is 0.

    Where there is nothing yet, there is no file, and the code is 1.
    """
    out, none = tmp_path / "baseline.json", tmp_path / "none.json"
    code, said, err = _interrupted(ReplayServer(BUSY), out, 12, number)
    assert (code, err) == (0, "")
    assert "tiny-llama without speculation" in said
    assert sum(bucket.requests for bucket in load_baseline(str(out)).buckets) > 0

    code, said, err = _interrupted(ReplayServer(PHASES[68:69]), none, 2, number)
    assert (code, said, err.count("\n")) == (1, "", 1)
    assert "nothing was generated" in err
    assert not none.exists()


def _interrupted(
    server: ReplayServer, out: Path, replies: int, number: signal.Signals
) -> tuple[int, str, str]:
    """Record until the server has answered so often, and then send a signal."""
    words = ("--out", str(out), "--for", "1h", *BEAT)
    with server:
        process = subprocess.Popen(
            [COMMAND, "baseline", server.url, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        eventually(lambda: server.replies_given >= replies)
        process.send_signal(number)
        said, err = process.communicate(timeout=120)
    return process.returncode, said, err


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
    flags: tuple[str, ...] = SHORT
    earlier: str = ""


def _twins(bodies: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The recorded server, with another model beside it."""
    own = re.compile(rb'^vllm:.*model_name="tiny-llama".*\n', re.MULTILINE)
    return tuple(body + b"".join(own.findall(body)).replace(b'"tiny-llama"', b'"other"') for body in bodies)


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
_FOLDER = "its folder does not exist, or it is a folder itself"
_OTHER_MODEL = "the baseline is of model 'other', and this server serves 'tiny-llama'"
_OTHER_RELEASE = "the baseline is of version 0.9.1, and this server has 0.32.0"
_OTHER_FORMAT = 'its format is "something/2", and this exporter reads vllm-specdec-baseline/1'
_OTHER_BUCKETS = "recorded with other histogram buckets, so it cannot be added to"
#: Of servers.
REFUSED = {
    "nothing listens": Case((), 4, "refused: nothing listens at the address"),
    "an error": Case((Reply(b"", 503),), 4, "http_status: HTTP 503"),
    "other metrics": Case((b"node_load1 1\n",), 4, "unrecognized: no series of a known server"),
    "speculates all the time": Case(PHASES[3:], 1, "the server speculated nearly all the time"),
    "idle": Case((PHASES[68],), 1, "nothing was generated: send it the usual traffic"),
    "no latencies": Case(
        _without_latencies(), 1, "the server has no vllm:request_time_per_output_token_seconds"
    ),
    "several models": Case(
        _twins(BUSY[:3]), 1, "the server has several models, choose one with --model: other, tiny-llama"
    ),
    "another model": Case(BUSY, 1, "no model 'huge'; the server has tiny-llama", (*SHORT, "--model", "huge")),
    "append to another model": Case(BUSY, 1, _OTHER_MODEL, APPEND, _earlier(model_name="other")),
    "append to another release": Case(BUSY, 1, _OTHER_RELEASE, APPEND, _earlier(upstream_version="0.9.1")),
    "append to other buckets": Case(BUSY, 1, _OTHER_BUCKETS, APPEND, _other_buckets()),
}
#: Of flags and files, before a server is asked.
USAGE = {
    "no duration": Case((), 2, '--for "soon": ', ("--for", "soon")),
    "no unit": Case((), 2, '--for "10": a duration needs a unit', ("--for", "10")),
    "too short": Case((), 2, '--for "500ms": allowed: from 1s up', ("--for", "500ms")),
    "a beat too fast": Case((), 2, '--interval "1ms": allowed: from 100ms up', ("--interval", "1ms")),
    "a beat too slow": Case(
        (), 2, "--interval 2s: must be less than --for 1s", ("--for", "1s", "--interval", "2s")
    ),
    "negative": Case((), 2, '--settle "-1s": ', ("--settle=-1s",)),
    "no folder": Case((), 2, f'--out "/nowhere/at/all.json": {_FOLDER}', ("--out", "/nowhere/at/all.json")),
    "a folder": Case((), 2, f'--out "/": {_FOLDER}', ("--out", "/")),
    "cannot be written": Case(
        (), 2, '--out "/proc/baseline.json": cannot be written: ', ("--out", "/proc/baseline.json")
    ),
    "append to another format": Case((), 2, _OTHER_FORMAT, APPEND, _earlier(format="something/2")),
    "append to no JSON": Case((), 2, "not JSON: ", APPEND, "{"),
    "two servers": Case((), 2, "unrecognized arguments: http://b", ("http://b",)),
    "the flag of serve": Case((), 2, "unrecognized arguments: --vllm.url", ("--vllm.url", "http://a")),
}
#: The notice of a server that drafts: once, not at every sample.
DRAFTS = "the server drafts: nothing is recorded until it stops\n"


def test_what_cannot_be_recorded_is_told_in_one_line_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """1 nothing could be recorded, 2 bad usage, 4 no server; neither half a file nor an emptied one is left.

    Whoever watches a server that drafts learns at once that nothing is recorded.
    """

    def wrong(name: str) -> str:
        case, folder = {**REFUSED, **USAGE}[name], tmp_path / name
        folder.mkdir()
        if case.earlier:
            (folder / "baseline.json").write_text(case.earlier)
        out = () if "--out" in case.flags else ("--out", str(folder / "baseline.json"))
        with contextlib.ExitStack() as stack:
            url = f"http://127.0.0.1:{free_port()}"
            if case.replies:
                url = stack.enter_context(ReplayServer(case.replies)).url
            start = run_here if name in USAGE else run
            outcome = start("baseline", url, *out, *case.flags)
        left = {path.name: path.read_text() for path in folder.iterdir()}
        notice = DRAFTS if name == "speculates all the time" else ""
        told = outcome.err.removeprefix(notice)
        good = (outcome.code, outcome.out, told.count("\n")) == (case.code, "", 1)
        good &= told.startswith("vllm-specdec-exporter baseline: error: ") and case.says in told
        good &= outcome.err == notice + told and left == (
            {"baseline.json": case.earlier} if case.earlier else {}
        )
        return "" if good else f"{name}: wanted {case.code} {case.says!r}, got {outcome}, left {list(left)}"

    findings = [wrong(name) for name in USAGE]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        findings += pool.map(wrong, REFUSED)
    assert [finding for finding in findings if finding] == []


def test_one_of_several_models_can_be_chosen(tmp_path: Path) -> None:
    """Only its own engines are recorded."""
    out = tmp_path / "baseline.json"
    with ReplayServer(_twins(BUSY[:25])) as server:
        outcome = run_here("baseline", server.url, "--model", "other", "--out", str(out), *SHORT)
    assert (outcome.code, outcome.err) == (0, "")
    assert load_baseline(str(out)).model_name == "other"


def test_phases_without_drafts_are_enough(tmp_path: Path) -> None:
    """A server that speculates at times is recorded at the others, once its last draft has settled."""
    out = tmp_path / "baseline.json"
    words = ("--out", str(out), "--for", "2s", "--settle", "300ms", *BEAT)
    with ReplayServer((*PHASES[3:6], *_without_drafts())) as server:
        outcome = run_here("baseline", server.url, *words)
    assert (outcome.code, outcome.err) == (0, DRAFTS)
    assert sum(bucket.requests for bucket in load_baseline(str(out)).buckets) > 0


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
        done = run_here("baseline", server.url, "--out", out, *SHORT)
    with ReplayServer(hostile) as server:
        refused = run_here("baseline", server.url, "--model", "x", "--out", out + "2", *SHORT)
    assert (done.code, done.err) == (0, "")
    assert f"{shown} without speculation" in done.out
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "\x1b" not in done.out + refused.out + refused.err
