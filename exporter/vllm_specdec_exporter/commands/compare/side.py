"""A side: one server over its period, its engines combined. Pure.

With data parallelism, counts and rates of the engines are added. Values derived from
counts are derived from the sums. Quantiles cannot be combined, so several engines have
none.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from ...config.options import ConfigError
from ...config.thresholds import Thresholds
from ...economics.speculative_config import drafts_without_model
from ...economics.speedup import Estimate
from ...economics.statistics import MINIMUM_REQUESTS, Acceptance, Interval, SampleMean
from ...engines.reading import sum_known
from ...judgement.activity import ActivityState
from ...measures.history import Delta, Latency
from ...measures.measures import Measures, derive
from ...observe.result import EngineResult, ExporterResult, TargetResult
from ...publish.terminal import printable
from ...publish.wording import verdict_words

#: The latency for the speed, and the one for requests at a time.
PACE = "time_per_output_token"
END_TO_END = "end_to_end"


_MODEL_NAME = attrgetter("model_name")


class SideError(Exception):
    """A side that cannot be reached or read.

    The message names the server and the reason.
    """


class Side(Struct, frozen=True):
    """One side of a comparison. ``None`` or empty: cannot be known."""

    name: str
    source: str = ""  # the server's address, or the file
    live: bool = False  # whether it was observed now, not read from a file
    models: tuple[str, ...] = ()
    engines: int = 0  # engines that generated something
    dialect: str = ""  # of its metrics
    version: str = ""  # as its ``/version`` reports it
    method: str = ""  # the drafting method, if the snapshot has it
    cost_profile: str = ""
    ended_seconds: float | None = None  # Unix time of the last sample
    restarts: int = 0  # detected resets of its counters
    speculating: bool | None = None  # whether it drafted; ``None`` if not known
    num_speculative_tokens: int | None = None  # K
    measures: Measures = Measures("")  # of its period, all engines together
    acceptance_ratio: Interval | None = None  # the one of `measures` with its interval
    mean_acceptance_length: Interval | None = None  # likewise
    requests_per_second: float | None = None  # requests finished
    #: Requests in the server, averaged over the period, by Little's law: finished per
    #: second times their mean time end to end. Those that waited count as well.
    requests_at_a_time: float | None = None
    tokens_per_request: float | None = None  # tokens generated per request finished
    requests_running: float | None = None  # in the batch, at the end of the period
    requests_waiting: float | None = None  # in the queue, at the end of the period
    quality: str = ""  # the levels of its engines; empty unless active
    payoff: str = ""  # their verdicts, likewise
    advice: str = ""  # their advice on K, likewise
    #: From this relative difference on, an estimate does not fit a measurement.
    disagreement_ratio: float = Thresholds().disagreement_ratio
    why_no_latencies: str = ""  # why its speed is unknown; empty if it is known

    def latency(self, name: str) -> Latency | None:
        """Return the latency called `name`, if measured."""
        return _latency(self.measures, name)

    def mean(self, name: str) -> SampleMean | None:
        """Return the mean of the latency called `name` as a sample, if measured."""
        latency = self.latency(name)
        if latency is None:
            return None
        error = None if latency.requests < MINIMUM_REQUESTS else latency.error_seconds
        return SampleMean(latency.mean_seconds, error, latency.error_freedom or 1.0)

    @property
    def acceptance(self) -> Acceptance:
        """Its drafts, for comparison."""
        return _acceptance(self.measures)


def side_of(
    result: ExporterResult,
    name: str,
    *,
    source: str = "",
    live: bool = False,
    model: str = "",
) -> Side:
    """Return the side of a snapshot with one server, shown as `source`; with `model`,
    of its engines only.

    Raises:
        SideError: it has no server, or the server could not be polled.
        ConfigError: it has several servers or models, or not the requested one.
    """
    target = _target(result, name)
    engines = _of_model(target.engines, name, model)
    observed = [engine for engine in engines if engine.window(engine.judged_window)]
    # Idle engines would lower the load of each one that works.
    at_work = list(filter(_worked, observed))
    measures = pool(list(map(_judged, at_work or observed)))
    acceptance = _acceptance(measures)
    end_to_end = _latency(measures, END_TO_END)
    requests_per_second: float | None = None
    requests_at_a_time: float | None = None
    tokens_per_request: float | None = None
    if end_to_end is not None and measures.span_seconds:
        requests_per_second = end_to_end.requests / measures.span_seconds
        requests_at_a_time = requests_per_second * end_to_end.mean_seconds
    if measures.generation_tokens_per_second and requests_per_second:
        tokens_per_request = measures.generation_tokens_per_second / requests_per_second
    ks = filter(None, map(attrgetter("num_speculative_tokens"), engines))
    judged = at_work or engines
    deployments = list(map(attrgetter("deployment"), engines))
    loads = list(map(attrgetter("load"), engines))
    return Side(
        name=name,
        source=source or target.target,
        live=live,
        models=_distinct(map(_MODEL_NAME, engines)),
        engines=len(at_work),
        dialect=_listed(map(attrgetter("dialect"), deployments)),
        version=_listed(map(attrgetter("upstream_version"), deployments)),
        method=_listed(map(attrgetter("method"), deployments)),
        cost_profile=_listed(map(attrgetter("cost_profile"), deployments)),
        ended_seconds=target.last_success_timestamp_seconds or result.timestamp_seconds,
        restarts=sum(map(attrgetter("engine_resets_total"), engines)),
        speculating=_speculating(judged, measures),
        num_speculative_tokens=max(ks, default=None),
        measures=measures,
        acceptance_ratio=acceptance.ratio_interval,
        mean_acceptance_length=acceptance.length_interval,
        requests_per_second=requests_per_second,
        requests_at_a_time=requests_at_a_time,
        tokens_per_request=tokens_per_request,
        requests_running=sum_known(map(attrgetter("requests_running"), loads)),
        requests_waiting=sum_known(map(attrgetter("requests_waiting"), loads)),
        quality=_listed(map(attrgetter("quality.level"), judged)),
        payoff=_listed(map(verdict_words, map(attrgetter("payoff"), judged))),
        advice=_listed(map(_advice, judged)),
        disagreement_ratio=result.thresholds.get(
            "disagreement_ratio", Thresholds().disagreement_ratio
        ),
        why_no_latencies=_why_no_latencies(measures, live=live),
    )


def _judged(engine: EngineResult) -> Measures:
    """Return the measures of an engine's period, empty without two samples of it."""
    return engine.window(engine.judged_window) or Measures("")


