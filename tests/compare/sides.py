"""Builders for the tests of comparisons: latencies, measures, snapshots and sides."""

from pathlib import Path
from typing import Any

from support.copies import replace
from vllm_specdec_exporter.commands.compare.side import Side, side_of
from vllm_specdec_exporter.economics.speedup import Estimate
from vllm_specdec_exporter.engines.reading import Load
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.measures.history import Delta, Latency
from vllm_specdec_exporter.measures.measures import Measures, derive
from vllm_specdec_exporter.observe.result import (
    Deployment,
    EngineResult,
    ExporterResult,
    PollFailure,
    TargetResult,
)
from vllm_specdec_exporter.publish import snapshot

END = 1_795_000_000.0
SPAN = 30.0


def latencies(
    per_token: float,
    requests: float = 400.0,
    *,
    tokens: float = 200.0,
    spread: float = 0.3,
) -> tuple[Latency, ...]:
    """Latencies of requests of so many tokens; the quantiles are of no distribution."""

    def base(name: str, mean: float) -> Latency:
        deviation = spread * mean
        error = deviation / requests**0.5
        return Latency(
            name,
            requests,
            mean_seconds=mean,
            deviation_seconds=deviation,
            p50_seconds=0.9 * mean,
            p95_seconds=1.8 * mean,
            p99_seconds=2.5 * mean,
            error_seconds=error,
            error_freedom=requests - 1,
        )

    first = 0.05
    return (
        base("time_to_first_token", first),
        base("time_per_output_token", per_token),
        base("end_to_end", first + (tokens - 1) * per_token),
    )


def measures(
    per_token: float | None = 0.02,
    requests: float = 400.0,
    *,
    tokens: float = 200.0,
    positions: tuple[float, ...] = (),
    drafts: float = 0.0,
    speedup: float | None = None,
    window: str = "30s",
    spread: float = 0.3,
    end_to_end: float | None = None,
) -> Measures:
    """Measures of `SPAN` seconds in which requests finished, drafted at these position
    ratios.
    """
    if per_token is None:
        finished = ()
    else:
        finished = latencies(per_token, requests, tokens=tokens, spread=spread)
    if end_to_end is not None:
        finished = tuple(
            Latency(
                item.name,
                requests,
                end_to_end,
                error_seconds=spread * end_to_end / requests**0.5,
                error_freedom=requests - 1,
            )
            if item.name == "end_to_end"
            else item
            for item in finished
        )
    accepted = tuple(drafts * ratio for ratio in positions)
    delta = Delta(
        span=SPAN,
        drafts=drafts if positions else None,
        draft_tokens=drafts * len(positions) if positions else None,
        accepted_tokens=sum(accepted) if positions else None,
        accepted_tokens_per_position=accepted,
        generation_tokens=requests * tokens,
        latencies=finished,
    )
    derived = derive(window, delta)
    if speedup is None:
        return derived
    return replace(derived, estimate=Estimate(speedup, 0.8 * speedup, 1.2 * speedup))


def engine(
    finished: Measures | None, *, model: str = "llama", number: str = "0", **more: Any
) -> EngineResult:
    """An engine with these measures, drafting if they have drafts."""
    if finished is not None and finished.drafts:
        state = ActivityState.ACTIVE
    else:
        state = ActivityState.OFF
    k = len(finished.position_acceptance_ratio) if finished is not None else 0
    return EngineResult(
        model_name=model,
        engine=number,
        **{
            "activity": Activity(state),
            "deployment": Deployment(
                dialect="vllm-v1", upstream_version="0.32.0", cost_profile="ngram"
            ),
            "judged_window": finished.window if finished is not None else "30s",
            "windows": () if finished is None else (finished,),
            "num_speculative_tokens": k or None,
            "load": Load(4.0, 0.0, 0.1),
            **more,
        },
    )


def snapshot_of(
    *engines: EngineResult,
    address: str = "http://vllm:8000",
    end: float = END,
    **more: Any,
) -> ExporterResult:
    """A snapshot of one server."""
    target = TargetResult(
        address, up=True, last_success_timestamp_seconds=end, engines=engines
    )
    return ExporterResult(
        version="0.1.0", timestamp_seconds=end, targets=(target,), **more
    )


def side(
    name: str, per_token: float | None = 0.02, requests: float = 400.0, **more: Any
) -> Side:
    """A side with one engine that has these measures."""
    return side_of(
        snapshot_of(engine(measures(per_token, requests, **more))),
        name,
        source=f"http://{name.lower()}:8000",
    )


def with_measures(base: Side, **changes: Any) -> Side:
    """The side with other measures."""
    return replace(base, measures=replace(base.measures, **changes))


#: A side that drafts: 60 % of three positions, two thirds of what is left each time.
DRAFTING: dict[str, Any] = {
    "positions": (0.6, 0.4, 0.25),
    "drafts": 30_000.0,
    "speedup": 1.5,
}


def written(folder: Path) -> dict[str, str]:
    """Write snapshots of servers; return their files, by what they hold."""
    down = TargetResult(
        "http://gone:8000",
        failure=PollFailure("refused", "nothing listens at the address"),
    )
    plain = engine(measures())
    drafting = engine(measures(0.0142, **DRAFTING))
    results = {
        "plain": snapshot_of(plain, address="http://plain:8000"),
        "drafting": snapshot_of(drafting, address="http://drafting:8000"),
        "few": snapshot_of(engine(measures(0.02, 5.0))),
        "models": snapshot_of(plain, engine(measures(), model="qwen")),
        "down": ExporterResult("0.1.0", 0.0, (down,)),
        "two": ExporterResult(
            "0.1.0",
            0.0,
            snapshot_of(plain, address="http://a:1").targets
            + snapshot_of(drafting, address="http://b:1").targets,
        ),
    }
    paths = {}
    for name, result in results.items():
        path = folder / f"{name}.json"
        path.write_bytes(snapshot.encode(result))
        paths[name] = str(path)
    return paths
