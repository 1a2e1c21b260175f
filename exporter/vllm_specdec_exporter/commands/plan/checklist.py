"""The checklist: conditions for speculation, and reasons to leave it off.

Its lines are in `checklist.toml`; this module says which facts are true.
"""

import statistics
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from ...config.tables import read_table
from .estimates import Memory
from .question import Objective, PlannedLoad, Question

#: Highest temperature for speculation, and median temperature from which to leave it
#: off, as published.
MAX_COOL = 0.5
MAX_MEDIAN = 0.7
#: From this difference on, temperatures vary: between "deterministic" and "balanced" of
#: common presets.
MAX_SPREAD = 0.2


class Answer(StrEnum):
    """Whether a condition is true."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Item(Struct, frozen=True):
    """One line of the checklist: its name, whether it is true, and why."""

    name: str
    holds: Answer
    text: str


class Checklist(Struct, frozen=True):
    """Conditions for speculation, and reasons to leave it off."""

    use: tuple[Item, ...]
    leave_off: tuple[Item, ...]


_LINES = read_table(__file__, "checklist.toml")


def fill_in(question: Question, memory: Memory) -> Checklist:
    """Return the checklist for the known facts."""
    facts = _facts(question, memory)
    values = _values(question, memory)
    return Checklist(
        use=tuple(_item(line, facts, values) for line in _LINES["use"]),
        leave_off=tuple(_item(line, facts, values) for line in _LINES["leave_off"]),
    )


def _item(
    line: Mapping[str, str],
    facts: Mapping[str, bool | None],
    values: Mapping[str, object],
) -> Item:
    name = line["name"]
    fact = facts[line["fact"].removeprefix("not ")]
    if fact is None:
        missing = line["unknown"].format(**values)
        return Item(name, Answer.UNKNOWN, f"not known: find out {missing}")
    negated = line["fact"].startswith("not ")
    answer = Answer.NO if fact is negated else Answer.YES
    return Item(name, answer, line.get(answer, line["yes"]).format(**values))


def _facts(question: Question, memory: Memory) -> dict[str, bool | None]:
    """Return by name whether a fact of the checklist is true; ``None``: not known."""
    stated = question.facts
    facts = {
        "cool": None,
        "hot": None,
        "fits": None,
        "ttft": None,
        "uniform_batch": stated.uniform_batch,
        "validated": stated.validated,
        "monitored": stated.monitored,
        "refused": stated.min_p_or_logit_bias,
    }
    temperatures = stated.temperatures
    if temperatures:
        highest = max(temperatures)
        # Rounded: 0.3 - 0.1 is more than 0.2 in binary.
        varies = round(highest - min(temperatures), 9) > MAX_SPREAD
        median = statistics.median(temperatures)
        facts["cool"] = not varies and highest <= MAX_COOL
        facts["hot"] = varies or median > MAX_MEDIAN
    if stated.objective is not None:
        facts["ttft"] = stated.objective is Objective.TTFT
    if memory.after is not None:
        facts["fits"] = memory.after.kv_budget_bytes > 0 and memory.after.fits
    return facts


def _values(question: Question, memory: Memory) -> dict[str, object]:
    """Return what the texts of the checklist have in braces."""
    temperatures = question.facts.temperatures
    warm = ", ".join(f"{value:g}" for value in temperatures)
    if len(temperatures) > 1:
        warm += f", median {statistics.median(temperatures):g}"
    # Defaults, because a text is formatted with all values, also the unused ones.
    needs = "the size of the drafter"
    room = "no VRAM is left for keys and values"
    if memory.after is not None:
        needs = f"whether what is served fits ({_missing_flags(question.load)})"
        if question.load.tokens is not None and memory.after.tokens:
            room = (
                f"{question.load.tokens:,} tokens are to be held, "
                f"{memory.after.tokens:,} fit with the drafter"
            )
    return {
        "max_cool": MAX_COOL,
        "max_median": MAX_MEDIAN,
        "warm": warm,
        "objective": str(question.facts.objective),
        "needs": needs,
        "room": room,
    }


def _missing_flags(load: PlannedLoad) -> str:
    flags = {"--context": load.context, "--batch": load.batch}
    missing = [flag for flag, value in flags.items() if value is None]
    return ", ".join(missing) or "--target-config"
