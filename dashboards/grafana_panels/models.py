"""The table of models: the verdict with its interval and basis, what to do, and why it
has changed.
"""

from itertools import product
from typing import Any

from . import links, verdict
from .field import HOURS, Json, named, pattern, word_mapping
from .palette import GREY
from .panel import Table
from .promql import (
    MODEL,
    in_words,
    metric,
    or_without_rules,
    recorded,
    speedup,
    total,
)
from .table import WRAPPED, Column, filled, joined_table
from .variables import LABELS, MODELS

_SPEEDUP = "speedup:ratio_rate5m"
FAST = or_without_rules(_SPEEDUP, speedup(MODEL))


_CHANGE = "speedup_change:cause"
#: Codes of models whose speedup has no reason for a change.
_NO_CHANGE = 0
_INCLUDES_ONE = 1
_NOTHING_KNOWN = 2
_OF_ANOTHER = {"load": "load", "load_or_K": "K or load"}


def rests_on() -> str:
    """Return 1 for each model that drafts, with a label: its drafts in the five minutes
    that its verdict is of, and the percentage of its tokens that came out of them.
    """
    drafts, accepted, tokens = (
        recorded(f"{name}:rate5m")
        for name in ("drafts", "accepted_tokens", "generation_tokens")
    )
    share = f"clamp_max(({drafts} + {accepted}) / ({tokens} > 0), 1)"
    numbers = (f"round(300 * {drafts} > 0)", f"round(100 * {share})")
    return in_words(MODEL, "rests", *numbers)


def rests_on_mappings() -> list[Json]:
    """Return the mappings of these labels to words, drafts in thousands or millions."""
    return [
        pattern(r"(\d+)(\d)\d{5} (\d+)", "$1.$2M, $3 %"),
        pattern(r"(\d+)\d{3} (\d+)", "$1k, $2 %"),
        pattern(r"(\d+) (\d+)", "$1, $2 %"),
    ]


def why() -> str:
    """Return 1 for each model whose speedup changed, with a label: the speedup before
    and now, what drafts took, what the load (or another K) took, and the word for that.
    """
    load = f'{recorded(_CHANGE)[:-1]},cause!="drafts"}}'
    drafts = f'{verdict.every(_CHANGE)}{{cause="drafts"}}'
    before = f'{verdict.every("before:median")}{{of="speedup"}}'
    speedups = (load, drafts, before, verdict.every(_SPEEDUP))
    parts = (f"round({part}, 0.01)" for part in speedups)
    return in_words(MODEL, "why", *parts, and_label="cause")


def no_reason(states: str) -> str:
    """Return 1 for each other model, with a label: that its speedup has not changed,
    that its interval includes 1, or that nothing is known.
    """
    level = f"{_NO_CHANGE} * {recorded('before:median', of='speedup')}"
    codes = (
        f"sum without (of) ({level}) and on ({MODEL}) {verdict.every(_SPEEDUP)}\n"
        # Less 1 where the verdict is UNKNOWN.
        f"or on ({MODEL}) ({_NOTHING_KNOWN} - (({states}) == bool {verdict.UNKNOWN}))"
    )
    return (
        f'count_values by ({MODEL}) ("why", {codes}) unless on ({MODEL}) '
        f"{recorded(_CHANGE)}"
    )


def why_mappings() -> list[Json]:
    """Return the mappings of these labels to words, each number with its sign."""
    signs = {"-": "-", "": "+"}
    mappings = [
        pattern(
            rf"{load}([\d.]+) {drafts}([\d.]+) (\S+) (\S+) {cause}",
            f"$3 to $4 ×: drafts {signs[drafts]}$2, {blamed} {signs[load]}$1",
        )
        for cause, blamed in _OF_ANOTHER.items()
        for load, drafts in product(signs, repeat=2)
    ]
    mappings += [
        pattern(
            rf"\S+ \S+ (\S+) (\S+) {measured}",
            f"est. $1 to $2, but tokens came {measured}, which counts",
        )
        for measured in ("faster", "slower")
    ]
    words = {
        str(_NO_CHANGE): {"text": "no change"},
        str(_INCLUDES_ONE): {"text": "interval includes 1"},
        str(_NOTHING_KNOWN): {"text": "-"},
    }
    return [*mappings, {"type": "value", "options": words}]


def won(by: str = "", bound: str = "") -> str:
    """Return the hours of engines that speculation has saved in a day, or an end of the
    interval of that.

    An engine without requests saves none.
    """
    select = f'{MODELS},bound="{bound}"'
    return total(
        f"sum_over_time(model:vllm_specdec_saved_engines:sum{{{select}}}[1d:5m]) / 12",
        by,
    )


def models_table(
    title: str,
    description: str,
    no_value: str,
    *more: Column,
    states: str,
    why_width: int = 136,
    **options: Any,
) -> Table:
    """Return the table of models with these states, the worst first, with further
    columns.

    Args:
        title: of the panel.
        description: of the panel.
        no_value: what stands where there is no model.
        more: further columns.
        states: the code of each model.
        why_width: of the column with the reason, in pixels: Grafana cuts its second
            line off where nothing else needs one.
        options: whatever else a table takes.
    """
    queries = {
        "Judged": verdict.judged(),
        "Not judged": verdict.not_judged(states),
        "Another K": verdict.another_k(),
        "No other K": verdict.no_other_k(),
        "Change": why(),
        "No change": no_reason(states),
        "Sample": rests_on(),
    }
    return joined_table(
        title,
        description,
        {
            **LABELS,
            "verdict": "Verdict",
            "todo": "Do",
            "why": "Why",
            "rests": "Rests on",
        },
        [
            *(Column(name, query) for name, query in queries.items()),
            Column("Speedup, 5 m", FAST, unit="suffix:×", decimals=2, width=104),
            Column(
                "Since",
                verdict.since(),
                unit="s",
                decimals=1,
                width=104,
                mappings=verdict.since_mappings(),
            ),
            *more,
            Column(
                "K",
                verdict.k_of("num_speculative_tokens", MODEL),
                unit="short",
                decimals=0,
                width=50,
                mappings=word_mapping({verdict.MIXED: ("mixed", GREY)}),
            ),
            Column("Won, 24 h", won(MODEL), **HOURS, width=84),
        ],
        hidden=links.CHOSEN,
        overrides=[
            named("Verdict", custom__width=291, **filled(verdict.verdict_mappings())),
            named(
                "Do",
                custom__width=168,
                custom__cellOptions=WRAPPED,
                mappings=verdict.todo_mappings(),
            ),
            named(
                "Why",
                custom__width=why_width,
                custom__cellOptions=WRAPPED,
                mappings=why_mappings(),
            ),
            # Grafana's own least width would push the last column out.
            named("Model", custom__minWidth=85),
            named("Rests on", custom__width=90, mappings=rests_on_mappings()),
            *(named(name, custom__hidden=True) for name in queries),
            *(
                named(name, links=[links.to_model("Deep dive")])
                for name in ("Model", "Do", "Why")
            ),
        ],
        no_value=no_value,
        ranked=links.named_or_any(
            f"({verdict.harm()}\nor on () max by ({MODEL}) ({metric('info')}))"
        ),
        **options,
    )
