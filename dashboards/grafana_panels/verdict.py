"""Codes for verdicts, advice, quality and the basis of a speedup: numbers that Grafana
maps to words and colours.

The exporter judges each engine; the rules record the same of a model with all its
engines.
"""

from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.publish.wording import CHECK, OFF_OR_MEASURE

from .field import Json, pattern
from .palette import AMBER, BLUE, COAL, GREY, INDIGO, PALE_SKY, PLUM, VERMILION
from .promql import IDENTITY, MODEL, in_words, metric, or_without_rules, recorded, total
from .variables import MODELS

#: Words and colours of a verdict. What needs attention comes first, so that tables can
#: be sorted by the code.
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
UNKNOWN = 5
#: The first codes that call for something, and a further one: K is the advised one.
_LOSES = 3
_KEEP = 20
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
    _KEEP: "keep K",
    10: "wait for drafts",
    11: "nothing: no requests",
    **dict.fromkeys((6, 8), "no advice on K"),
    **dict.fromkeys((9, 12), "-"),
}
#: Words for the least time that a verdict has stood, in hours, where it is that of all
#: the data that there is.
AT_LEAST = {
    0: "all data, < 1 h",
    1: "all data, > 1 h",
    3: "all data, > 3 h",
    12: "all data, > 12 h",
    24: "all data, > 1 d",
    168: "all data, > 7 d",
}
#: K of a model whose engines differ.
MIXED = -1
#: The code of each model.
STATE = "state:code"
#: The ends of the interval of each model's speedup, with its basis.
INTERVAL = "speedup_interval:ratio"
_ENDS = r"([\d.]+) ([\d.]+)"


def without_rules(by: str) -> str:
    """Return the worst verdict of the exporter on the engines of each row, where no
    rules are loaded.
    """
    return f"min by ({by}) ({metric('state_code')})"


def of_engines() -> str:
    """Return the verdict on each engine whose server answers."""
    return without_rules(IDENTITY)


def of_models() -> str:
    """Return the verdict on each model; one that was seen within an hour and whose
    server is down is down.
    """
    return or_without_rules(STATE, without_rules(MODEL))


def every(record: str) -> str:
    """Return a record of all models: it is joined with one of the chosen models."""
    return f"model:vllm_specdec_{record}"


def harm(select: str = MODELS) -> str:
    """Return a number by which models come in ascending order, the worst first: code,
    then the interval's low end.
    """
    state = f"{every(STATE)}{{{select}}}"
    low = f'0.01 * clamp_max({every(INTERVAL)}{{bound="low"}}, 50)'
    return f"({state} + on ({MODEL}) {low} or {state} + 0)"


def judged() -> str:
    """Return 1 for each model with an interval, with a label: its ends, the code of the
    verdict, the basis.
    """
    low = recorded(INTERVAL, bound="low")
    high = f'{every(INTERVAL)}{{bound="high"}}'
    ends = (f"round({end}, 0.01)" for end in (low, high))
    return in_words(MODEL, "verdict", *ends, every(STATE), and_label="basis")


def not_judged(states: str) -> str:
    """Return 1 for each other model of these states, with a label: its code."""
    return (
        f'count_values by ({MODEL}) ("verdict", ({states}) unless on ({MODEL}) '
        f"{every(INTERVAL)})"
    )


def verdict_mappings() -> list[Json]:
    """Return the mappings of these labels to words: the verdict, its interval, and its
    basis.
    """
    mappings = [
        pattern(f"{_ENDS} {code} {basis}", f"{word} $1–$2, {basis}", color)
        for code, (word, color) in VERDICTS.items()
        if code in JUDGED
        for basis in Basis
    ]
    others = VERDICTS.items()
    return mappings + [
        pattern(rf"({_ENDS} )?{code}( \w+)?", word, color)
        for code, (word, color) in others
    ]


_K, _LEAST_K = (f"num_speculative_tokens:{end}" for end in ("max", "min"))
#: Of an even number of engines the median may be half way between two.
_ADVISED = f"floor({every('recommended_num_speculative_tokens:median')})"
#: Of models that draft: advice on K outlives that.
_DRAFTING = f"and {every(STATE)} > 1 < {max(JUDGED) + 1} != 4"
_SAME = f"== {every(_LEAST_K)}"
_ANOTHER = f"{_SAME} != {_ADVISED} {_DRAFTING}"


def another_k() -> str:
    """Return 1 for each model with another K advised, with a label: the gain in
    percent, its K, that K, and whether the gain is measured or estimated.
    """
    gain = f"round(100 * {recorded('advised_gain:ratio')})"
    in_use = f"{every(_K)} {_ANOTHER}"
    return in_words(MODEL, "todo", gain, in_use, _ADVISED, and_label="basis")


def no_other_k() -> str:
    """Return 1 for each other model, with a label: the code of its state, or that its K
    is the advised one.
    """
    state = recorded(STATE)
    keep = f"{_KEEP} + 0 * ({recorded(_K)} {_SAME} == {_ADVISED} {_DRAFTING})"
    codes = (
        f"({state} <= {_LOSES} or {keep} or {state}) unless on ({MODEL}) ({every(_K)} "
        f"{_ANOTHER})"
    )
    return f'count_values by ({MODEL}) ("todo", {codes})'


def todo_mappings() -> list[Json]:
    """Return the mappings of these labels to words."""
    return [
        pattern(r"(\d+) \d+ 0 estimated", "switch off (+$1 %, est.)"),
        pattern(r"-?0 (\d+) (\d+) measured", "keep K $1: $2 was no faster"),
        pattern(r"-(\d+) (\d+) (\d+) measured", "keep K $2: $3 was $1 % slower"),
        pattern(r"(\d+) (\d+) (\d+) measured", "K $2 to $3 (+$1 %, measured)"),
        pattern(r"(\d+) (\d+) (\d+) estimated", "K $2 to $3 (+$1 %, est.)"),
        *(
            {"type": "value", "options": {str(code): {"text": text}}}
            for code, text in TODO.items()
        ),
    ]


def since() -> str:
    """Return for how many seconds the verdict on each model has stood, to a minute
    within a day, then to ten.

    It is below 0 where the verdict is that of all samples of 14 days, and their time is
    negative; of less than ten minutes it is only known that they are young.
    """
    state = recorded(STATE)
    # Without its range VictoriaMetrics finds no sample at the end within a subquery.
    another = f"timestamp({state} != last_over_time({state}[5m] @ end()))"
    changed = " or ".join(
        f"max_over_time({another}[{steps}])" for steps in ("1d:1m", "14d:10m")
    )
    return (
        f"time() - max by ({MODEL}) ({changed}) or min by ({MODEL}) "
        f"(min_over_time(timestamp({state})[14d:10m])) - time() or 0 * {state} - 1"
    )


def since_mappings() -> list[Json]:
    """Return the mappings of times below 0: at least so long."""
    young = {"-1": {"text": "all, < 10 m"}}
    return [
        {"type": "value", "options": young},
        *(
            {
                "type": "range",
                "options": {
                    "from": -3600 * longest,
                    "to": -3600 * shortest,
                    "result": {"text": word},
                },
            }
            for (shortest, word), longest in zip(
                AT_LEAST.items(), (*AT_LEAST, 9999)[1:], strict=True
            )
        ),
    ]


def k_of(series: str, by: str) -> str:
    """Return a K, or `MIXED` where engines differ."""
    low, high = (total(metric(series), by, operator) for operator in ("min", "max"))
    return f"{low} == {high} or {MIXED} + 0 * {high}"
