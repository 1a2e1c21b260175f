"""Panels of K: what each K gives, which one is in use and which is advised, and what drafts cost."""

from __future__ import annotations

from mixin import CLUSTER

from .field import LIMIT, NOTHING, RATIO, TIMES, Json, colored, fixed, matching, named, threshold_lines
from .palette import BLUE, GREY, ORANGE, PALE_SKY, SKY, VERMILION
from .panel import Panel, TimeSeries, over_time
from .promql import (
    DRAFTS,
    GENERATED,
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    Flow,
    agreed,
    harmonic,
    metric,
    threshold,
    total,
    weighted,
    windowed,
)
from .table import WRAPPED, Column, joined_table
from .variables import LABELS

FLOW, BY_MODEL = Flow(), Flow(MODEL)
K = "num_speculative_tokens"
BY_K = f"{MODEL}, {K}"
#: Tokens that drafts emit: those accepted, and one more of each.
EMITTED = f"({DRAFTS} + {windowed('accepted_tokens_per_second')})"
ADVISED_AT = f"max by ({MODEL}, batch_size) ({metric('recommended_num_speculative_tokens_at')})"
DEPLOYMENT = f"{MODEL}, method, draft_model, cost_profile, dialect, upstream_version"


def _at_each_k() -> str:
    """Return a model's estimated speedup of drafts at each K that all its engines have: others are of other traffic."""
    estimates = metric("estimated_speedup_at")
    engines = f"count by ({MODEL}) ({metric('estimated_speedup_at', **{K: '0'})})"
    everywhere = f"count by ({BY_K}) ({estimates}) == on ({MODEL}) group_left () {engines}"
    return f"{harmonic(estimates, GENERATED, BY_K, own=K)} and on ({BY_K}) ({everywhere})"


def _at_own_k() -> str:
    """Return a model's estimated speedup of drafts at the K that each engine has."""
    mine = f'count_values without () ("{K}", {metric(K)})'
    own = f"({metric('estimated_speedup_at')} and on ({IDENTITY}, {K}) {mine})"
    return harmonic(own, GENERATED, MODEL, own=K)


def _ranked(rows: str) -> str:
    """Return for each row of a model the lowest speedup of its engines: the model that gains least comes first."""
    return f"0 * ({rows}) + on ({MODEL}) group_left () {total(metric('speedup'), MODEL, 'min')}"


def _present_batch() -> str:
    """Return 1 or more at the batch size, a power of two, that the requests of some engine of a model need now."""
    size = f"2 ^ ceil(log2(clamp({metric('requests_running')} > 0, 1, 1024)))"
    # The label must come last in the alphabet: Prometheus 2.42 loses those behind it.
    sizes = f'count_values by ({MODEL}) ("value", {size})'
    advised = f"count by ({MODEL}) ({metric('recommended_num_speculative_tokens_at')})"
    renamed = f'label_replace({sizes}, "batch_size", "$1", "value", "(.+)")'
    return f"sum by ({MODEL}, batch_size) ({renamed}) and on ({MODEL}) {advised}"


def _of_model(**width: int) -> list[Json]:
    """Return overrides of the columns that name a model; namespaces would leave too little room."""
    return [
        named("Cluster", custom__width=65),
        named("Namespace", custom__hidden=True),
        named("Model", custom__cellOptions=WRAPPED, **width),
    ]


def _marked(word: str, color: str) -> Json:
    return {
        "type": "range",
        "options": {"from": 1, "to": None, "result": {"text": word, "color": color, "index": 0}},
    }


#: What K is or should be: a color and a series each.
_KS = {
    "in use": (BLUE, K),
    "advised": (ORANGE, f"recommended_{K}"),
    "scheduled": (GREY, f"scheduled_{K}"),
}


def _dashes(word: str) -> Json:
    return {"fill": "solid"} if word == "in use" else {"fill": "dash", "dash": [8, 6]}


