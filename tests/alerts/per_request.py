"""Series of single requests, as an exporter with a tap or a push has them, beside those
of `World.engine`.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.per_request.summary import Outcome
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED

from .world import JOB, MISSING, MODEL, World

REASONS = ("refused", "reset", "timeout", "tls", "unreachable")
RECORDS = ("detailed", "summary", "not_drafted", "none", "malformed")
#: Minutes over which an exporter judges requests.
WINDOW = 30

#: A series: its name without the prefix, and its own labels.
Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class RequestPhase:
    """Some minutes of the requests that one exporter sees, the same all through."""

    minutes: int  # how long; one sample each
    #: By type, how many a minute have which acceptance ratio.
    requests: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    #: Further requests a minute by what their answers told; those above have a summary.
    observed: Mapping[str, float] = field(default_factory=dict)
    rejected: float = 0  # pushed requests a minute that could not be used
    #: Requests a minute that went through the tap; None, and there is no tap.
    passed: float | None = None
    #: Connections a minute that the tap did not get, by reason.
    failed: Mapping[str, float] = field(default_factory=dict)
    #: Requests for text a minute that passed the tap without an observation, by reason.
    unobserved: Mapping[str, float] = field(default_factory=dict)
    listening: bool = True  # whether clients can connect to the tap
    restart: bool = False  # whether the counters begin anew
    gone: bool = False  # whether nothing can be scraped


def outcome(ratio: float, thresholds: Thresholds) -> Outcome:
    """Return what speculation does to a request of this acceptance ratio."""
    if ratio < thresholds.disable_acceptance_ratio:
        return Outcome.LOSES
    if ratio > thresholds.break_even_acceptance_ratio:
        return Outcome.GAINS
    return Outcome.BREAK_EVEN


def observe(
    world: World,
    *phases: RequestPhase,
    model: str = MODEL,
    namespace: str = "chat",
    instance: str = "10.0.0.1:9850",
    labels: Mapping[str, str] | None = None,
    start: int = 0,
) -> None:
    """Add what an exporter says of the requests of a model; the exporter itself comes
    with its engine.
    """
    target = {
        "job": JOB,
        "instance": instance,
        "namespace": namespace,
        **(labels or {}),
    }
    totals: dict[Series, float] = {}
    recent: deque[Counter[float]] = deque(maxlen=WINDOW)
    minute = start
    for phase in phases:
        if phase.restart:
            totals.clear()
            recent.clear()
        for counter, step in (
            () if phase.gone else _counters(phase, model, world.thresholds)
        ):
            name, own = counter
            before = totals.get(counter, 0.0)
            samples = [before + step * i for i in range(phase.minutes)]
            world.put(f"vllm_specdec_{name}", {**target, **dict(own)}, minute, samples)
            totals[counter] = before + step * phase.minutes
        if phase.passed is not None and not phase.gone:
            listening = [float(phase.listening)] * phase.minutes
            world.put("vllm_specdec_tap_listening", target, minute, listening)
        if phase.requests and not phase.gone:
            own = {
                **target,
                "model_name": model,
                "percentile": "10",
                "window": f"{WINDOW}m",
            }
            tenths = [_tenth(phase, recent) for _ in range(phase.minutes)]
            world.put(
                "vllm_specdec_request_acceptance_ratio_percentile", own, minute, tenths
            )
        minute += phase.minutes


def _tenth(phase: RequestPhase, recent: deque[Counter[float]]) -> float | str:
    """Return the acceptance ratio that a tenth of the window's requests does not
    exceed, a minute later.
    """
    minute: Counter[float] = Counter()
    for ratios in phase.requests.values():
        minute.update(ratios)
    recent.append(minute)
    window: Counter[float] = sum(recent, Counter())
    below = accumulate(window[ratio] for ratio in sorted(window))
    tenth = window.total() / 10
    return next(
        (ratio for ratio, n in zip(sorted(window), below, strict=True) if n >= tenth),
        MISSING,
    )


def _counters(
    phase: RequestPhase, model: str, thresholds: Thresholds
) -> Iterator[tuple[Series, float]]:
    """Yield every counter with what it grows by in a minute."""
    seen = dict.fromkeys(RECORDS, 0.0) | dict(phase.observed)
    for name, ratios in phase.requests.items():
        own = (("model_name", model), ("request_type", name), ("temperature", "0"))
        for one in Outcome:
            number = sum(
                n for ratio, n in ratios.items() if outcome(ratio, thresholds) is one
            )
            yield ("request_outcomes_total", (*own, ("outcome", one.value))), number
        seen["summary"] += sum(ratios.values())
    source = "push" if phase.passed is None else "tap"
    for record, number in seen.items():
        yield (
            ("request_observations_total", (("source", source), ("record", record))),
            number,
        )
    yield ("push_rejected_total", ()), phase.rejected
    if phase.passed is not None:
        yield ("tap_requests_total", ()), phase.passed
        for reason in REASONS:
            yield (
                ("tap_upstream_errors_total", (("reason", reason),)),
                phase.failed.get(reason, 0.0),
            )
        for reason in UNOBSERVED:
            yield (
                ("tap_unobserved_total", (("reason", reason),)),
                phase.unobserved.get(reason, 0.0),
            )
