"""Codes for verdicts, advice, quality and the basis of a speedup: numbers that Grafana maps to words and colours.

The exporter judges each engine; the rules record the same of a model with all its engines.
"""

from .palette import AMBER, BLUE, COAL, GREY, INDIGO, PALE_SKY, PLUM, VERMILION
from .promql import IDENTITY, MODEL, coded, in_words, metric, or_without_rules, recorded, total, windowed
from .variables import MODELS

#: Words and colours of a verdict. What needs attention comes first, so that tables can be sorted by the code.
VERDICTS = {
    0: ("✖ EXPORTER DOWN", INDIGO),
    1: ("✖ vLLM DOWN", INDIGO),
    2: ("▼ HARMFUL", VERMILION),
    3: ("▼ LIKELY HARMFUL", AMBER),
    4: ("BYPASSED", PLUM),
    5: ("? UNKNOWN", GREY),
    6: ("● MARGINAL", AMBER),
    7: ("▲ LIKELY BENEFICIAL", PALE_SKY),
    8: ("▲ BENEFICIAL", BLUE),
    9: ("NOT JUDGED", GREY),
    10: ("WARMING UP", PALE_SKY),
    11: ("IDLE", GREY),
    12: ("OFF", COAL),
    13: ("NO EXPORTER", GREY),
}

#: The weakest basis of several engines is the lowest.
BASES = {1: ("modelled", GREY), 2: ("observed", GREY), 3: ("calibrated", GREY), 4: ("measured", GREY)}
ACTIONS = {
    1: ("disable", VERMILION),
    2: ("switch method", PLUM),
    3: ("lower K", AMBER),
    4: ("raise K", PALE_SKY),
    5: ("keep K", BLUE),
}
_ACTION_CODES = {
    "disable": 1,
    "switch_method": 2,
    "decrease_k": 3,
    "increase_k": 4,
    "keep": 5,
}
#: K of a model whose engines differ.
MIXED = -1
#: The code of each model.
STATE = "state:code"


def without_rules(by: str) -> str:
    """Return the worst verdict of the exporter on the engines of each row, where no rules are loaded."""
    payoffs = coded("payoff", "verdict", {"harmful": 2, "marginal": 6, "beneficial": 8})
    return f"(min by ({by}) ({payoffs})\nor max by ({by}) (9 + 0 * {metric('info')}))"


def of_engines() -> str:
    """Return the verdict on each engine whose server answers."""
    return f"engine:vllm_specdec_{STATE}{{{MODELS}}} + 0\nor on () {without_rules(IDENTITY)}"


def of_models() -> str:
    """Return the verdict on each model; one that was seen within an hour and whose server is down is down."""
    return or_without_rules(STATE, without_rules(MODEL))


def harm(select: str = MODELS) -> str:
    """Return a number by which models come in ascending order, the worst first: by code, then by speedup."""
    code, fast = (f"model:vllm_specdec_{name}{{{select}}}" for name in (STATE, "speedup:ratio_rate5m"))
    return f"({code} + 0.01 * clamp_max({fast}, 50) or {code} + 0)"


def since() -> str:
    """Return for how many seconds the verdict on each model has stood: to a minute within a day, then to ten."""
    state = recorded(STATE)
    another = f"timestamp({state} != {state} @ end())"
    changed = " or ".join(
        f"max by ({MODEL}) (max_over_time({another}[{steps}]))" for steps in ("1d:1m", "14d:10m")
    )
    return f"time() - ({changed} or min by ({MODEL}) (min_over_time(timestamp({state})[14d:10m])))"


def basis(by: str) -> str:
    """Return the code of the weakest basis of a speedup, known or not: of the estimate where none is measured."""
    codes = {name: code for code, (name, _) in BASES.items()}
    estimates = (
        f"{code} * ({windowed('estimated_speedup', basis=name)} > bool 0)" for name, code in codes.items()
    )
    measured = f"{codes['measured']} * ({metric('speedup', basis='measured')} > bool 0)"
    of_each = f"max by ({IDENTITY}) ({' or '.join(estimates)} or {measured})"
    return total(of_each, by, "min") if by != IDENTITY else of_each


def interval(by: str) -> str:
    """Return 1 for each row, with a label `interval`: the ends of the interval of the speedup, in words."""
    ends = (
        f"round({total(metric('speedup_interval', bound=bound), by, found)}, 0.01)"
        for bound, found in (("low", "min"), ("high", "max"))
    )
    return in_words(by, "interval", " to ", *ends)


def advice(by: str) -> str:
    """Return the code of the advice that changes most."""
    return total(coded("recommendation", "action", _ACTION_CODES), by, "min")


def k_of(series: str, by: str) -> str:
    """Return a K, or `MIXED` where engines differ."""
    low, high = (total(metric(series), by, operator) for operator in ("min", "max"))
    return f"{low} == {high} or {MIXED} + 0 * {high}"
