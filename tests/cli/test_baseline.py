"""`baseline`: the real command against simulated and recorded servers."""

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from golden.cases import recorded_baseline
from prometheus.replay import ReplayServer, Reply, series
from support.builders import upstream
from support.commands import Outcome, run_here, started, without_waiting
from support.ports import free_port
from support.programs import eventually, simulator
from vllm_specdec_exporter.commands import baseline as command
from vllm_specdec_exporter.economics import baseline
from vllm_specdec_exporter.settings.configuration import load_baseline

PHASES = series("ngram-phases")
NOSPEC = series("nospec")
#: From here on the recorded server without speculation is busy.
BUSY = NOSPEC[5:]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
BEAT = "--interval=100ms"
SHORT = ("--for=1s", BEAT)
LOOKUP = (*SHORT, "--method=ngram")
#: Tokens of 93.8 ms, where a server without speculation takes 77.2 ms (vLLM's issue
#: 49548).
K0_OF_A_SCHEDULE = b"""vllm:num_requests_running{@} 189
vllm:generation_tokens_total{@} 100000
vllm:spec_decode_num_drafts_total{@} 1000
vllm:spec_decode_num_draft_tokens_total{@} 3000
vllm:spec_decode_num_accepted_tokens_total{@} 1500
vllm:spec_decode_num_accepted_tokens_per_pos_total{@,position="0"} 1500
vllm:request_time_per_output_token_seconds_bucket{@,le="0.1"} 20
vllm:request_time_per_output_token_seconds_bucket{@,le="+Inf"} 20
vllm:request_time_per_output_token_seconds_count{@} 20
vllm:request_time_per_output_token_seconds_sum{@} 1.88
""".replace(b"@", b'engine="0",model_name="gemma"')


# --- a server without speculation


def test_a_server_without_speculation_is_recorded_and_the_exporter_takes_the_file(
    tmp_path: Path,
) -> None:
    """The file says of what it is, and holds requests at the load that the server had;
    a row shows each.

    `--append` adds another load and keeps the first.
    """
    path = tmp_path / "baseline.json"
    calm = tmp_path / "calm.yml"
    flags = (f"--out={path}", "--for=2s", "--interval=200ms")
    calm.write_text(
        "phases: [{phase: healthy, seconds: 3600, clients: 3, think_seconds: 0}]"
    )
    none = ("--num-speculative-tokens=0", "--speed=20", "--seed=1")
    with (
        simulator(*none) as busy_one,
        simulator(*none, f"--scenario.file={calm}") as calm_one,
    ):
        first = run_here("baseline", busy_one, *flags)
        once = load_baseline(str(path))
        second = run_here("baseline", calm_one, "--append", *flags)
    twice = load_baseline(str(path))
    assert [(outcome.code, outcome.err) for outcome in (first, second)] == [(0, "")] * 2
    assert once.model_name == MODEL
    assert once.dialect == "vllm-v1"
    assert once.upstream_version[:2] == "0."
    for bucket in once.buckets:
        assert bucket.requests > 0, bucket
        assert 8 < bucket.requests_running < 40, bucket
        assert bucket.latencies.time_per_output_token is not None, bucket
        # A plain step takes 7 to 8 ms on the simulated GPU; prefills of others come on
        # top.
        assert 0.007 < (bucket.latencies.time_per_output_token.mean or 0) < 0.015, (
            bucket
        )
    lines = first.out.splitlines()
    assert lines[0] == f"{MODEL} without speculation, by running requests:"
    rows = [float(line.split()[0]) for line in lines if re.match(r" +\d+\.\d ", line)]
    assert rows == [round(bucket.requests_running, 1) for bucket in once.buckets]
    assert (
        lines[-1]
        == f"written to {path}; give it to the exporter with --baseline.file {path}"
    )
    kept = twice.buckets[-len(once.buckets) :]
    assert [(b.requests, b.seconds) for b in kept] == [
        (pytest.approx(b.requests), pytest.approx(b.seconds)) for b in once.buckets
    ]
    assert len(twice.buckets) > len(once.buckets)
    assert 0 < twice.buckets[0].requests_running <= 3  # the calm server's clients
    outcome = run_here("serve", "--config.check", f"--baseline.file={path}")
    assert outcome == Outcome(0, "the configuration is valid\n")


