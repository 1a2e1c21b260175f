"""Recorded answers of servers, run through the pure pipeline: the inputs of the golden
files.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from support import builders
from support.builders import requests, tensorrt, upstream
from support.copies import replace
from vllm_specdec_exporter import engines as dialects
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline
from vllm_specdec_exporter.economics.cost import thresholds_for
from vllm_specdec_exporter.economics.profiles import BUILTIN, CostSettings
from vllm_specdec_exporter.economics.speculative_config import ScheduleRow, Speculation
from vllm_specdec_exporter.measures.history import Sample, Window
from vllm_specdec_exporter.observe import pipeline
from vllm_specdec_exporter.observe.result import (
    REASONS,
    Discovered,
    ExporterResult,
    PollFailure,
    Reload,
    TargetResult,
    thresholds_by_model,
)
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import Classification, RequestSettings
from vllm_specdec_exporter.per_request.observation import Observation, Source
from vllm_specdec_exporter.per_request.records import parse_record
from vllm_specdec_exporter.per_request.summary import RequestsResult, TapResult
from vllm_specdec_exporter.serve.request_intake import batch_costs
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED
from vllm_specdec_exporter.serve.tap.relay import ERRORS

#: When the golden exporter was started, in Unix seconds: any fixed time.
START = 1_800_000_000.0
VERSION = "1.2.3"


@dataclass(frozen=True)
class Answer:
    """One answer of a server, `time` seconds after the exporter's start."""

    time: float
    body: bytes
    content_type: str = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Server:
    """One server: its answers, and why the poll after the last one failed, if so."""

    answers: tuple[Answer, ...] = ()
    failure: PollFailure | None = None
    version: str = ""
    name: str = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Case:
    """An exporter's servers; `requests` are those that were recorded beside the
    answers, seen by a tap.
    """

    name: str
    servers: tuple[Server, ...]
    settings: Settings = Settings()
    requests: bool = False

    def __str__(self) -> str:
        return self.name


# --- answers


@cache
def series(scenario: str) -> tuple[tuple[float, bytes], ...]:
    """The answers of a recorded scenario with their times since its start, one a
    second.
    """
    rows = builders.series(scenario)
    return tuple((round(time - rows[0][0], 3), body) for time, body in rows)


def polled(scenario: str, until: float, interval: float = 5.0) -> tuple[Answer, ...]:
    """Return what an exporter sees that polls a scenario on a beat, up to a moment."""
    answers = []
    for time, body in series(scenario):
        if time <= until and (not answers or time >= answers[-1].time + interval - 0.5):
            answers.append(Answer(time, body))
    return tuple(answers)


_COUNTERS = re.compile(
    rb"^((?:vllm|aphrodite|lmdeploy|llamacpp|sglang|trtllm)[:_]"
    rb"(?:spec_decode_num_\w+|generation_tokens|tokens_predicted|spec_verify_calls"
    rb"|num_requests|spec_decode_(?:drafted|accepted)_tokens)"
    rb"_total(?:\{[^}\n]*\})?) \S+",
    re.MULTILINE,
)


def from_zero(body: bytes) -> tuple[Answer, Answer]:
    """A server that had just started, and ten seconds later the snapshot `body`."""
    fresh = _COUNTERS.sub(rb"\1 0", body)
    assert fresh != body, "the snapshot holds no counter that had moved"
    return Answer(0.0, fresh), Answer(10.0, body)


# --- the pipeline


def run(case: Case, *, words: bool = True) -> ExporterResult:
    """Return what the exporter holds after the last answer of every server, with the
    words that it adds for who reads them.
    """
    targets = tuple(
        _target(server, case.settings, words=words) for server in case.servers
    )
    times = [target.last_success_timestamp_seconds or START for target in targets]
    discoveries = ()
    if len(targets) > 1:
        # Those of a name, which had two of them by its last answer.
        name = "dns+http://vllm.llm.svc:8000"
        discoveries = (Discovered(name, up=True, targets=len(targets)),)
    single = None
    if case.requests:
        single = _requests(targets, case.settings)
    thresholds = dict(case.settings.thresholds.items())
    return ExporterResult(
        version=VERSION,
        timestamp_seconds=max(times) + 1.5,
        targets=targets,
        thresholds=thresholds,
        model_thresholds=thresholds_by_model(targets, thresholds),
        reload=Reload(successful=True, success_timestamp_seconds=START - 1.0),
        requests=single,
        discoveries=discoveries,
    )


