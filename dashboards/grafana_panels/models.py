"""The table of models: the verdict with its interval and basis, what to do, and why it
has changed.
"""

from itertools import product
from typing import Any

from . import links, verdict
from .field import HOURS, Json, named, pattern, word_mapping
from .palette import GREY
from .panel import Table
from .promql import MODEL, in_words, metric, or_without_rules, recorded, speedup, total
from .table import WRAPPED, Column, filled, joined_table
from .variables import LABELS, MODELS

_SPEEDUP = "speedup:ratio_rate5m"
FAST = or_without_rules(_SPEEDUP, speedup(MODEL))


_CHANGE = "speedup_change:cause"


def why() -> str:
    """Return 1 for each model whose speedup changed, with a label: what the load (or
    another K) took, what drafts took, the whole change, and the word for the first.
    """
    drafts = recorded(_CHANGE, cause="drafts")
    load = f'{recorded(_CHANGE)[:-1]},cause!="drafts"}}'
    change = f"sum by ({MODEL}) ({recorded(_CHANGE)})"
    parts = (f"round({part}, 0.01)" for part in (load, drafts, change))
    return in_words(MODEL, "why", *parts, and_label="cause")


def no_reason(states: str) -> str:
    """Return 1 for each other model, with a label: that its speedup has not changed,
    or that nothing is known.
    """
    level = f"0 * {recorded('before:median', of='speedup')}"
    codes = (
        f"sum without (of) ({level}) and on ({MODEL}) {recorded(_SPEEDUP)}\n"
        f"or on ({MODEL}) (1 + 0 * ({states}))"
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
            rf"{load}([\d.]+) {drafts}([\d.]+) {change}([\d.]+) {cause}",
            f"by {signs[change]}$3: drafts {signs[drafts]}$2, {blamed} {signs[load]}$1",
        )
        for cause, blamed in {"load": "load", "load_or_K": "K or load"}.items()
        for load, drafts, change in product(signs, repeat=3)
    ]
    mappings += [
        pattern(
            rf"\S+ \S+ (\S+) {measured}",
            f"{measured}, measured; estimated $1",
        )
        for measured in ("faster", "slower")
    ]
    words = {"0": {"text": "no change"}, "1": {"text": "-"}}
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
    why_width: int = 150,
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
    }
    return joined_table(
        title,
        description,
        {**LABELS, "verdict": "Verdict", "todo": "Do", "why": "Why"},
        [
            *(Column(name, query) for name, query in queries.items()),
            Column("Speedup, 5 m", FAST, unit="suffix:×", decimals=2, width=106),
            Column(
                "Since",
                verdict.since(),
                unit="s",
                decimals=1,
                width=110,
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
            Column("Engine-h won", won(MODEL), **HOURS, width=112),
        ],
        hidden=links.CHOSEN,
        overrides=[
            named("Verdict", custom__width=291, **filled(verdict.verdict_mappings())),
            named(
                "Do",
                custom__width=174,
                custom__cellOptions=WRAPPED,
                mappings=verdict.todo_mappings(),
            ),
            named(
                "Why",
                custom__width=why_width,
                custom__cellOptions=WRAPPED,
                mappings=why_mappings(),
            ),
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
