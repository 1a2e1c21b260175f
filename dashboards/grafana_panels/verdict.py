"""Codes for verdicts, advice, quality and the basis of a speedup: numbers that Grafana maps to words and colours.

The exporter judges each engine; the rules record the same of a model with all its engines.
"""

from vllm_specdec_exporter.publish.wording import CHECK, OFF_OR_MEASURE, WORTH

from .field import Json, pattern, word_mapping
from .palette import AMBER, BLUE, COAL, GREY, INDIGO, PALE_SKY, PLUM, VERMILION
from .promql import IDENTITY, MODEL, metric, or_without_rules, recorded, total
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

#: Codes with an interval.
JUDGED = (2, 3, 5, 6, 7, 8)
#: What a basis is worth, by its place in the digits of a verdict, the weakest first.
BASES = {place: (word, GREY) for place, word in enumerate(WORTH.values(), 1)}
#: What to do where no other K is advised, by the code of the state.
TODO = {
    0: "see exporter's log",
    1: "see vLLM's log",
    2: "switch off",
    3: OFF_OR_MEASURE,
    4: CHECK,
    5: "measure",
    7: "measure",
    13: "run an exporter",
    20: "keep K",
    **dict.fromkeys((6, *range(8, 13)), "-"),
}
#: Words for the least time that a verdict has stood, in hours.
AT_LEAST = {0: "under 1 h", 1: "over 1 h", 3: "over 3 h", 12: "over 12 h", 24: "over 1 d", 168: "over 7 d"}
#: K of a model whose engines differ.
MIXED = -1
#: The code of each model, and digits that stand for words: see `alert_rules.boards`.
STATE = "state:code"
DIGITS = "state:digits"


def without_rules(by: str) -> str:
    """Return the worst verdict of the exporter on the engines of each row, where no rules are loaded."""
    codes = {"harmful": 2, "marginal": 6, "beneficial": 8}
    payoffs = " or ".join(f"{n} * ({metric('payoff', verdict=word)} == 1)" for word, n in codes.items())
    return f"(min by ({by}) ({payoffs})\nor max by ({by}) (9 + 0 * {metric('info')}))"


def of_engines() -> str:
    """Return the verdict on each engine whose server answers."""
    return f"engine:vllm_specdec_{STATE}{{{MODELS}}} + 0\nor on () {without_rules(IDENTITY)}"


def of_models() -> str:
    """Return the verdict on each model; one that was seen within an hour and whose server is down is down."""
    return or_without_rules(STATE, without_rules(MODEL))


def harm(select: str = MODELS) -> str:
    """Return a number by which models come in ascending order, the worst first: code, then the interval's low end."""
    digits = f'model:vllm_specdec_{DIGITS}{{of="verdict",{select}}}'
    return f"sum without (of) ({digits} / 1e7 > 1 or {digits} + 0)"


def in_digits(of: str, otherwise: str = "") -> str:
    """Return 1 for each model, with a label that has such digits, or without rules those of an expression."""
    known = recorded(DIGITS, of=of) + (f" or on () {otherwise}" if otherwise else "")
    return f'count_values by ({MODEL}) ("{of}", {known})'


def verdict_mappings() -> list[Json]:
    """Return the mappings of a verdict's digits: its words, the interval, and what its basis is worth."""
    ends = r"(\d)(\d\d)(\d)(\d\d)"
    return word_mapping(VERDICTS) + [
        pattern(f"{code}{ends}{basis}", f"{VERDICTS[code][0]} $1.$2–$3.$4, {worth}", VERDICTS[code][1])
        for code in JUDGED
        for basis, (worth, _) in BASES.items()
    ]


def todo_mappings() -> list[Json]:
    """Return the mappings of the digits of what to do."""
    gain = r"(?:00(\d)|0(\d\d)|(\d{3}))"
    return [
        {"type": "value", "options": {str(code): {"text": words} for code, words in TODO.items()}},
        pattern(rf"1\d\d00{gain}", "switch off (+$1$2$3 %)"),
        pattern(rf"10?(\d+?)(?=\d{{5}}$)0?(\d+?)(?=\d{{3}}$){gain}", "K $1 to $2 (+$3$4$5 %)"),
    ]


def since() -> str:
    """Return for how many seconds the verdict on each model has stood, to a minute within a day, then to ten.

    It is below 0 where the verdict is that of all samples of 14 days, and their time is negative.
    """
    state = recorded(STATE)
    another = f"timestamp({state} != {state} @ end())"
    changed = " or ".join(
        f"max by ({MODEL}) (max_over_time({another}[{steps}]))" for steps in ("1d:1m", "14d:10m")
    )
    return f"time() - ({changed}) or min by ({MODEL}) (min_over_time(timestamp({state})[14d:10m])) - time()"


def since_mappings() -> list[Json]:
    """Return the mappings of times below 0: at least so long."""
    return [
        {"type": "range", "options": {"from": -3600 * most, "to": -3600 * least, "result": {"text": word}}}
        for (least, word), most in zip(AT_LEAST.items(), (*AT_LEAST, 9999)[1:], strict=True)
    ]


def k_of(series: str, by: str) -> str:
    """Return a K, or `MIXED` where engines differ."""
    low, high = (total(metric(series), by, operator) for operator in ("min", "max"))
    return f"{low} == {high} or {MIXED} + 0 * {high}"
