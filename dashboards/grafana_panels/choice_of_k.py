"""Panels of K: what each K gives, which one is in use and which is advised, and what drafts cost."""

from __future__ import annotations

from .field import (
    A_THIRD,
    LIMIT,
    NOTHING,
    RATIO,
    TIMES,
    Json,
    band,
    colored,
    fixed,
    named,
    threshold_lines,
)
from .palette import BLUE, GREY, ORANGE, PALE_SKY, SKY, VERMILION
from .panel import Panel, TimeSeries, over_time
from .promql import (
    DRAFTS,
    GENERATED,
    MODEL,
    MODEL_LEGEND,
    Flow,
    agreed,
    harmonic,
    metric,
    recorded,
    total,
    weighted,
    windowed,
)
from .table import WRAPPED, Column, joined_table
from .variables import LABELS

FLOW, BY_MODEL = Flow(), Flow(MODEL)
K = "num_speculative_tokens"
#: Label of a K that was in use; it must come last in the alphabet: Prometheus 2.42 loses those behind it.
_CHOSEN = "was_k"
BY_K = f"{MODEL}, {K}"
#: Tokens that drafts emit: those accepted, and one more of each.
EMITTED = f"({DRAFTS} + {windowed('accepted_tokens_per_second')})"
ADVISED_AT = f"max by ({MODEL}, batch_size) ({metric('recommended_num_speculative_tokens_at')})"
DEPLOYMENT = f"{MODEL}, method, draft_model, cost_profile, dialect, upstream_version"


#: A model's estimated speedup of drafts at each K that all its engines have.
_AT_EACH_K = recorded("estimated_speedup_at:ratio")
#: The same at the K in use, the least if engines differ.
_IN_USE = f'count_values by ({MODEL}) ("{K}", {metric(K)})'
_WITHOUT_RULES = f"min by ({BY_K}) ({metric('estimated_speedup_at')})"
_AT_OWN_K = f"min by ({MODEL}) ({_AT_EACH_K} and on ({BY_K}) {_IN_USE})"


def _present_batch() -> str:
    """Return 1 or more at the batch size, a power of two, that the requests of some engine of a model need now."""
    size = f"2 ^ ceil(log2(clamp({metric('requests_running')} > 0, 1, 1024)))"
    # The label must come last in the alphabet: Prometheus 2.42 loses those behind it.
    sizes = f'count_values by ({MODEL}) ("value", {size})'
    advised = f"count by ({MODEL}) ({metric('recommended_num_speculative_tokens_at')})"
    renamed = f'label_replace({sizes}, "batch_size", "$1", "value", "(.+)")'
    return f"sum by ({MODEL}, batch_size) ({renamed}) and on ({MODEL}) {advised}"


#: Overrides of the columns that name a model.
_OF_MODEL = [
    named("Cluster", custom__width=65),
    named("Namespace", custom__width=90),
    named("Model", custom__hidden=True),
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


def _while_k_was(record: str, over: str = "avg_over_time") -> str:
    """Return the mean of a record in the time range at each K, at about the requests that run at its end."""
    k = f'count_values by ({MODEL}) ("{_CHOSEN}", max by ({MODEL}) ({metric(K)}))'
    load = recorded("requests_running:avg5m")
    alike = f"({load} > 0.75 * {load} @ end() < 1.33 * {load} @ end())"
    return f"{over}(({recorded(record)} * on ({MODEL}) group_left ({_CHOSEN}) {k} and on ({MODEL}) {alike})[$__range:1m])"


which_k: list[Panel] = [
    joined_table(
        "What each K gave",
        "In this time range, at about the present requests: did a change of K help?",
        {**LABELS, _CHOSEN: "K"},
        [
            Column("Speedup", _while_k_was("speedup:ratio_rate5m"), "suffix:×", 2, 80),
            Column("Spread", _while_k_was("speedup:ratio_rate5m", "stddev_over_time"), decimals=2, width=80),
            Column("Length", _while_k_was("mean_acceptance_length:ratio_rate5m"), decimals=2, width=80),
            Column("TPOT", _while_k_was("time_per_output_token_seconds:rate5m"), "s", 2, 90),
            Column("Requests", _while_k_was("requests_running:avg5m"), decimals=1, width=90),
            Column("Minutes", _while_k_was("speedup:ratio_rate5m", "count_over_time"), decimals=0, width=80),
        ],
        overrides=[*_OF_MODEL, named("K", custom__width=50)],
        numbered="K",
        no_value="no K at the present load, or no rules",
        rows=6,
    ),
    joined_table(
        "What each K gives",
        "Estimated for this load, with gain over the present K; a smaller K at least.",
        {**LABELS, K: "K"},
        [
            Column("Speedup", f"{_AT_EACH_K} + 0\nor on () {_WITHOUT_RULES}", "suffix:×", 2, bars=True),
            Column(
                "Gain",
                f"{_AT_EACH_K} / on ({MODEL}) group_left () ({_AT_OWN_K}) - 1",
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
                f"{_IN_USE} and on ({MODEL}) {metric('estimated_speedup_at')}",
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
        overrides=[*_OF_MODEL, named("K", custom__width=50)],
        numbered="K",
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
            *_OF_MODEL,
            named("Batch", custom__width=65),
        ],
        numbered="Batch",
        no_value="no schedule",
        width=9,
        rows=11,
    ),
    TimeSeries(
        title="K in use and advised",
        description="0 is no speculation. Drafted far below K: late positions read too low.",
        targets=[
            over_time(BY_MODEL.draft_length(), "drafted"),
            *(over_time(total(metric(series), MODEL, "max"), word) for word, (_, series) in _KS.items()),
        ],
        unit="short",
        least=0,
        steps=True,
        overrides=[
            *(named(word, color=fixed(color)) for word, (color, _) in _KS.items()),
            named("drafted", color=fixed(SKY), custom__lineInterpolation="linear"),
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
        **A_THIRD,
    ),
    TimeSeries(
        title="Coverage and wasted verification",
        description="Share of output that came from drafts; share of verified tokens that was rejected.",
        targets=[
            over_time(BY_MODEL.coverage(), "coverage"),
            over_time(BY_MODEL.waste(), "wasted"),
        ],
        **RATIO,
        overrides=colored({"coverage": BLUE, "wasted": ORANGE}),
        **A_THIRD,
    ),
    TimeSeries(
        title="Speedup, estimated and measured",
        description="Estimated: of drafts, by the cost profile. Measured: of all output. Band: interval.",
        targets=[
            over_time(
                harmonic(f"sum without (basis) ({windowed('estimated_speedup')})", EMITTED, MODEL),
                "estimated",
            ),
            over_time(harmonic(windowed("measured_speedup"), GENERATED, MODEL), "measured"),
            *(
                over_time(total(metric("speedup_interval", bound=bound), MODEL, found), word)
                for word, bound, found in (("at most", "high", "max"), ("at least", "low", "min"))
            ),
            over_time(agreed("harmful_speedup"), f"{LIMIT}harmful below {MODEL_LEGEND}"),
        ],
        **TIMES,
        overrides=[
            *colored({"measured": BLUE, "estimated": ORANGE}),
            *band("at most", "at least"),
            threshold_lines(VERMILION),
        ],
        **A_THIRD,
    ),
    joined_table(
        "Deployment",
        "Profile unknown: set --spec.config. Return below 1: the memory is better used as KV cache.",
        {
            **LABELS,
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