def _captured(row: Mapping[str, Any]) -> Observation:
    """What a client of a real server took down of a request (data/captures)."""
    tokens = row["usage"]["completion_tokens"]
    record = None
    if row["spec"]:
        record = parse_record(row["spec"])
    tpot_seconds = None
    if tokens > 1:
        tpot_seconds = row["decode_s"] / (tokens - 1)
    return Observation(
        time=row["end"],
        temperature=row["temperature"],
        stream=True,
        completion_tokens=tokens,
        record=record,
        ttft_seconds=row["ttft"],
        tpot_seconds=tpot_seconds,
    )


def _requests(targets: tuple[TargetResult, ...], settings: Settings) -> RequestsResult:
    """What a tap knows of the recorded requests; every fifth is of a tenant, and was
    pushed.
    """
    grouping = RequestSettings(
        classification=Classification(tenants=frozenset({"acme"}))
    )
    book = RequestAggregator(grouping, settings.thresholds, (Source.TAP, Source.PUSH))
    for number, row in enumerate(requests("ngram-phases")):
        tenant = "else"
        source = Source.TAP
        if number % 5 == 0:
            tenant = "acme"
            source = Source.PUSH
        observation = replace(
            _captured(row),
            model_name="tiny-llama",
            request_type="completions",
            tenant=tenant,
        )
        book.add(observation, source, number)
    book.push_rejected_total = 2
    tap = TapResult(
        address="127.0.0.1:9851",
        upstream="http://127.0.0.1:8000",
        connections=3,
        connections_total=17,
        requests_total=520,
        upstream_errors_total={**dict.fromkeys(ERRORS, 0), "refused": 1},
        unobserved_total={**dict.fromkeys(UNOBSERVED, 0), "aborted": 4},
    )
    return book.result(700.0, batch_costs(targets, settings), tap)


def _target(server: Server, settings: Settings, *, words: bool) -> TargetResult:
    states = {}
    result = TargetResult(
        target=server.name, poll_errors_total=dict.fromkeys(REASONS, 0)
    )
    latencies = settings.baseline is not None
    for answer in server.answers:
        reading = dialects.read(answer.body, answer.content_type, latencies=latencies)
        states, judged = pipeline.judge_reading(
            states, reading, answer.time, settings, upstream_version=server.version
        )
        engines = tuple(each.explained() if words else each.result for each in judged)
        result = replace(
            result,
            up=True,
            engines=engines,
            poll_duration_seconds=0.0125,
            last_success_timestamp_seconds=START + answer.time,
        )
    if server.failure is not None:
        errors = {**result.poll_errors_total, server.failure.reason: 1}
        result = replace(
            result,
            up=False,
            failure=server.failure,
            engines=(),
            poll_errors_total=errors,
            poll_duration_seconds=0.0005,
        )
    return result


# --- the cases


def _windows(*seconds: float) -> Settings:
    windows = tuple(Window(s) for s in seconds)
    return Settings(windows=windows, judged=windows[0], speculation=_NGRAM)


def _one(answers: Iterable[Answer], version: str = "") -> tuple[Server, ...]:
    return (Server(tuple(answers), version=version),)


_NGRAM = Speculation(configured=True, method="ngram", num_speculative_tokens=4)
#: Measured on one kind of machine, so that there is a verdict.
_NGRAM_PROFILE = BUILTIN["llama-3.1-8b-h100-ngram"]
_EAGLE = Speculation(
    configured=True,
    method="eagle3",
    draft_model='path/with "quotes"\\eagle',
    num_speculative_tokens=3,
)
_SCHEDULE = (ScheduleRow(1, 1, 0), ScheduleRow(2, 64, 3))
_REFUSED = PollFailure("refused", "nothing listens at the address")
_PHASES = "ngram-phases"


def _restarted() -> tuple[Answer, ...]:
    answers = polled(_PHASES, 60.0)
    start = answers[-1].time + 5.0
    again = polled(_PHASES, 15.0)
    return answers + tuple(replace(a, time=start + a.time) for a in again)