# --- the end before the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_recording_keeps_what_there_is(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C is how a recording without a fixed length ends: the file is written, and
    the code is 0.
    """
    out = tmp_path / "baseline.json"
    endless = (f"--out={out}", "--for=1h", BEAT)
    with (
        ReplayServer(BUSY) as server,
        started("baseline", server.url, *endless) as process,
    ):
        eventually(lambda: server.replies_given >= 12)
        process.send_signal(number)
        said, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert err == ""
    assert "tiny-llama without speculation" in said
    assert sum(bucket.requests for bucket in load_baseline(str(out)).buckets) > 0


# --- what cannot be recorded


@dataclass(frozen=True)
class Case:
    """A server, flags, and how the command ends."""

    #: What the server answers; without any nothing listens.
    replies: tuple[Reply | bytes, ...]
    code: int  # the exit code
    says: str  # what the line on standard error holds
    flags: tuple[str, ...] = SHORT  # beside the URL
    earlier: str = ""  # what the file holds before


def _twins(bodies: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The recorded server, with another model beside it."""
    samples = re.compile(rb'^vllm:.*model_name="tiny-llama".*\n', re.MULTILINE)
    return tuple(
        body + b"".join(samples.findall(body)).replace(b'"tiny-llama"', b'"other"')
        for body in bodies
    )


def _without_latencies() -> tuple[bytes, ...]:
    """An older vLLM, which does not count the time per output token of a request."""
    lines = re.compile(
        rb"^(?:# \w+ )?vllm:request_time_per_output_token_seconds.*\n", re.MULTILINE
    )
    return tuple(lines.sub(b"", body) for body in BUSY[:3])


def _earlier(**changes: str) -> str:
    return baseline.encode(replace(recorded_baseline(), **changes)).decode()


def _other_buckets() -> str:
    document = json.loads(_earlier())
    for bucket in document["buckets"]:
        bounds = bucket["latencies"]["time_per_output_token"]["bounds"]
        bounds[:] = [bound * 1.5 for bound in bounds]
    return json.dumps(document)


