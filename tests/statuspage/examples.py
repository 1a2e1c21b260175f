"""Results in every state that the status page has to show, made by the real pipeline
where it can.
"""

import json

from per_request.results import RESULTS
from support.builders import processed
from support.copies import replace
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline, LoadBucket
from vllm_specdec_exporter.economics.cost import Basis, thresholds_for
from vllm_specdec_exporter.economics.profiles import BUILTIN, CostSettings, for_method
from vllm_specdec_exporter.economics.speculative_config import (
    Speculation,
    parse_speculation,
)
from vllm_specdec_exporter.engines.reading import (
    Counters,
    EngineKey,
    EngineReading,
    Latencies,
    Lifetime,
    Load,
    Reading,
)
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.observe.result import (
    EngineResult,
    ExporterResult,
    PollFailure,
    TargetResult,
)
from vllm_specdec_exporter.observe.settings import Settings

NOW = 1_790_000_000.0
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
KEY = EngineKey(MODEL, "0")
SPECULATION = parse_speculation(
    json.dumps(
        {
            "method": "eagle3",
            "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "num_speculative_tokens": 4,
        }
    )
)
#: Share of drafts in which each position is accepted, by level.
HEALTHY = (0.912, 0.731, 0.552, 0.381)
OPTIMAL = (0.957, 0.902, 0.853, 0.801)
FAIR = (0.78, 0.62, 0.49, 0.38)
POOR = (0.431, 0.182, 0.071, 0.024)
#: No K pays; one pays hardly; only a smaller one pays well.
HOPELESS = (0.101, 0.012, 0.003, 0.001)
MARGINAL = (0.551, 0.302, 0.151, 0.101)
SHALLOW = (0.951, 0.652, 0.051, 0.011)
#: Upper bounds of the buckets of latencies, in seconds: so fine that none holds half of
#: the requests. As `calibrate` would have measured it.
CALIBRATED = CostSettings(
    replace(
        BUILTIN["unknown"],
        basis=Basis.CALIBRATED,
        uncertainty=0.12,
        size_ratio=1 / 9,
        name="calibrated",
    )
)
_BOUNDS = tuple(0.005 * 1.04**step for step in range(240))
LOAD = Load(requests_running=14, requests_waiting=2, kv_cache_usage_ratio=0.4312)


def engine(
    shares: tuple[float, ...] = HEALTHY,  # of the drafts accepted at each position
    drafts_per_second: float = 41.3,
    *,
    plain: float = 3.7,  # tokens per second generated without drafts
    key: EngineKey = KEY,
    speculation: Speculation = SPECULATION,
    polls: int = 62,
    draft_length: float | None = None,  # K if not given
    counts: bool = True,  # whether the server has speculative counters
    #: Requests in the batch; None where the server does not tell.
    running: float | None = 14,
    #: Times as fast as its baseline; without one there is none.
    measured: float | None = None,
    #: Share of the GPUs' memory that the draft model takes.
    memory_ratio: float | None = None,
    costs: CostSettings = CALIBRATED,
) -> EngineResult:
    """Return what the pipeline says of an engine that was polled every 5 s while it
    drafted steadily.
    """
    baseline = None
    if measured is not None:
        baseline = baseline_at(running or 1.0)
    settings = Settings(
        speculation=speculation,
        costs=costs,
        # The published rubric, so that every level comes up, and what is usual of the
        # method.
        thresholds=thresholds_for(for_method(""), method=speculation.method),
        memory_ratio=memory_ratio,
        baseline=baseline,
    )
    readings = []
    for poll in range(polls):
        # Earlier polls see a little less acceptance, so that the windows differ.
        drafts = round(poll * 5 * drafts_per_second)
        positions = tuple(
            round(drafts * share * (0.97 + 0.03 * poll / polls)) for share in shares
        )
        accepted = sum(positions)
        counters = Counters(
            generation_tokens=accepted + drafts + round(poll * 5 * plain)
        )
        if counts:
            counters = replace(
                counters,
                drafts=drafts,
                draft_tokens=drafts * (draft_length or len(shares)),
                accepted_tokens=accepted,
                accepted_tokens_per_position=positions,
            )
        latencies = None
        if measured is not None:
            latencies = latencies_of(poll * 20, measured)
        load = replace(LOAD, requests_running=running)
        polled = EngineReading(key, counters, load, latencies=latencies)
        time = NOW - 1.3 - (polls - 1 - poll) * 5
        readings.append((time, Reading("vllm-v1", (polled,))))
    return processed(readings, settings, upstream_version="0.11.0")[-1][0]


def latencies_of(requests: int, speedup: float = 1.0) -> Latencies:
    """Return how long requests took that are decoded so many times as fast as the
    baseline's.
    """

    def histogram(seconds: float) -> Histogram:
        # Evenly spread over half to one and a half times the mean.
        below = tuple(
            requests * min(1.0, max(0.0, bound / seconds - 0.5)) for bound in _BOUNDS
        )
        return Histogram(_BOUNDS, below, requests, requests * seconds)

    return Latencies(
        histogram(0.09), histogram(0.0301 / speedup), histogram(0.09 + 6.02 / speedup)
    )


def baseline_at(running: float) -> Baseline:
    """Return a baseline that was recorded at one load."""
    bucket = LoadBucket(
        running,
        seconds=600.0,
        generation_tokens=280_000.0,
        requests=1400,
        latencies=latencies_of(1400),
    )
    return Baseline(
        format=FORMAT,
        model_name=MODEL,
        upstream_version="0.11.0",
        dialect="vllm-v1",
        recorded_at="2026-09-20T12:00:00Z",
        buckets=(bucket,),
    )


