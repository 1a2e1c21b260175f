"""The table of models: the verdict with its interval and basis, what to do, and why it
has changed.
"""

from typing import Any

from . import links, verdict
from .field import named
from .panel import Table
from .promql import MODEL, metric, or_without_rules, recorded, speedup
from .table import Column, filled, joined_table
from .variables import LABELS

FAST = or_without_rules("speedup:ratio_rate5m", speedup(MODEL))


def why() -> str:
    """Return the change of the speedup against before, with a label that has it and its
    main cause.
    """
    change = recorded("speedup_change:cause")
    summed = f"sum by ({MODEL}) ({change})"
    cause = (
        f"topk by ({MODEL}) (1, {change} * on ({MODEL}) group_left () sgn({summed}))"
    )
    # The label must come last in the alphabet: Prometheus 2.42 loses those behind it.
    size = f'count_values by ({MODEL}) ("why", round({summed}, 0.01))'
    both = (
        f'label_join({cause} ^ 0 * on ({MODEL}) group_left (why) {size}, "why", " ", '
        '"why", "cause")'
    )
    return f"sum by ({MODEL}, why) ({both})"


def models_table(
    title: str,
    description: str,
    no_value: str,
    *more: Column,
    states: str,
    **options: Any,
) -> Table:
    """Return the table of models with these states, the worst first, with further
    columns.
    """
    queries = {
        "Judged": verdict.judged(),
        "Not judged": verdict.not_judged(states),
        "Another K": verdict.another_k(),
        "No other K": verdict.no_other_k(),
        "Change": why(),
    }
    return joined_table(
        title,
        description,
        {**LABELS, "verdict": "Verdict", "todo": "Do", "why": "Why"},
        [
            *(Column(name, query) for name, query in queries.items()),
            Column("Speedup", FAST, unit="suffix:×", decimals=2, width=68),
            Column(
                "Since",
                verdict.since(),
                unit="s",
                decimals=1,
                width=76,
                mappings=verdict.since_mappings(),
            ),
            *more,
        ],
        hidden=links.CHOSEN,
        overrides=[
            named("Verdict", custom__width=330, **filled(verdict.verdict_mappings())),
            named("Do", custom__width=164, mappings=verdict.todo_mappings()),
            named("Why", custom__width=116),
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
