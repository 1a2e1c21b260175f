"""Panels of K: what each K gives, which one is in use and which is advised, and what drafts cost."""

from __future__ import annotations

from .field import LIMIT, Json, colored, fixed, limits, matching, named
from .palette import BLUE, GREY, ORANGE, PALE_SKY, VERMILION
from .panel import Panel, TimeSeries
from .promql import (
    DRAFTS,
    GENERATED,
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    Flow,
    gauge,
    harmonic,
    threshold,
    total,
    weighted,
    windowed,
)
from .styles import NOTHING, RATIO, TIMES
from .table import WRAPPED, Column, joined
from .target import over_time

FLOW, BY_MODEL = Flow(), Flow(MODEL)
K = "num_speculative_tokens"
#: Tokens that drafts emit: those accepted, and one more of each.
EMITTED = f"({DRAFTS} + {windowed('accepted_tokens_per_second')})"
DEPLOYMENT = f"{MODEL}, method, draft_model, cost_profile, dialect, upstream_version"


def _at_each_k() -> str:
    """Return the estimated speedup of drafts at each K that all engines have: others are of other traffic."""
    found = gauge("estimated_speedup_at")
    everywhere = (
        f"count by ({K}) ({found}) == on () group_left () count({gauge('estimated_speedup_at', **{K: '0'})})"
    )
    return f"{harmonic(found, GENERATED, K, own=K)} and on ({K}) ({everywhere})"


def _at_own_k() -> str:
    """Return the estimated speedup of drafts at the K that each engine has."""
    mine = f'count_values without () ("{K}", {gauge(K)})'
    own = f"({gauge('estimated_speedup_at')} and on ({IDENTITY}, {K}) {mine})"
    return harmonic(own, GENERATED, own=K)


def _marked(word: str, color: str) -> Json:
    return {
        "type": "range",
        "options": {"from": 1, "to": None, "result": {"text": word, "color": color, "index": 0}},
    }


def _steps(title: str, description: str, *lines: tuple[str, str, str]) -> TimeSeries:
    """Return a panel of K over time: what each line is called, its color and its series."""
    return TimeSeries(
        title=title,
        description=description,
        targets=[
            over_time(total(gauge(series), MODEL, "max"), f"{word}: {MODEL_LEGEND}")
            for word, _, series in lines
        ],
        unit="short",
        decimals=0,
        least=0,
        steps=True,
        overrides=[
            matching(f"^{word}:.*", color=fixed(color), custom__lineStyle=_dashes(index))
            for index, (word, color, _) in enumerate(lines)
        ],
        no_value="K is not known",
        width=8,
        rows=11,
    )


def _dashes(index: int) -> Json:
    return {"fill": "dash", "dash": [8, 6]} if index else {"fill": "solid"}


which_k: list[Panel] = [
    joined(
        "What each K gives",
        (
            "Estimated speedup of drafts at this load, and the gain over the K in use. Follow the advice: "
            "differences within noise change nothing."
        ),
        {K: "K"},
        [
            Column("Speedup", _at_each_k(), "suffix:×", 2, bars=True),
            Column(
                "Gain", f"({_at_each_k()}) / on () group_left () ({_at_own_k()}) - 1", "percentunit", 0, 75
            ),
            Column(
                "Length",
                weighted(windowed("mean_acceptance_length_at"), windowed("window_drafts"), K, own=K),
                decimals=2,
                width=75,
            ),
            Column(
                "In use",
                f'count_values("{K}", {gauge(K)})',
                width=80,
                mappings=[_marked("in use", GREY)],
                filled=True,
            ),
            Column(
                "Advised",
                f'count_values("{K}", {gauge("recommended_" + K)})',
                width=85,
                mappings=[_marked("advised", PALE_SKY)],
                filled=True,
            ),
        ],
        overrides=[named("K", custom__width=45)],
        numbered="K",
        no_value="-",
        width=10,
        rows=11,
    ),
    _steps(
        "K in use and advised",
        "The largest of each model; advised 0 is no speculation. If they differ for hours: change K.",
        ("in use", BLUE, K),
        ("advised", ORANGE, f"recommended_{K}"),
        ("scheduled", GREY, f"scheduled_{K}"),
    ),
    joined(
        "Advised K by batch size",
        "0 is no speculation. Paste the schedule from the exporter's status page into num_speculative_tokens_per_batch_size.",
        {"batch_size": "Batch"},
        [Column("K", f"max by (batch_size) ({gauge('recommended_num_speculative_tokens_at')})", bars=True)],
        overrides=[named("Batch", custom__width=70)],
        numbered="Batch",
        no_value="no schedule",
        width=6,
        rows=11,
    ),
]

