"""Codes for verdicts, advice, quality and the basis of a speedup: numbers that Grafana maps to words and colours.

The exporter judges each engine. For a model with several engines the same is computed from all their tokens, with
the thresholds in force.
"""

from __future__ import annotations

from vllm_specdec_exporter.judgement.payoff import LEAN

from .palette import AMBER, BLUE, COAL, GREY, INDIGO, PALE_SKY, PLUM, STRAW, VERMILION
from .promql import IDENTITY, MODEL, PLACE, SEEN, coded, metric, or_own_series, speedup, threshold, total
from .variables import MODELS, TARGETS

#: Words and colours of a verdict. What needs attention comes first, so that tables can be sorted by the code.
VERDICTS = {
    0: ("✖ EXPORTER DOWN", STRAW),
    1: ("✖ vLLM DOWN", INDIGO),
    2: ("▼ HARMFUL", VERMILION),
    3: ("▼ LIKELY HARMFUL", AMBER),
    4: ("BYPASSED", PLUM),
    5: ("● MARGINAL", AMBER),
    6: ("▲ LIKELY BENEFICIAL", PALE_SKY),
    7: ("▲ BENEFICIAL", BLUE),
    8: ("NOT JUDGED", GREY),
    9: ("WARMING UP", PALE_SKY),
    10: ("IDLE", GREY),
    11: ("OFF", COAL),
    12: ("NO EXPORTER", GREY),
}
_STATES = {"bypassed": 4, "active": 8, "warming_up": 9, "idle": 10, "off": 11}

#: The weakest basis of several engines is the lowest.
BASES = {1: ("modelled", GREY), 2: ("observed", GREY), 3: ("calibrated", GREY), 4: ("measured", GREY)}
QUALITIES = {
    1: ("▼ poor", VERMILION),
    2: ("● fair", AMBER),
    3: ("▲ healthy", PALE_SKY),
    4: ("▲ optimal", BLUE),
}
ACTIONS = {
    1: ("disable", VERMILION),
    2: ("switch method", PLUM),
    3: ("lower K", AMBER),
    4: ("raise K", PALE_SKY),
    5: ("keep K", BLUE),
    6: ("no advice yet", GREY),
}
_ACTION_CODES = {
    "disable": 1,
    "switch_method": 2,
    "decrease_k": 3,
    "increase_k": 4,
    "keep": 5,
    "insufficient_data": 6,
}
#: K of a model whose engines differ.
MIXED = -1
#: Selects the states of engines that have no verdict.
_INACTIVE = f'{MODELS},state!="active"'


def of_engines(by: str) -> str:
    """Return the verdict on engines whose server answers, by labels that include those of a model."""
    fast = speedup(by)
    harmful, beneficial = (
        f"on ({MODEL}) group_left () {threshold(name)}" for name in ("harmful_speedup", "beneficial_speedup")
    )
    judged = f"2 + 3 * (round({fast}, 0.01) >= bool {harmful})\n  + 2 * (({fast}) > bool {beneficial})"
    loss = total(metric("loss_probability"), by, "max")
    # 3 where a loss is likely, 6 where a gain is, nothing between.
    likely = f"4.5 - 1.5 * sgn(round(({loss} - 0.5) / {2 * LEAN})) != 4.5"
    states = total(coded("activity", "state", _STATES), by, "min")
    # vLLM V0 does not show its activity: all states are 0.
    return f"({judged})\nor ({likely})\nor {states}\nor 8 * {total(metric('info'), by, 'max')}"


def of_models() -> str:
    """Return the verdict on each model; one that was seen within an hour and whose server is down is down.

    A model that its server no longer serves is gone, not down. One that only its server shows has no exporter.
    """
    seen = f"0 * {SEEN}"
    server = f"1 + {seen} and on ({PLACE}, target) ({metric('up', TARGETS)} == 0)"
    exporter = f"{seen} and on ({PLACE}) (max by ({PLACE}) (up{{{TARGETS}}}) == 0)"
    drafts = f"«vllm»spec_decode_num_drafts_total{{{MODELS}}} or sglang:spec_verify_calls_total{{{MODELS}}}"
    alone = f"12 + 0 * {total(drafts, MODEL)}"
    known = f"{of_engines(MODEL)}\nor {total(f'{server} or {exporter}', MODEL, 'max')}"
    return or_own_series(known, alone)


def since() -> str:
    """Return for how many seconds the verdict on each model has stood, as far as a day tells.

    Of a model without a verdict, how long its state has; of one that is down, how long ago it was seen.
    """
    verdict, state = (
        _stands(metric("payoff"), "verdict"),
        _stands(metric("activity", select=_INACTIVE), "state"),
    )
    seen = f"max by ({MODEL}) (max_over_time(timestamp({metric('info')})[1h:1m])) unless on ({MODEL}) {metric('info')}"
    return f"time() - ({verdict}\nor {state}\nor {seen})"


def _stands(states: str, label: str) -> str:
    """Return since when the state of each model's engines that is 1 has been so."""
    now, steps = f"({states} == 1)", "[1d:5m]"
    changed = f"max_over_time(timestamp({states} == 0){steps}) and on ({IDENTITY}, {label}) {now}"
    first = f"min_over_time(timestamp{now}{steps}) and on ({IDENTITY}, {label}) {now}"
    return (
        f"max by ({MODEL}) ({changed})\nor min by ({MODEL}) ({first})\nor min by ({MODEL}) (timestamp({now}))"
    )


def basis(by: str) -> str:
    """Return the code of the weakest basis of a speedup."""
    codes = {name: code for code, (name, _) in BASES.items()}
    parts = (f"{code} * ({metric('speedup', basis=name)} > bool 0)" for name, code in codes.items())
    return total(" or ".join(parts), by, "min")


def quality(by: str) -> str:
    """Return the code of the lowest quality."""
    codes = {word.split()[1]: code for code, (word, _) in QUALITIES.items()}
    return total(coded("quality", "level", codes), by, "min")


def advice(by: str) -> str:
    """Return the code of the advice that changes most."""
    return total(coded("recommendation", "action", _ACTION_CODES), by, "min")


def k_of(series: str, by: str) -> str:
    """Return a K, or `MIXED` where engines differ."""
    low, high = (total(metric(series), by, operator) for operator in ("min", "max"))
    return f"{low} == {high} or {MIXED} + 0 * {high}"