def _torn() -> tuple[Answer, ...]:
    """The newest answer was torn: it holds the drafts of one second before, and all
    else of the moment.
    """
    answers = polled(_PHASES, 15.5, interval=1.0)
    drafts = re.compile(
        rb"^vllm:spec_decode_num_(?:drafts|draft_tokens)_total\{.*\n", re.MULTILINE
    )
    old = iter(drafts.findall(answers[-2].body))
    torn = drafts.sub(lambda _: next(old), answers[-1].body)
    return (*answers[:-1], replace(answers[-1], body=torn))


def _with(values: dict[str, float]) -> str:
    """An answer of vLLM with other values of these series."""
    body = builders.rendered("vllm-0.32.0-1engine-k3.classic.txt").decode()
    for name, value in values.items():
        body = re.sub(rf"(?m)^(vllm:{name}\{{.*\}}) \S+$", rf"\g<1> {value!r}", body)
    return body


def _learned() -> tuple[Answer, ...]:
    """Steps of 10 ms and 1 ms for each of 2 to 16 requests; two of three drafted tokens
    are accepted.
    """
    observed = seconds = 0.0
    answers = []
    for poll in range(13):
        batch = (2, 4, 8, 16)[poll // 3 % 4]
        if poll:
            observed += 100 * batch
            seconds += 100 * batch * (0.010 + 0.001 * batch)
        body = drafted(observed, batch, (0.9, 0.7, 0.4), seconds)
        answers.append(Answer(5.0 * poll, body))
    return tuple(answers)


def drafted(
    drafts: float, batch: float, survival: Sequence[float], seconds: float = 0.0
) -> bytes:
    """Return an answer of vLLM after so many drafts of three tokens, a step each.

    `survival` is the share of drafts in which each position was accepted, `seconds` the
    sum of the times of the steps; without it, no step is timed.
    """
    accepted = sum(survival) * drafts
    values = {
        "spec_decode_num_drafts_total": drafts,
        "spec_decode_num_draft_tokens_total": 3 * drafts,
        "spec_decode_num_accepted_tokens_total": accepted,
        "generation_tokens_total": drafts + accepted,
        # A request has a thousand drafts, and a prompt of 400 tokens.
        "prompt_tokens_total": 0.4 * drafts,
        "time_to_first_token_seconds_count": drafts / 1000,
        "num_requests_running": batch,
        "inter_token_latency_seconds_count": 0.0,
        "inter_token_latency_seconds_sum": seconds,
    }
    if seconds:
        values["inter_token_latency_seconds_count"] = drafts
    body = _with(values)
    for position, share in enumerate(survival):
        body = re.sub(
            rf'(?m)^(vllm:\w+per_pos_total.*"{position}"\}}) \S+$',
            rf"\g<1> {share * drafts!r}",
            body,
        )
    return body.encode()


def _decayed() -> tuple[Answer, ...]:
    """An answer an hour, of which each has a few less tokens accepted: 2.2 to 1.84 of
    three.
    """
    answers = []
    accepted = 0
    for hour in range(9):
        if hour:
            accepted += 13_200 - 270 * (hour - 1)
        values = {
            "spec_decode_num_drafts_total": 6_000 * hour,
            "spec_decode_num_draft_tokens_total": 18_000 * hour,
            "spec_decode_num_accepted_tokens_total": accepted,
            "generation_tokens_total": 6_000 * hour + accepted,
            "prompt_tokens_total": 30_000 * hour,
            "time_to_first_token_seconds_count": 60 * hour,
            "num_requests_running": 8,
        }
        body = _with(values)
        body = re.sub(
            r"(?m)^(vllm:\w+per_pos_total.*) \S+$", rf"\g<1> {accepted // 3}", body
        )
        answers.append(Answer(3600.0 * hour, body.encode()))
    return tuple(answers)


def _as_configured(**more: Any) -> Settings:
    """With --spec.config, and a profile of the machine: thresholds go by both."""
    thresholds = thresholds_for(_NGRAM_PROFILE, 4, "ngram")
    return Settings(
        speculation=_NGRAM,
        costs=CostSettings(_NGRAM_PROFILE),
        thresholds=thresholds,
        **more,
    )


def recorded_baseline() -> Baseline:
    """What the baseline command makes of the recorded server without speculation."""
    recorder = Recorder()
    dialect = ""
    for time, body in series("nospec"):
        reading = dialects.read(body, latencies=True)
        dialect = reading.dialect
        (engine,) = reading.engines
        running = engine.load.requests_running
        sample = Sample(time, engine.counters, running, latencies=engine.latencies)
        recorder.observe(sample)
    return Baseline(
        FORMAT,
        model_name="tiny-llama",
        upstream_version="0.32.0",
        dialect=dialect,
        recorded_at="2026-11-20T12:00:00Z",
        buckets=recorder.buckets(),
    )


CASES: tuple[Case, ...] = (
    Case("ngram-first-answer", _one(polled(_PHASES, 0.0), "0.32.0")),
    Case("ngram-steady", _one(polled(_PHASES, 30.0), "0.32.0")),
    Case(
        "ngram-collapse", _one(polled(_PHASES, 61.5), "0.32.0"), _windows(30.0, 300.0)
    ),
    Case("ngram-idle", _one(polled(_PHASES, 79.5), "0.32.0"), _windows(10.0, 60.0)),
    Case("ngram-restarted", _one(_restarted(), "0.32.0")),
    Case(
        "ngram-torn", _one(_torn(), "0.32.0"), replace(_windows(5.0, 30.0), slack=0.5)
    ),
    Case("ngram-by-method", _one(polled(_PHASES, 30.0), "0.32.0"), _as_configured()),
    Case(
        "ngram-measured",
        _one(polled(_PHASES, 30.0), "0.32.0"),
        _as_configured(baseline=recorded_baseline(), memory_ratio=0.1),
    ),
    Case(
        "ngram-baseline-of-another-release",
        _one(polled(_PHASES, 30.0), "0.33.0"),
        _as_configured(baseline=recorded_baseline()),
    ),
    Case(
        "three-engines",
        (
            Server(polled(_PHASES, 30.0), name="http://vllm:8000", version="0.32.0"),
            Server(from_zero(upstream("sglang-k3.txt")), name="http://sglang:30000"),
            Server(
                from_zero(upstream("trtllm-k3.composed.txt")), name="http://trtllm:8000"
            ),
        ),
        _as_configured(baseline=recorded_baseline(), memory_ratio=0.1),
        requests=True,
    ),
    Case("ngram-requests", _one(polled(_PHASES, 30.0), "0.32.0"), requests=True),
    Case(
        "steps-learned",
        _one(_learned(), "0.32.0"),
        replace(_windows(30.0, 60.0), speculation=replace(_EAGLE, schedule=_SCHEDULE)),
    ),
    Case("decays-with-uptime", _one(_decayed(), "0.32.0"), _windows(3600.0, 7200.0)),
    Case("dp2", _one(polled("dp2", 30.0), "0.32.0")),
    Case("nospec", _one(polled("nospec", 12.0, 3.0), "0.32.0")),
    Case(
        "nospec-though-configured",
        _one(polled("nospec", 12.0, 3.0), "0.32.0"),
        Settings(speculation=_EAGLE),
    ),
    Case("v0", _one(from_zero(upstream("vllm-v0-k5.txt")))),
    Case(
        "v0-with-spec-config",
        _one(from_zero(upstream("vllm-v0-k5.txt"))),
        Settings(speculation=replace(_NGRAM, num_speculative_tokens=5)),
    ),
    Case("llamacpp", _one(from_zero(upstream("llamacpp-k4.txt")))),
    Case("sglang", _one(from_zero(upstream("sglang-k3.txt")))),
    Case(
        "sglang-without-a-batch", _one((Answer(0.0, upstream("sglang-started.txt")),))
    ),
    # Half of the drafts have a second token, a quarter a third one, and none a fourth
    # one.
    Case(
        "trtllm-short-drafts",
        _one(from_zero(tensorrt((400, 200, 100), (320, 120, 50), k=4))),
    ),
    Case("diffusion", _one(from_zero(upstream("vllm-diffusion.txt")), "0.33.0")),
    Case("down-from-the-start", (Server(failure=_REFUSED),)),
    Case(
        "down",
        (Server(polled(_PHASES, 30.0), failure=PollFailure("timeout", "too late")),),
    ),
    Case("not-polled-yet", (Server(),)),
    Case(
        "two-targets-one-down",
        (
            Server(polled("dp2", 30.0), name="http://a:8000", version="0.32.0"),
            Server(polled(_PHASES, 30.0), failure=_REFUSED, name="http://b:8000"),
        ),
        Settings(speculation=_EAGLE),
    ),
)
