"""Codes for verdicts, advice, quality and the basis of a speedup: numbers that Grafana maps to words and colours.

The exporter judges each engine; the rules record the same of a model with all its engines.
"""

from .field import Json, pattern, word_mapping
from .palette import AMBER, BLUE, COAL, GREY, INDIGO, PALE_SKY, PLUM, VERMILION
from .promql import IDENTITY, MODEL, coded, in_words, metric, or_without_rules, recorded, total
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
BASES = {1: ("guess", GREY), 2: ("step measured", GREY), 3: ("costs measured", GREY), 4: ("measured", GREY)}
#: What to do where no other K is advised, by the code of the state.
TODO = {
    0: "see exporter's log",
    1: "see vLLM's log",
    2: "switch off",
    3: "switch off, or measure",
    4: "check its flags",
    5: "measure",
    7: "measure",
    13: "run an exporter",
    20: "keep K",
    **dict.fromkeys((6, *range(8, 13)), "-"),
}
#: K of a model whose engines differ.
MIXED = -1
#: The code of each model, and digits that stand for words: see `alert_rules.boards`.
STATE = "state:code"
DIGITS = "state:digits"


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
    """Return a number by which models come in ascending order, the worst first: code, then the interval's low end."""
    digits = f'model:vllm_specdec_{DIGITS}{{of="verdict",{select}}}'
    return f"sum without (of) ({digits} / 1e7 > 1 or {digits} + 0)"


def digits(of: str) -> str:
    """Return digits that stand for a verdict or for what to do."""
    return recorded(DIGITS, of=of)


def in_digits(of: str, otherwise: str = "") -> str:
    """Return 1 for each model, with a label that has such digits, or without rules those of an expression."""
    known = f"{digits(of)} or on () {otherwise}" if otherwise else digits(of)
    return f'count_values by ({MODEL}) ("{of}", {known})'


def verdict_mappings() -> list[Json]:
    """Return the mappings of a verdict's digits: its words, the interval, and what its basis is worth."""
    ends = r"(\d)(\d\d)(\d)(\d\d)"
    found = word_mapping(VERDICTS)
    found += [
        pattern(f"{code}{ends}{basis}", f"{word} $1.$2–$3.$4, {worth}", color)
        for code, (word, color) in VERDICTS.items()
        if code in JUDGED
        for basis, (worth, _) in BASES.items()
    ]
    return found


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
    longest = (13 * 24, 7 * 24, 3 * 24, 24, 12, 6, 3, 2, 1)
    words = [f"over {hours // 24} d" if hours >= 48 else f"over {hours} h" for hours in longest]
    ends = [-3600 * hours for hours in longest] + [-0.001]
    return [
        {"type": "range", "options": {"from": start, "to": end, "result": {"text": word}}}
        for start, end, word in zip([None, *ends[:-1]], ends, [*words, "under 1 h"], strict=True)
    ]


def interval(by: str) -> str:
    """Return 1 for each row, with a label `interval`: the ends of the interval of the speedup, in words."""
    ends = (
        f"round({total(metric('speedup_interval', bound=bound), by, found)}, 0.01)"
        for bound, found in (("low", "min"), ("high", "max"))
    )
    return in_words(by, "interval", " to ", *ends)


def k_of(series: str, by: str) -> str:
    """Return a K, or `MIXED` where engines differ."""
    low, high = (total(metric(series), by, operator) for operator in ("min", "max"))
    return f"{low} == {high} or {MIXED} + 0 * {high}"
