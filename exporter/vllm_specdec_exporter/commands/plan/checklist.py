"""The checklist: facts of a deployment that only the operator knows, and whether they favour speculation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .methods import Drafter

if TYPE_CHECKING:
    from .estimates import Memory, PlannedLoad
    from .methods import Method


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

    @property
    def median_temperature(self) -> float | None:
        """The median of the temperatures."""
        return statistics.median(self.temperatures) if self.temperatures else None

    @property
    def temperature_spread(self) -> float | None:
        """The highest temperature minus the lowest."""
        if not self.temperatures:
            return None
        return round(max(self.temperatures) - min(self.temperatures), 9)


#: Highest temperature for speculation, median temperature from which to leave it off, and tolerance.
WARM, HOT, SPREAD = 0.5, 0.7, 0.2


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


_VALIDATED = "acceptance was measured at production's temperature"


def fill_in(method: Method, memory: Memory, load: PlannedLoad, facts: Facts) -> Checklist:
    """Return the checklist for a method and the known facts."""
    return Checklist(
        use=(
            _cool(facts),
            _headroom(memory, load),
            _stated("uniform_batch", facts.uniform_batch, "requests of a batch are alike", "--uniform-batch"),
            _stated("validated", facts.validated, _VALIDATED, "--validated-at-temperature"),
            _objective_gains(facts),
        ),
        leave_off=(_hot(facts), _memory_bound(method, memory, load), _ttft_bound(facts), _unmonitored(facts)),
    )


def _answer(holds: bool | None) -> Answer:
    return Answer.UNKNOWN if holds is None else Answer.YES if holds else Answer.NO


def _unknown(name: str, words: str) -> Item:
    return Item(name, Answer.UNKNOWN, f"not known: find out {words}")


def _stated(name: str, holds: bool | None, words: str, flag: str) -> Item:
    if holds is None:
        return _unknown(name, f"whether {words} ({flag})")
    return Item(name, _answer(holds), words if holds else f"not so: {words}")


def _temperatures(facts: Facts) -> str:
    shown = ", ".join(f"{value:g}" for value in facts.temperatures)
    median = "" if len(facts.temperatures) == 1 else f", median {facts.median_temperature:g}"
    return f"temperature {shown}{median}"


def _cool(facts: Facts) -> Item:
    name = "temperature"
    if facts.temperature_spread is None:
        return _unknown(name, "the temperatures in production (--temperature, repeatable)")
    cool = facts.temperature_spread <= SPREAD and max(facts.temperatures) <= WARM
    return Item(name, _answer(cool), f"{_temperatures(facts)} (wanted: homogeneous and at most {WARM:g})")


def _hot(facts: Facts) -> Item:
    name = "temperature"
    if facts.temperature_spread is None or facts.median_temperature is None:
        return _unknown(name, "the temperatures in production (--temperature)")
    reasons = []
    if facts.temperature_spread > SPREAD:
        reasons.append(f"it varies by {facts.temperature_spread:g}, more than {SPREAD:g}")
    if facts.median_temperature > HOT:
        reasons.append(f"its median is above {HOT:g}")
    limits = f"leave off when it varies or its median is above {HOT:g}"
    return Item(name, _answer(bool(reasons)), f"{_temperatures(facts)}: {' and '.join(reasons) or limits}")


def _headroom(memory: Memory, load: PlannedLoad) -> Item:
    name, room = "headroom", memory.after
    if room is None:
        return _unknown(name, "the size of the drafter")
    if room.budget <= 0:
        return Item(name, Answer.NO, "no VRAM is left for keys and values")
    if room.fits is None:
        return _unknown(name, f"whether what is served fits ({_needs(load)})")
    text = f"{load.tokens:,} tokens are to be held, {room.tokens:,} fit with the drafter"
    return Item(name, _answer(room.fits), text)


def _memory_bound(method: Method, memory: Memory, load: PlannedLoad) -> Item:
    name, room = "memory_bound", memory.after
    if method.drafter is Drafter.LOOKUP and memory.before.budget > 0:
        return Item(name, Answer.NO, f"{method.name} takes no VRAM")
    if room is not None and room.budget <= 0:
        return Item(name, Answer.YES, "no VRAM is left for keys and values")
    if room is None or room.fits is None:
        return _unknown(name, f"whether what is served fits ({_needs(load)})")
    if room.fits:
        return Item(name, Answer.NO, "what is to be served fits")
    text = f"{load.batch:,} requests of {load.context:,} tokens do not fit with the drafter"
    return Item(name, Answer.YES, f"{text}{', nor without it' if memory.before.fits is False else ''}")


def _needs(load: PlannedLoad) -> str:
    flags = (("--context", load.context), ("--batch", load.batch))
    missing = [flag for flag, value in flags if value is None]
    return ", ".join(missing) or "--target-config"


def _objective_gains(facts: Facts) -> Item:
    if facts.objective is None:
        return _unknown("objective", "what matters most (--objective)")
    gains = _answer(facts.objective is not Objective.TTFT)
    return Item("objective", gains, f"the objective is {facts.objective} (wanted: tpot or throughput)")


def _ttft_bound(facts: Facts) -> Item:
    if facts.objective is None:
        return _unknown("ttft_bound", "what matters most (--objective)")
    if facts.objective is Objective.TTFT:
        return Item("ttft_bound", Answer.YES, "speculation does not bring the first token sooner")
    return Item("ttft_bound", Answer.NO, f"the objective is {facts.objective}")


def _unmonitored(facts: Facts) -> Item:
    if facts.monitored is None:
        return _unknown("unmonitored", "whether acceptance is monitored (--monitored)")
    text = "acceptance is monitored" if facts.monitored else "nobody would see when acceptance falls"
    return Item("unmonitored", _answer(not facts.monitored), text)