def _worked(engine: EngineResult) -> bool:
    measures = _judged(engine)
    return bool(
        measures.generation_tokens_per_second or measures.drafts or measures.latencies
    )


def _latency(measures: Measures, name: str) -> Latency | None:
    for latency in measures.latencies:
        if latency.name == name:
            return latency
    return None


def _acceptance(measures: Measures) -> Acceptance:
    return Acceptance(
        survival=measures.position_acceptance_ratio,
        drafts=measures.drafts or 0.0,
        ratio=measures.acceptance_ratio,
        length=measures.mean_acceptance_length,
        drafted=measures.mean_draft_length,
    )


def _target(result: ExporterResult, name: str) -> TargetResult:
    if not result.targets:
        raise SideError("the snapshot holds no server")
    if len(result.targets) > 1:
        servers = ", ".join(map(attrgetter("target"), result.targets))
        raise ConfigError(
            f"side {name}: the snapshot holds {len(result.targets)} servers; write "
            f"FILE#ADDRESS with one of {servers}"
        )
    (target,) = result.targets
    if target.up:
        return target
    if target.failure is None:
        raise SideError("it was not polled")
    raise SideError(f"{target.failure.reason}: {target.failure.message}")


def _of_model(
    engines: tuple[EngineResult, ...], name: str, model: str
) -> tuple[EngineResult, ...]:
    served = _distinct(map(_MODEL_NAME, engines))
    if model:
        engines = tuple(engine for engine in engines if engine.model_name == model)
        if not engines:
            models = ", ".join(served) or "no named model"
            raise ConfigError(
                f'--model "{model}": side {name} does not serve it; it serves {models}'
            )
    elif len(served) > 1:
        raise ConfigError(
            f"side {name} serves several models; choose one with --model: "
            f"{', '.join(served)}"
        )
    return engines


def _speculating(engines: Sequence[EngineResult], measures: Measures) -> bool | None:
    if measures.drafts:
        return True
    states = set(map(attrgetter("activity.state"), engines))
    plain = {ActivityState.OFF}
    # With a draft model, a step without drafts still has its first pass.
    if all(map(drafts_without_model, map(attrgetter("deployment.method"), engines))):
        plain.add(ActivityState.BYPASSED)
    if measures.generation_tokens_per_second and states <= plain:
        return False
    return None


def _why_no_latencies(measures: Measures, *, live: bool) -> str:
    if measures.latencies:
        return ""
    if measures.span_seconds is None:
        return "there are no two samples of it"
    period = f"in its {measures.span_seconds:.0f} s"
    if not measures.generation_tokens_per_second:
        return f"it generated nothing {period}"
    if live:
        return f"no request finished {period}, or its metrics have no latencies"
    return (
        f"no request finished {period}, or the snapshot was taken without latencies "
        "(check --json has them)"
    )