def old_engine() -> EngineResult:
    """Return what the pipeline says of a vLLM V0, which generates but tells only
    lifetime means.
    """
    lifetime = Lifetime(lifetime_acceptance_ratio=0.617, lifetime_efficiency=0.583)
    key = EngineKey("facebook/opt-6.7b")
    settings = replace(SPECULATION, num_speculative_tokens=5)
    readings = []
    for poll in range(3):
        counters = Counters(generation_tokens=100.0 * poll)
        polled = EngineReading(key, counters, LOAD, lifetime)
        readings.append((NOW - 11.3 + 5 * poll, Reading("vllm-v0", (polled,))))
    return processed(
        readings, Settings(speculation=settings), upstream_version="0.8.4"
    )[-1][0]


def target(*engines: EngineResult, address: str = "http://vllm:8000") -> TargetResult:
    """Return a server that answers."""
    return TargetResult(
        address,
        up=True,
        poll_duration_seconds=0.0123,
        last_success_timestamp_seconds=NOW - 1.3,
        poll_errors_total={"refused": 7, "timeout": 1, "tls": 0},
        engines=engines,
    )


def down(
    last_success: float | None = NOW - 200,
    reason: str = "refused",
    address: str = "http://vllm:8000",
) -> TargetResult:
    """Return a server that does not answer."""
    return TargetResult(
        address,
        failure=PollFailure(reason, "connection refused"),
        poll_duration_seconds=0.0021,
        last_success_timestamp_seconds=last_success,
        poll_errors_total={reason: 40},
    )


def page_of(*targets: TargetResult) -> ExporterResult:
    """Return all that the exporter knows of these servers."""
    return ExporterResult(
        version="0.1.0",
        timestamp_seconds=NOW - 0.4,
        targets=targets,
        thresholds=dict(Thresholds().items()),
    )


#: JSON of an operator that holds whatever JSON may hold.
HOSTILE_TEXT = '</code><script>alert(1)</script>\' $(reboot) \u202e \x1b[31m & "quoted"'
HOSTILE = parse_speculation(
    json.dumps(
        {"method": HOSTILE_TEXT, "x" * 300: HOSTILE_TEXT, "num_speculative_tokens": 4}
    )
)
IDLE = engine(drafts_per_second=0.0, plain=0.0)
BYPASSED = engine(drafts_per_second=0.0, plain=55.0)
OFF = engine(counts=False, speculation=Speculation(), plain=55.0)
WARMING_UP = engine(drafts_per_second=0.123)
JUST_STARTED = engine(polls=1)
VARYING = engine(draft_length=2.3, plain=300.0, shares=(0.8, 0.5, 0.2, 0.1))
UNKNOWN = engine(costs=CostSettings(BUILTIN["unknown"]))
UNNAMED = engine(key=EngineKey())
_RANKS = (
    (HEALTHY, 41.3),
    (OPTIMAL, 37.1),
    (HOPELESS, 44.0),
    (FAIR, 12.9),
    (HEALTHY, 0.2),
    (OPTIMAL, 140.0),
)
_DRAFTING = [
    engine(shares, rate, key=EngineKey(MODEL, str(rank)))
    for rank, (shares, rate) in enumerate(_RANKS)
]
FLEET = page_of(
    target(*_DRAFTING, BYPASSED, IDLE, address="http://vllm-a:8000"),
    target(OFF, address="http://vllm-b:8000"),
    down(address="http://vllm-c:8000"),
)

#: Every state by name.
_PAYING = target(engine())
PAGES = {
    "healthy": page_of(_PAYING),
    "optimal": page_of(target(engine(OPTIMAL))),
    "fair": page_of(target(engine(FAIR))),
    "poor": page_of(target(engine(POOR))),
    "marginal": page_of(target(engine(MARGINAL))),
    "disable": page_of(target(engine(HOPELESS, running=100))),
    "decrease": page_of(target(engine(SHALLOW))),
    "measured": page_of(target(engine(measured=1.62, memory_ratio=0.1))),
    "measured_harmful": page_of(target(engine(measured=0.87))),
    "hostile": page_of(target(engine(SHALLOW, speculation=HOSTILE))),
    "unsaid": page_of(target(engine(SHALLOW, speculation=Speculation()))),
    "payoff_unknown": page_of(target(UNKNOWN)),
    "varying": page_of(target(VARYING)),
    "idle": page_of(target(IDLE)),
    "bypassed": page_of(target(BYPASSED)),
    "off": page_of(target(OFF)),
    "warming_up": page_of(target(WARMING_UP)),
    "just_started": page_of(target(JUST_STARTED)),
    "v0": page_of(target(old_engine())),
    "unnamed": page_of(target(UNNAMED)),
    "down": page_of(down()),
    "never_up": page_of(down(last_success=None)),
    "not_polled": page_of(TargetResult("http://vllm:8000")),
    "no_engines": page_of(target()),
    "no_targets": page_of(),
    "several_targets": page_of(_PAYING, down(address="http://other:8000")),
    **{
        f"requests_{name}": replace(page_of(_PAYING), requests=RESULTS[name])
        for name in (
            "mixed",
            "gaining",
            "few",
            "quiet",
            "varying",
            "summary",
            "unrecorded",
            "nothing",
            "two-models",
            "hostile",
        )
    },
    "fleet": FLEET,
}
