"""Panels of K: what each K gives, which one is in use and which is advised, and what
drafts cost.
"""

from math import ceil, floor

from .field import (
    LIMIT,
    NOTHING,
    RATIO,
    TIMES,
    Json,
    band,
    named,
    threshold_lines,
    word_mapping,
)
from .palette import AMBER, BLUE, GREY, ORANGE, PALE_SKY, VERMILION
from .panel import Panel, lines, over_time
from .promql import (
    GENERATED,
    IDENTITY,
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

BY_MODEL = Flow(MODEL)
K = "num_speculative_tokens"
BY_K = f"{MODEL}, {K}"
ADVISED_AT = (
    f"max by ({MODEL}, batch_size) ({metric('recommended_num_speculative_tokens_at')})"
)
DEPLOYMENT = f"{MODEL}, method, draft_model, cost_profile, dialect, upstream_version"


#: A model's estimated speedup of drafts at each K that all its engines have.
_AT_EACH_K = recorded("estimated_speedup_at:ratio")
#: The same at the K in use, the least if engines differ.
_IN_USE = f'count_values by ({MODEL}) ("{K}", {metric(K)})'
_WITHOUT_RULES = f"min by ({BY_K}) ({metric('estimated_speedup_at')})"
_AT_OWN_K = f"min by ({MODEL}) ({_AT_EACH_K} and on ({BY_K}) {_IN_USE})"


def _present_batch() -> str:
    """Return the requests that a mean engine runs now, at the batch size, a power of
    two, that they need.
    """
    running = f"{metric('requests_running')} > 0"
    size = f"2 ^ ceil(log2(clamp({running}, 1, 1024)))"
    # The label must come last in the alphabet: Prometheus 2.42 loses those behind it.
    sizes = f'count_values by ({IDENTITY}) ("value", {size})'
    advised = f"count by ({MODEL}) ({metric('recommended_num_speculative_tokens_at')})"
    renamed = f'label_replace({sizes}, "batch_size", "$1", "value", "(.+)")'
    of_engines = f"{renamed} * on ({IDENTITY}) group_left () ({running})"
    return f"avg by ({MODEL}, batch_size) ({of_engines}) and on ({MODEL}) {advised}"


#: A setting that was there when it was recorded last.
_NOW = {"type": "range", "options": {"from": 0, "to": 300, "result": {"text": "now"}}}
#: The model is chosen at the top.
_OF_MODEL = [named("Model", custom__hidden=True)]


def _marked(word: str, color: str) -> Json:
    return {
        "type": "range",
        "options": {
            "from": 1,
            "to": None,
            "result": {"text": word, "color": color, "index": 0},
        },
    }


#: Which requests a power of two stands for: those that are nearer to it than to the
#: next ones, by the logarithm.
_BUCKETS = [
    {
        "type": "value",
        "options": {
            str(size): {"text": f"{ceil(size / 2**0.5)} to {floor(size * 2**0.5)}"}
            for size in (2**power for power in range(1, 11))
        },
    }
]
#: What a change sets, by label.
SETTING = {
    "was_k": "K",
    "upstream_version": "vLLM",
    "was_start": "Restarts",
    "was_n": "At requests",
}
_LOAD = "was_n"
_TPOT = recorded("set:tpot")
_TPOTS = f"{_TPOT}[$__range:1m]"
_UNTIL = f"time() - max_over_time(timestamp({_TPOT})[$__range:1m])"
_HELPED = {
    2: ("▲ faster now", BLUE),
    0: ("no clear difference", GREY),
    -2: ("▼ slower now", VERMILION),
}
_HELPED |= {1: _HELPED[2], -1: _HELPED[-2]}


def _at_present_load(expr: str) -> str:
    return f"{expr} and on ({_LOAD}) {_TPOT}"


def _since_then() -> str:
    """Return 2 where the present mean is below nine in ten minutes of an earlier
    setting, -2 above as many, else 0.
    """
    present = f"on ({_LOAD}) group_left () (avg_over_time({_TPOTS}) and {_TPOT})"
    ends = (
        f"sgn(quantile_over_time({share}, {_TPOTS}) - {present})"
        for share in (".1", ".9")
    )
    return f"{' + '.join(ends)} unless {_TPOT}"


def _while_set(record: str) -> str:
    """Return the mean of a record in the time range with each setting."""
    labelled = (
        f"{recorded(record)} * on ({MODEL}) group_left ({', '.join(SETTING)}) ({_TPOT} "
        "^ 0)"
    )
    return _at_present_load(f"avg_over_time(({labelled})[$__range:1m])")


#: The advised K, 2 where it has run at this load and was slower than the present one,
#: whose own is 1 but for the last digits.
_ADVISED = f'count_values by ({MODEL}) ("{K}", {metric("recommended_" + K)})'
_TRIED = recorded("tried_speedup_at:ratio")
#: What was measured decides: the estimate of such a K is none any more.
OVERRULED = f"({_ADVISED} and on ({BY_K}) {_TRIED} < .999)"
_MARKS = f"2 * ({_ADVISED} ^ 0 and on ({BY_K}) {_TRIED} < .999)\nor {_ADVISED} ^ 0"


def _overruled_at() -> str:
    """Return the batch size, a power of two, that a mean engine needs, of a model whose
    estimated K was slower.
    """
    running = recorded("requests_running:avg5m")
    size = f"2 ^ ceil(log2(clamp({running}, 1, 1024))) and on ({MODEL}) {OVERRULED}"
    sizes = f'count_values by ({MODEL}) ("value", {size})'
    renamed = f'label_replace({sizes}, "batch_size", "$1", "value", "(.+)")'
    return f"max by ({MODEL}, batch_size) ({renamed})"


which_k: list[Panel] = [
    joined_table(
        "Before and after each change",
        (
            "TPOT, time per output token, is measured and decides. Means of each "
            "setting's time."
        ),
        {**LABELS, **SETTING},
        [
            Column(
                "Running",
                _while_set("requests_running:avg5m"),
                unit="short",
                decimals=0,
                width=80,
            ),
            Column(
                "Until, time ago",
                _at_present_load(_UNTIL),
                unit="s",
                decimals=0,
                width=120,
                mappings=[_NOW],
            ),
            Column(
                "For",
                f"60 * {_at_present_load(f'count_over_time({_TPOTS})')}",
                unit="s",
                decimals=0,
                width=85,
            ),
            Column(
                "Since then",
                _since_then(),
                width=165,
                mappings=word_mapping(_HELPED),
                filled=True,
            ),
            *(
                Column(
                    title,
                    # VictoriaMetrics keeps the record's name, a column.
                    _at_present_load(f"{of}{_TPOTS}) + 0"),
                    unit="s",
                    decimals=2,
                    width=95,
                )
                for title, of in (
                    ("TPOT", "avg_over_time("),
                    ("From", "quantile_over_time(0.1, "),
                    ("To", "quantile_over_time(0.9, "),
                )
            ),
            Column(
                "Mean length",
                _while_set("mean_acceptance_length:ratio_rate5m"),
                decimals=2,
                width=105,
            ),
        ],
        overrides=[
            *_OF_MODEL,
            named("vLLM", custom__width=75),
            named("Restarts", custom__width=75),
            named("At requests", custom__width=105, mappings=_BUCKETS),
        ],
        numbered="Until, time ago",
        no_value="no change at the present load, or vLLM itself is not scraped",
        rows=6,
    ),
    joined_table(
        "What each K gives",
        "Est.: a smaller K at least. Where a K ran, Measured decides.",
        {**LABELS, K: "K"},
        [
            Column(
                "Speedup, est.",
                f"{_AT_EACH_K} + 0\nor on () {_WITHOUT_RULES}",
                "suffix:×",
                2,
                width=110,
            ),
            Column(
                "Gain, est.",
                f"{_AT_EACH_K} / on ({MODEL}) group_left () ({_AT_OWN_K}) - 1\n"
                f"unless on ({BY_K}) abs({_TRIED} - 1) > .001",
                unit="percentunit",
                decimals=0,
                width=85,
            ),
            Column(
                "Measured",
                f"({_TRIED} unless on ({BY_K}) {_IN_USE}) - 1",
                unit="percentunit",
                decimals=0,
                width=82,
            ),
            Column(
                "Length",
                weighted(
                    windowed("mean_acceptance_length_at"),
                    windowed("window_drafts"),
                    BY_K,
                    own=K,
                ),
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
                _MARKS,
                width=95,
                mappings=word_mapping(
                    {1: ("advised", PALE_SKY), 2: ("was slower", AMBER)}
                ),
                filled=True,
            ),
        ],
        overrides=_OF_MODEL,
        numbered="K",
        no_value=NOTHING,
        width=15,
        rows=13,
    ),
    joined_table(
        "Estimated best K by batch size",
        "0: no speculation. Slower: the estimated K has run at this load; keep yours.",
        {**LABELS, "batch_size": "Batch"},
        [
            Column("K, est.", ADVISED_AT, decimals=0, width=70),
            Column(
                "Measured",
                _overruled_at(),
                width=90,
                mappings=word_mapping({1: ("slower", AMBER)}),
            ),
            Column(
                "Running now",
                _present_batch(),
                unit="short",
                decimals=0,
                width=105,
            ),
        ],
        overrides=[*_OF_MODEL, named("Batch", custom__width=65)],
        numbered="Batch",
        no_value="no schedule",
        width=9,
        rows=13,
    ),
]

cost: list[Panel] = [
    lines(
        "Coverage and wasted verification",
        (
            "Share of output that came from drafts; share of verified tokens that was "
            "rejected."
        ),
        {"coverage": (BY_MODEL.coverage(), BLUE), "wasted": (BY_MODEL.waste(), ORANGE)},
        **RATIO,
        no_value=NOTHING,
        listed=True,
        rows=9,
    ),
    lines(
        "Speedup, estimated and measured",
        (
            "Estimated: of drafts, by the cost profile. Measured: of all output. "
            "Band: interval."
        ),
        {
            "estimated": (
                harmonic(
                    f"sum without (basis) ({windowed('estimated_speedup')})",
                    GENERATED,
                    MODEL,
                ),
                ORANGE,
            ),
            "measured": (
                harmonic(windowed("measured_speedup"), GENERATED, MODEL),
                BLUE,
            ),
        },
        others=[
            *(
                over_time(
                    total(metric("speedup_interval", bound=bound), MODEL, shown), word
                )
                for word, bound, shown in (
                    ("at most", "high", "max"),
                    ("at least", "low", "min"),
                )
            ),
            over_time(
                agreed("harmful_speedup"), f"{LIMIT}harmful below {MODEL_LEGEND}"
            ),
        ],
        **TIMES,
        overrides=[*band("at most", "at least"), threshold_lines(VERMILION)],
        no_value=NOTHING,
        listed=True,
        rows=9,
    ),
    joined_table(
        "Deployment",
        "Profile unknown: set --spec.config. Several versions: finish the rollout.",
        {
            **LABELS,
            "method": "Method",
            "draft_model": "Draft model",
            "cost_profile": "Cost profile",
            "dialect": "Dialect",
            "upstream_version": "vLLM",
        },
        [
            Column(
                "Engines",
                f"count by ({DEPLOYMENT}) ({metric('info')})",
                decimals=0,
                width=80,
            ),
        ],
        overrides=[
            named("Method", custom__width=120),
            named("Dialect", custom__width=100),
            named("vLLM", custom__width=90),
            named("Draft model", custom__cellOptions=WRAPPED),
        ],
        no_value=NOTHING,
        rows=5,
    ),
]