def _advice(engine: EngineResult) -> str:
    """Return the advice in words, empty without a verdict to base it on."""
    if not engine.payoff.verdict:
        return ""
    action = str(engine.advice.action).replace("_", " ")
    k = engine.advice.num_speculative_tokens
    if k and engine.advice.action in ("increase_k", "decrease_k"):
        return f"{action} to {k}"
    return action


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct texts that are not empty, safe to be shown."""
    return tuple(dict.fromkeys(map(printable, filter(None, texts))))


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(_distinct(texts))


def pool(measures: Sequence[Measures]) -> Measures:
    """Return the measures of several engines combined, as far as they are shown; of one
    unchanged, of none empty.
    """
    if not measures:
        return Measures("")
    if len(measures) == 1:
        return measures[0]
    increases = list(map(_increase, measures))

    def total(name: str) -> float | None:
        return sum_known(map(attrgetter(name), increases))

    by_engine = map(attrgetter("accepted_tokens_per_position"), increases)
    positions = zip_longest(*by_engine, fillvalue=0.0)
    delta = Delta(
        span=max(map(attrgetter("span"), increases)),
        drafts=total("drafts"),
        draft_tokens=total("draft_tokens"),
        accepted_tokens=total("accepted_tokens"),
        accepted_tokens_per_position=tuple(map(math.fsum, positions)),
        generation_tokens=total("generation_tokens"),
        prefix_cache_queries=total("prefix_cache_queries"),
        prefix_cache_hits=total("prefix_cache_hits"),
        first_tokens=total("first_tokens") or 0.0,
        latencies=pool_latencies(
            chain.from_iterable(map(attrgetter("latencies"), measures))
        ),
    )
    estimate = Estimate(
        speedup=_mean_by_drafts(measures, "speedup"),
        speedup_low=_mean_by_drafts(measures, "speedup_low"),
        speedup_high=_mean_by_drafts(measures, "speedup_high"),
    )
    pooled = replace(derive(measures[0].window, delta), estimate=estimate)
    if any(each.drafts and each.coverage_ratio is None for each in measures):
        # Unknown of one, so unknown of all.
        return replace(pooled, coverage_ratio=None)
    return pooled


def _increase(measures: Measures) -> Delta:
    """Return the increase of an engine's counters that measures are of."""
    span = measures.span_seconds or 0.0
    drafts = measures.drafts or 0.0

    def total(per_second: float | None, share: float | None = 1.0) -> float | None:
        if per_second is None or share is None:
            return None
        return per_second * share * span

    generated = measures.generation_tokens_per_second
    queries = measures.prefix_cache_queries_per_second
    coverage = measures.coverage_ratio
    return Delta(
        span=span,
        drafts=measures.drafts,
        draft_tokens=total(measures.draft_tokens_per_second),
        accepted_tokens=total(measures.accepted_tokens_per_second),
        accepted_tokens_per_position=tuple(
            drafts * ratio for ratio in measures.position_acceptance_ratio
        ),
        generation_tokens=total(generated),
        prefix_cache_queries=total(queries),
        prefix_cache_hits=total(queries, measures.prefix_cache_hit_ratio),
        # What no draft delivered bounds what drafts delivered as first tokens do.
        first_tokens=total(generated, None if coverage is None else 1 - coverage),
    )


def _mean_by_drafts(measures: Sequence[Measures], name: str) -> float | None:
    """Return the mean of a known value of the estimates, weighted with drafts."""
    weighted = 0.0
    drafts = 0.0
    for each in measures:
        value = getattr(each.estimate, name)
        if value is not None:
            weighted += value * (each.drafts or 0.0)
            drafts += each.drafts or 0.0
    if drafts > 0:
        return weighted / drafts
    return None


def pool_latencies(latencies: Iterable[Latency]) -> tuple[Latency, ...]:
    """Return the latencies of each name combined: the mean exactly, deviation and
    quantiles only of one.
    """
    by_name: dict[str, list[Latency]] = {}
    for latency in latencies:
        if latency.requests > 0:
            by_name.setdefault(latency.name, []).append(latency)
    return tuple(map(_together, by_name.values()))


def _together(parts: Sequence[Latency]) -> Latency:
    if len(parts) == 1:
        return parts[0]
    name = parts[0].name
    requests = math.fsum(map(attrgetter("requests"), parts))
    mean = math.fsum(part.requests * part.mean_seconds for part in parts) / requests
    if any(part.error_seconds is None for part in parts):
        return Latency(name, requests, mean)
    # Engines share their traffic, so their errors count as if they always went the same
    # way.
    error = math.fsum(part.requests * (part.error_seconds or 0.0) for part in parts)
    return Latency(
        name,
        requests,
        mean,
        error_seconds=error / requests,
        error_freedom=min(part.error_freedom or 1.0 for part in parts),
    )