APPEND = (*SHORT, "--append")
_OTHER_MODEL = "the baseline is of model 'other', and this server serves 'tiny-llama'"
_OTHER_RELEASE = "the baseline is of version 0.9.1, and this server has 0.32.0"
_OTHER_BUCKETS = "recorded with other histogram buckets, so it cannot be added to"
_OTHER_FORMAT = (
    'its format is "something/2", and this exporter reads vllm-specdec-baseline/1'
)
CASES = {
    # Of servers.
    "nothing listens": Case((), 4, "refused: nothing listens at the address"),
    "an error": Case((Reply(b"", 503),), 4, "http_status: HTTP 503"),
    "speculates all the time": Case(
        PHASES[3:], 1, "the server speculated nearly all the time", LOOKUP
    ),
    "a draft model, K=0 by a schedule": Case(
        (K0_OF_A_SCHEDULE,),
        1,
        "with a draft model, steps with K=0 still cost its first pass",
    ),
    "SGLang with a draft model": Case(
        (upstream("sglang-k3.txt"),),
        1,
        "record a server without --speculative-algorithm, or give --method",
    ),
    "idle": Case(
        (PHASES[68],), 1, "nothing was generated: send it the usual traffic", LOOKUP
    ),
    "no latencies": Case(
        _without_latencies(),
        1,
        "needs vLLM 0.11 or later, Aphrodite, SGLang 0.5.23 or later or TensorRT-LLM",
    ),
    "several models": Case(
        _twins(BUSY[:3]),
        1,
        "the server has several models, choose one with --model: other, tiny-llama",
    ),
    "another model": Case(
        BUSY, 1, "no model 'huge'; the server has tiny-llama", (*SHORT, "--model=huge")
    ),
    "append to another model": Case(
        BUSY, 1, _OTHER_MODEL, APPEND, earlier=_earlier(model_name="other")
    ),
    "append to another release": Case(
        BUSY, 1, _OTHER_RELEASE, APPEND, earlier=_earlier(upstream_version="0.9.1")
    ),
    "append to other buckets": Case(
        BUSY, 1, _OTHER_BUCKETS, APPEND, earlier=_other_buckets()
    ),
    # Of flags: tests/service/usage.yml.
    "append to another format": Case(
        (), 2, _OTHER_FORMAT, APPEND, earlier=_earlier(format="something/2")
    ),
}
#: The notice of a server that drafts: once, not at every sample.
DRAFTS = "the server drafts: nothing is recorded until it stops\n"


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_recorded_is_told_in_one_line_and_leaves_the_file_as_it_was(
    name: str, tmp_path: Path
) -> None:
    """1 nothing could be recorded, 2 bad usage, 4 no server; neither half a file nor an
    emptied one is left.

    Whoever watches a server that drafts learns at once that nothing is recorded.
    """
    case = CASES[name]
    file = tmp_path / "baseline.json"
    if case.earlier:
        file.write_text(case.earlier)
    with ReplayServer(case.replies or [b""]) as server, without_waiting(command):
        if case.replies:
            url = server.url
        else:
            url = f"http://127.0.0.1:{free_port()}"
        outcome = run_here("baseline", url, f"--out={file}", *case.flags)
    notice = DRAFTS if name == "speculates all the time" else ""
    assert outcome.code == case.code
    assert outcome.out == ""
    assert outcome.err.startswith(f"{notice}vllm-specdec-exporter baseline: error: ")
    assert outcome.err.removeprefix(notice).count("\n") == 1
    assert case.says in outcome.err
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == ({"baseline.json": case.earlier} if case.earlier else {})


def test_one_of_several_models_can_be_chosen(tmp_path: Path) -> None:
    """Only its own engines are recorded."""
    out = tmp_path / "baseline.json"
    with ReplayServer(_twins(BUSY[:25])) as server, without_waiting(command):
        flags = ("--model=other", f"--out={out}", *SHORT)
        outcome = run_here("baseline", server.url, *flags)
    assert outcome.code == 0
    assert outcome.err == ""
    assert load_baseline(str(out)).model_name == "other"


def test_phases_without_drafts_are_enough(tmp_path: Path) -> None:
    """A server that speculates at times is recorded at the others, once its last draft
    has settled.
    """
    out = tmp_path / "baseline.json"
    arguments = (f"--out={out}", "--for=2s", "--settle=300ms", "--method=ngram", BEAT)
    with (
        ReplayServer((*PHASES[3:6], *_without_drafts())) as server,
        without_waiting(command),
    ):
        outcome = run_here("baseline", server.url, *arguments)
    assert outcome.code == 0
    assert outcome.err == DRAFTS
    assert sum(bucket.requests for bucket in load_baseline(str(out)).buckets) > 0


def _without_drafts() -> Iterator[bytes]:
    """The recorded server, had it drafted nothing from the sixth second on."""
    counters = re.compile(rb"^vllm:spec_decode_num_.*\n", re.MULTILINE)
    still = counters.findall(PHASES[5])
    for body in PHASES[6:30]:
        lines = iter(still)
        yield counters.sub(lambda _, lines=lines: next(lines), body)


def test_a_model_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Neither in the table nor in the error, which stays one line."""
    hostile = tuple(
        body.replace(b'"tiny-llama"', b'"tiny\x1b[31m\\nllama"') for body in BUSY[:25]
    )
    shown = "tiny\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}llama"
    out = tmp_path / "baseline.json"
    with ReplayServer(hostile) as server, without_waiting(command):
        done = run_here("baseline", server.url, f"--out={out}", *SHORT)
        unknown = ("--model=x", f"--out={out}2", *SHORT)
        refused = run_here("baseline", server.url, *unknown)
    assert done.code == 0
    assert done.err == ""
    assert f"{shown} without speculation" in done.out
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "\x1b" not in done.out + refused.out + refused.err
