"""The verdict: one number for what speculation does to whatever is chosen, and the words for it.

The exporter judges each engine. For several engines the same is asked of all their tokens together, with
the thresholds in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .field import colored
from .palette import AMBER, BLUE, COAL, GREY, PALE_SKY, PLUM, STRAW, VERMILION
from .promql import MODEL, PLACE, exporters, gauge, speedup, threshold, threshold_of, total
from .variables import ENGINE, SERVER, TARGET

if TYPE_CHECKING:
    from .field import Json

#: What a code means: words and colour. What wants attention comes first, so that tables can be sorted by it.
VERDICTS = {
    0: ("✖ EXPORTER DOWN", STRAW),
    1: ("✖ vLLM DOWN", STRAW),
    2: ("▼ HARMFUL", VERMILION),
    3: ("BYPASSED", PLUM),
    4: ("● MARGINAL", AMBER),
    5: ("▲ BENEFICIAL", BLUE),
    6: ("NOT JUDGED", GREY),
    7: ("WARMING UP", PALE_SKY),
    8: ("IDLE", GREY),
    9: ("OFF", COAL),
}
#: Words for the states of the exporter's one-hot gauges, and their colours.
ACTIVITY = {
    "active": ("active", BLUE),
    "warming_up": ("warming up", PALE_SKY),
    "bypassed": ("bypassed", PLUM),
    "idle": ("idle", GREY),
    "off": ("off", COAL),
}
QUALITY = {
    "optimal": ("▲ optimal", BLUE),
    "healthy": ("▲ healthy", PALE_SKY),
    "fair": ("● fair", AMBER),
    "poor": ("▼ poor", VERMILION),
}
ACTIONS = {
    "keep": ("keep K", BLUE),
    "increase_k": ("raise K", PALE_SKY),
    "decrease_k": ("lower K", AMBER),
    "switch_method": ("switch method", PLUM),
    "disable": ("disable", VERMILION),
    "insufficient_data": ("no advice yet", GREY),
}

States = Mapping[str, tuple[str, str]]


def words_of(states: States) -> dict[str, str]:
    """Return the word of each state."""
    return {state: word for state, (word, _) in states.items()}


def colors_of(states: States) -> list[Json]:
    """Return overrides that give the words their colours."""
    return colored(dict(states.values()))


def of_speculation(by: str = "", select: str = ENGINE) -> str:
    """Return the code by what engines do, where they answer; those that draft decide."""
    fast = speedup(by, select)
    harmful, beneficial = (
        f"on ({by}) {threshold_of(name, by)}" if by else f"on () {threshold(name)}"
        for name in ("harmful_speedup", "beneficial_speedup")
    )
    judged = f"2 + 2 * (({fast}) >= bool {harmful})\n  + (({fast}) > bool {beneficial})"
    states = " or ".join(
        f"{code} * ({gauge('activity', select, state=state)} == 1)"
        for state, code in (("bypassed", 3), ("active", 6), ("warming_up", 7), ("idle", 8), ("off", 9))
    )
    # vLLM V0 does not show what it does: all states are 0.
    known = f"6 * {total(gauge('info', select), by, 'max')}"
    return f"({judged})\nor {total(states, by, 'min')}\nor {known}"


def of_all() -> str:
    """Return the code of all that is chosen, which may be that nothing answers."""
    return f"{of_speculation()}\nor 1 + (max({gauge('up', SERVER)}) == 0)\nor (max{exporters()} == 0)"


def of_models(look_back: str = "1h") -> str:
    """Return the code of each model; one that was seen within `look_back` and whose server is down is down.

    A model that its server no longer serves is gone, not down.
    """
    seen = f"0 * last_over_time({gauge('info')}[{look_back}])"
    server = f"1 + {seen} and on ({PLACE}, target) ({gauge('up', SERVER)} == 0)"
    exporter = f"{seen} and on ({PLACE}) (max by ({PLACE}) (up{{{TARGET}}}) == 0)"
    return f"{of_speculation(MODEL)}\nor {total(f'{server} or {exporter}', MODEL, 'max')}"
