"""Comparison of servers: speculation on or off, two methods, two K.

Each side is the snapshot of one server over a period: from `check --json`, from a running exporter, or from
`watch`. `compare` compares any number of sides with the first::

    from vllm_specdec_exporter.commands import compare

    plain, drafting = (compare.side_of(snapshot, name) for name, snapshot in snapshots.items())
    comparison = compare.compare([plain, drafting], claim=1.5)
    print(comparison.pairs[0].speed.text)

* `sources`: servers and files. `side`, `pooling`: one server over its period, with its engines combined.
* `verdict`: were they equally loaded? Faster, slower, no difference or unknown; the gain of speculation.
* `comparison`: the whole. `rows`, `report`: as a table, as text and as an HTML report.
"""

from .comparison import FORMAT, Comparison, Pair, compare
from .report import render
from .side import Side, SideError, side_of
from .sources import watch
from .verdict import ClaimOutcome, SpeedComparison, compare_load, judge_claim, judge_gain, judge_speed

__all__ = [
    "FORMAT",
    "ClaimOutcome",
    "Comparison",
    "Pair",
    "Side",
    "SideError",
    "SpeedComparison",
    "compare",
    "compare_load",
    "judge_claim",
    "judge_gain",
    "judge_speed",
    "render",
    "side_of",
    "watch",
]
