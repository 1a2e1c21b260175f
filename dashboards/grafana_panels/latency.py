"""Panels of latency and load: what users feel, and whether load or drafts are the
cause.
"""

from .field import (
    LENGTH,
    LIMIT,
    NOTHING,
    RATIO,
    colored,
    fixed,
    matching,
    named,
    threshold_lines,
)
from .palette import BLUE, GREY, ORANGE, PERCENTILES, SKY, VERMILION
from .panel import Panel, PromTarget, TimeSeries, lines, over_time
from .promql import (
    MODEL,
    MODEL_LEGEND,
    Flow,
    agreed,
    metric,
    or_without_rules,
    recorded,
    renamed,
    speedup,
    total,
)
from .promql import growth as of_any
from .table import WRAPPED, Column, joined_table
from .variables import LABELS
from .vllm import UNSEEN, growth, mean, quantile

_SGLANG = "«sglang»request_time_per_output_token_seconds"
RUNNING = metric("requests_running")
UNREPORTED = "no exporter, or not reported"
_RIGHT = {
    "custom__axisPlacement": "right",
    "custom__fillOpacity": 15,
    "custom__lineWidth": 1,
}


def percentiles(
    title: str, name: str, description: str, middle: str = ""
) -> TimeSeries:
    """Return a panel with three percentiles of a latency, and its mean."""
    return TimeSeries(
        title=title,
        description=description,
        targets=[
            *(
                over_time(quantile(name, int(word[1:]) / 100), word)
                for word in PERCENTILES
            ),
            over_time(middle or mean(name), "mean"),
        ],
        unit="s",
        least=0,
        overrides=colored({**PERCENTILES, "mean": GREY}),
        no_value=UNSEEN,
        width=8,
    )


#: Thin lines in place of a speedup that is not known.
UNKNOWN = matching("^speedup unknown, ", custom__lineWidth=1)


def unknown(whose: str = "") -> list[PromTarget]:
    """Return the ends of the interval of a speedup, where that is unknown: a line that
    stops says nothing.
    """
    unless_judged = f"unless on ({MODEL}) {metric('speedup')}"
    return [
        over_time(
            total(metric("speedup_interval", bound=bound), MODEL, end)
            + f" {unless_judged}",
            f"speedup unknown, {word} {whose}",
        )
        for word, bound, end in (
            ("at most", "high", "max"),
            ("at least", "low", "min"),
        )
    ]


load_or_drafts = lines(
    "Load or drafts?",
    (
        "Speedup falls with length: drafts. It falls while requests (right axis) "
        "rise: load."
    ),
    {
        "acceptance length": (Flow(MODEL).length(), BLUE),
        "speedup, 5 min": (
            or_without_rules("speedup:ratio_rate5m", speedup(MODEL)),
            ORANGE,
        ),
    },
    others=[
        *unknown(),
        over_time(total(RUNNING, MODEL), "running requests, all engines"),
    ],
    **LENGTH,
    overrides=[
        UNKNOWN,
        matching("^speedup unknown, ", color=fixed(ORANGE)),
        named(
            "running requests, all engines",
            decimals=0,
            min=0,
            color=fixed(GREY),
            **_RIGHT,
        ),
    ],
    no_value=NOTHING,
    width=8,
    rows=9,
)


def _of(words: dict[str, str]) -> str:
    """Return expressions as one, by the label `of`."""
    return "\nor ".join(
        f'label_replace({expr} + 0, "of", "{word}", "", "")'
        for word, expr in words.items()
    )


_CHANGE = recorded("speedup_change:cause")
#: With another K, what the length leaves is of K and of the load, and is given to
#: neither; it may contradict what was measured.
_CAUSES = {
    "drafts": "length",
    "load": "load",
    "load_or_K": "K or load, not told apart",
    "faster": "K or load, est. only: measured, tokens came faster",
    "slower": "K or load, est. only: measured, tokens came slower",
}