which_k: list[Panel] = [
    joined_table(
        "What each K gives",
        "Estimated for this load, with gain over the present K; a smaller K at least.",
        {**LABELS, K: "K"},
        [
            Column("Speedup", _at_each_k(), "suffix:×", 2, bars=True),
            Column(
                "Gain",
                f"({_at_each_k()}) / on ({MODEL}) group_left () ({_at_own_k()}) - 1",
                "percentunit",
                0,
                65,
            ),
            Column(
                "Length",
                weighted(windowed("mean_acceptance_length_at"), windowed("window_drafts"), BY_K, own=K),
                decimals=2,
                width=65,
            ),
            Column(
                "In use",
                f'count_values by ({MODEL}) ("{K}", {metric(K)}) and on ({MODEL}) {metric("estimated_speedup_at")}',
                width=75,
                mappings=[_marked("in use", GREY)],
                filled=True,
            ),
            Column(
                "Advised",
                f'count_values by ({MODEL}) ("{K}", {metric("recommended_" + K)})',
                width=80,
                mappings=[_marked("advised", PALE_SKY)],
                filled=True,
            ),
        ],
        overrides=[*_of_model(custom__width=260), named("K", custom__width=50)],
        numbered="K",
        ranked=_ranked(_at_each_k()),
        no_value=NOTHING,
        width=15,
        rows=11,
    ),
    joined_table(
        "Advised K by batch size",
        "0 is no speculation. The exporter's status page has the schedule to paste.",
        {**LABELS, "batch_size": "Batch"},
        [
            Column(
                "K",
                ADVISED_AT,
                decimals=0,
                width=50,
            ),
            Column("Now", _present_batch(), width=60, mappings=[_marked("now", GREY)], filled=True),
        ],
        overrides=[
            *_of_model(),
            named("Batch", custom__width=65),
        ],
        numbered="Batch",
        ranked=_ranked(ADVISED_AT),
        no_value="no schedule",
        width=9,
        rows=11,
    ),
    TimeSeries(
        title="K in use and advised",
        description="0 is no speculation. Drafted far below K: late positions read too low.",
        targets=[
            over_time(BY_MODEL.draft_length(), f"drafted: {MODEL_LEGEND}"),
            *(
                over_time(total(metric(series), MODEL, "max"), f"{word}: {MODEL_LEGEND}")
                for word, (_, series) in _KS.items()
            ),
        ],
        unit="short",
        least=0,
        steps=True,
        overrides=[
            *(
                matching(f"^{word}:.*", color=fixed(color), custom__lineStyle=_dashes(word))
                for word, (color, _) in _KS.items()
            ),
            matching("^drafted:.*", color=fixed(SKY), custom__lineInterpolation="linear"),
        ],
        no_value="K is not known",
        width=24,
        rows=7,
    ),
]

cost: list[Panel] = [
    TimeSeries(
        title="Draft tokens accepted and rejected",
        description="Rejected tokens cost compute. If requests wait: lower K.",
        targets=[
            over_time(FLOW.of("accepted_tokens"), "accepted"),
            over_time(FLOW.rejected(), "rejected"),
        ],
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        fill=25,
        stack=True,
        overrides=colored({"accepted": BLUE, "rejected": ORANGE}),
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    TimeSeries(
        title="Coverage and wasted verification",
        description="Share of output that came from drafts; share of verified tokens that was rejected.",
        targets=[
            over_time(BY_MODEL.coverage(), f"coverage: {MODEL_LEGEND}"),
            over_time(BY_MODEL.waste(), f"wasted: {MODEL_LEGEND}"),
        ],
        **RATIO,
        overrides=[matching("^wasted:.*", custom__lineStyle={"fill": "dash", "dash": [4, 4]})],
        no_value=NOTHING,
        width=8,
        rows=9,
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
            over_time(agreed(threshold("harmful_speedup")), f"{LIMIT}harmful below {MODEL_LEGEND}"),
        ],
        **TIMES,
        overrides=[
            matching("^estimated:.*", custom__lineStyle={"fill": "dash", "dash": [4, 4]}),
            threshold_lines(VERMILION),
        ],
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    joined_table(
        "Deployment",
        "Profile unknown: set --spec.config. Return below 1: the memory is better used as KV cache.",
        {
            CLUSTER: "Cluster",
            "namespace": "Namespace",
            "model_name": "Model",
            "method": "Method",
            "draft_model": "Draft model",
            "cost_profile": "Cost profile",
            "dialect": "Dialect",
            "upstream_version": "vLLM",
        },
        [
            Column("Engines", f"count by ({DEPLOYMENT}) ({metric('info')})", decimals=0, width=80),
            Column(
                "Return",
                f"({harmonic(windowed('return_on_speculation_ratio'), windowed('accepted_tokens_per_second'), MODEL)})"
                f" * on ({MODEL}) group_right () count by ({DEPLOYMENT}) ({metric('info')}) ^ 0",
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
        no_value=NOTHING,
        rows=5,
    ),
]