cost: list[Panel] = [
    TimeSeries(
        title="Draft tokens accepted and rejected",
        description="Rejected tokens cost compute that a busy GPU needs for other requests: lower K when requests wait.",
        targets=[
            over_time(FLOW.of("accepted_tokens"), "accepted"),
            over_time(f"clamp_min({FLOW.of('draft_tokens')} - {FLOW.of('accepted_tokens')}, 0)", "rejected"),
        ],
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        fill=25,
        stack=True,
        overrides=colored({"accepted": BLUE, "rejected": ORANGE}),
        no_value=NOTHING,
        width=8,
    ),
    TimeSeries(
        title="Coverage and wasted verification",
        description="Share of the output that came out of drafts, and share of the verified tokens that was rejected.",
        targets=[
            over_time(BY_MODEL.coverage(), f"coverage: {MODEL_LEGEND}"),
            over_time(BY_MODEL.waste(), f"wasted: {MODEL_LEGEND}"),
        ],
        **RATIO,
        overrides=[matching("^wasted:.*", custom__lineStyle={"fill": "dash", "dash": [4, 4]})],
        no_value=NOTHING,
        width=8,
    ),
    TimeSeries(
        title="Speedup, estimated and measured",
        description="Estimated: of drafts, by the cost profile. Measured: of all output. Far apart: run calibrate.",
        targets=[
            over_time(
                harmonic(f"sum without (basis) ({windowed('estimated_speedup')})", EMITTED, MODEL),
                f"estimated: {MODEL_LEGEND}",
            ),
            over_time(harmonic(windowed("measured_speedup"), GENERATED, MODEL), f"measured: {MODEL_LEGEND}"),
            over_time(threshold("harmful_speedup"), f"{LIMIT}harmful below, {MODEL_LEGEND}"),
        ],
        **TIMES,
        overrides=[
            matching("^estimated:.*", custom__lineStyle={"fill": "dash", "dash": [4, 4]}),
            limits(VERMILION),
        ],
        no_value=NOTHING,
        width=8,
    ),
    joined(
        "Deployment",
        (
            "How each model speculates. Empty method or profile unknown: set --spec.config. Return: published "
            "benefit over cost; below 1 the memory is better used as KV cache."
        ),
        {
            "cluster": "Cluster",
            "namespace": "Namespace",
            "model_name": "Model",
            "method": "Method",
            "draft_model": "Draft model",
            "cost_profile": "Cost profile",
            "dialect": "Dialect",
            "upstream_version": "vLLM",
        },
        [
            Column("Engines", f"count by ({DEPLOYMENT}) ({gauge('info')})", decimals=0, width=80),
            Column(
                "Return",
                f"({harmonic(windowed('return_on_speculation_ratio'), windowed('accepted_tokens_per_second'), MODEL)})"
                f" * on ({MODEL}) group_right () count by ({DEPLOYMENT}) ({gauge('info')}) ^ 0",
                decimals=1,
                width=80,
            ),
        ],
        overrides=[
            named("Cluster", custom__width=65),
            named("Namespace", custom__width=95),
            named("Method", custom__width=120),
            named("Dialect", custom__width=100),
            named("vLLM", custom__width=90),
            *(named(name, custom__cellOptions=WRAPPED) for name in ("Model", "Draft model")),
        ],
        no_value="-",
        rows=5,
    ),
]