def _taken() -> str:
    """Return what each cause took of the change, and the change."""
    causes = renamed(_CHANGE, "cause", _CAUSES, "of")
    change = f'label_replace(sum by ({MODEL}) ({_CHANGE}), "of", "speedup", "", "")'
    return f"sum by ({MODEL}, of) ({causes})\nor {change}"


what_changed = joined_table(
    "What changed, and what it took",
    "Before: the day before, or while it last paid. Load: requests per engine.",
    {**LABELS, "of": "What"},
    [
        Column("Before", f"{recorded('before:median')} + 0", decimals=2, width=70),
        Column(
            "Now",
            _of(
                {
                    "speedup": recorded("speedup:ratio_rate5m"),
                    "length": recorded("mean_acceptance_length:ratio_rate5m"),
                    "load": recorded("requests_running:avg5m"),
                    "K": recorded("num_speculative_tokens:max"),
                }
            ),
            decimals=2,
            width=70,
        ),
        Column(
            "Took, est.",
            _taken(),
            unit="suffix:×",
            decimals=2,
            width=85,
        ),
    ],
    overrides=[
        named("What", custom__cellOptions=WRAPPED),
        *(named(LABELS[label], custom__hidden=True) for label in LABELS),
    ],
    no_value="no rules, or no history yet",
    width=8,
    rows=9,
)

why: list[Panel] = [load_or_drafts, what_changed]

_TOKENS = "request_generation_tokens"
#: Over the tokens of requests that finished, as a closed stream has tokens and no time,
#: and but the first, whose time is none of it; of SGLang, which does not count that
#: time, over the requests.
_MEAN_TIME_PER_OUTPUT_TOKEN = (
    f"{growth('request_decode_time_seconds_sum')} "
    f"/ ({growth(f'{_TOKENS}_sum')} - {growth(f'{_TOKENS}_count')} > 0)\n"
    f"or {of_any(f'{_SGLANG}_sum')} / ({of_any(f'{_SGLANG}_count')} > 0)"
)


latency: list[Panel] = [
    percentiles(
        "Time per output token",
        "request_time_per_output_token_seconds",
        (
            "Speculation reduces it. Below 10 ms, the first bucket, only the mean is "
            "drawn."
        ),
        _MEAN_TIME_PER_OUTPUT_TOKEN,
    ),
    percentiles(
        "Time to first token",
        "time_to_first_token_seconds",
        (
            "Speculation does not reduce it; a draft model's prefill and a full queue "
            "increase it."
        ),
    ),
    percentiles(
        "End-to-end latency",
        "e2e_request_latency_seconds",
        "Depends on the length of answers. Percentiles below 0.3 s are not drawn.",
    ),
]

load: list[Panel] = [
    percentiles(
        "Time in the queue",
        "request_queue_time_seconds",
        "Part of time to first token. Below 0.3 s, only the mean is drawn.",
    ),
    lines(
        "KV cache use",
        (
            "Fullest engine and mean; dashed: squeezed. Above it with preemptions: "
            "free the draft model's memory."
        ),
        {
            "fullest": (total(metric("kv_cache_usage_ratio"), operator="max"), BLUE),
            "mean": (total(metric("kv_cache_usage_ratio"), operator="avg"), SKY),
        },
        others=[
            over_time(
                agreed("squeezed_kv_cache_usage_ratio"),
                f"{LIMIT}squeezed {MODEL_LEGEND}",
            )
        ],
        **RATIO,
        overrides=[threshold_lines(VERMILION)],
        no_value=UNREPORTED,
        width=5,
    ),
    lines(
        "Failed requests",
        "Share that ended in an error. Rose with a change of K: revert it.",
        {
            "failed": (
                (
                    f"{growth('request_success_total', finished_reason='error')} "
                    f"/ ({growth('request_success_total')} > 0)"
                ),
                ORANGE,
            ),
        },
        others=[
            over_time(
                agreed("failed_request_ratio"), f"{LIMIT}page above {MODEL_LEGEND}"
            )
        ],
        unit="percentunit",
        decimals=1,
        least=0,
        soft_most=0.1,
        overrides=[threshold_lines(VERMILION)],
        no_value=UNSEEN,
        width=5,
    ),
]
