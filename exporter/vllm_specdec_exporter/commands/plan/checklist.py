"""The checklist: facts of a deployment that only the operator knows, and whether they favour speculation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .estimates import Memory, PlannedLoad


class Objective(StrEnum):
    """The main objective."""

    TPOT = "tpot"
    """Time per output token."""
    THROUGHPUT = "throughput"
    TTFT = "ttft"
    """Time to first token."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts from the operator; ``None`` and an empty tuple mean unknown, and are never assumed."""

    temperatures: tuple[float, ...] = ()  # sampling temperatures in production, from 0 up
    objective: Objective | None = None
    #: Whether target and draft are of one family (for a head: trained for this target).
    same_family: bool | None = None
    same_tokenizer: bool | None = None  # whether they share the tokenizer
    uniform_batch: bool | None = None  # whether the requests of a batch are alike
    validated: bool | None = None  # whether acceptance was measured at production's temperature
    monitored: bool | None = None  # whether acceptance is monitored


#: Highest temperature for speculation, and median temperature from which to leave it off, as published.
MAX_COOL, MAX_MEDIAN = 0.5, 0.7
#: From this difference on, temperatures vary: between "deterministic" and "balanced" of common presets.
MAX_SPREAD = 0.2


class Answer(StrEnum):
    """Whether a condition is true."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the checklist: its name, whether it is true, and why."""

    name: str
    holds: Answer
    text: str


@dataclass(frozen=True, slots=True)
class Checklist:
    """Conditions for speculation, and reasons to leave it off."""

    use: tuple[Item, ...]
    leave_off: tuple[Item, ...]


class _Line(NamedTuple):
    """A line of the checklist: the fact that decides, and the texts if it is true, false and unknown."""

    name: str
    fact: str
    yes: str
    no: str
    unknown: str  # what to find out


_COOL = f"temperature {{warm}} (wanted: homogeneous and at most {MAX_COOL:g})"
_HOT = f"temperature {{warm}}: leave off when it varies or its median is above {MAX_MEDIAN:g}"
_WARM = "the temperatures in production (--temperature, repeatable)"
_OBJECTIVE = "the objective is {objective} (wanted: tpot or throughput)"
_MATTERS = "what matters most (--objective)"
_MONITORED = "acceptance is monitored"
_TTFT = "speculation does not bring the first token sooner"
_UNNOTICED = "a fall of acceptance would go unnoticed"


def _stated(fact: str, words: str, flag: str) -> _Line:
    return _Line(fact, fact, words, f"not so: {words}", f"whether {words} ({flag})")


_USE = (
    _Line("temperature", "cool", _COOL, _COOL, _WARM),
    _Line("headroom", "fits", "{room}", "{room}", "{needs}"),
    _stated("uniform_batch", "requests of a batch are alike", "--uniform-batch"),
    _stated("validated", "acceptance was measured at production's temperature", "--validated-at-temperature"),
    _Line("objective", "not ttft", _OBJECTIVE, _OBJECTIVE, _MATTERS),
)
_LEAVE_OFF = (
    _Line("temperature", "hot", _HOT, _HOT, _WARM),
    _Line("memory_bound", "not fits", "{room}", "{room}", "{needs}"),
    _Line("ttft_bound", "ttft", _TTFT, "the objective is {objective}", _MATTERS),
    _Line("unmonitored", "not monitored", _UNNOTICED, _MONITORED, f"whether {_MONITORED} (--monitored)"),
)


def fill_in(memory: Memory, load: PlannedLoad, facts: Facts) -> Checklist:
    """Return the checklist for the known facts."""
    warm, after = facts.temperatures, memory.after
    median = statistics.median(warm) if warm else 0.0
    # Rounded: 0.3 - 0.1 is more than 0.2 in binary.
    varies = round(max(warm) - min(warm), 9) > MAX_SPREAD if warm else False
    known: dict[str, bool | None] = {
        "cool": not varies and max(warm) <= MAX_COOL if warm else None,
        "hot": varies or median > MAX_MEDIAN if warm else None,
        "fits": None if after is None else after.kv_budget_bytes > 0 and after.fits,
        "ttft": None if facts.objective is None else facts.objective is Objective.TTFT,
        "uniform_batch": facts.uniform_batch,
        "validated": facts.validated,
        "monitored": facts.monitored,
    }
    flags = {"--context": load.context, "--batch": load.batch}
    missing = ", ".join(flag for flag, value in flags.items() if value is None) or "--target-config"
    words = {
        "warm": ", ".join(f"{value:g}" for value in warm) + (f", median {median:g}" if len(warm) > 1 else ""),
        "objective": str(facts.objective),
        "needs": f"whether what is served fits ({missing})" if after else "the size of the drafter",
        "room": "no VRAM is left for keys and values",
    }
    if load.tokens is not None and after is not None and after.tokens:
        words["room"] = f"{load.tokens:,} tokens are to be held, {after.tokens:,} fit with the drafter"
    known |= {f"not {fact}": None if holds is None else not holds for fact, holds in known.items()}

    def item(line: _Line) -> Item:
        holds = known[line.fact]
        if holds is None:
            return Item(line.name, Answer.UNKNOWN, f"not known: find out {line.unknown.format(**words)}")
        answer, text = (Answer.YES, line.yes) if holds else (Answer.NO, line.no)
        return Item(line.name, answer, text.format(**words))

    return Checklist(tuple(map(item, _USE)), tuple(map(item, _LEAVE_OFF)))
