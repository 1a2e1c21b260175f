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
    """Facts from the operator; ``None`` and an empty tuple mean unknown, and are never assumed.

    Attributes:
        temperatures: sampling temperatures in production, from 0 up.
        same_family: whether target and draft are of one family (for a head: trained for this target).
        same_tokenizer: whether they share the tokenizer.
        uniform_batch: whether the requests of a batch are alike.
        validated: whether acceptance was measured at production's temperature.
        monitored: whether acceptance is monitored.
    """

    temperatures: tuple[float, ...] = ()
    objective: Objective | None = None
    same_family: bool | None = None
    same_tokenizer: bool | None = None
    uniform_batch: bool | None = None
    validated: bool | None = None
    monitored: bool | None = None

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


def fill_in(method: Method, memory: Memory, load: PlannedLoad, facts: Facts) -> Checklist:
    """Return the checklist for a method and the known facts."""
    return Checklist(
        use=(
            _cool(facts),
            _headroom(memory, load),
            _stated("uniform_batch", facts.uniform_batch, "requests of a batch are alike", "--uniform-batch"),
            _stated(
                "validated",
                facts.validated,
                "acceptance was measured at production's temperature",
                "--validated-at-temperature",
            ),
            _objective_gains(facts),
        ),
        leave_off=(_hot(facts), _memory_bound(method, memory, load), _ttft_bound(facts), _unmonitored(facts)),
    )


def _answer(holds: bool | None) -> Answer:
    return Answer.UNKNOWN if holds is None else Answer.YES if holds else Answer.NO


def _stated(name: str, holds: bool | None, words: str, flag: str) -> Item:
    if holds is None:
        return Item(name, Answer.UNKNOWN, f"not known: find out whether {words} ({flag})")
    return Item(name, _answer(holds), words if holds else f"not so: {words}")


def _temperatures(facts: Facts) -> str:
    shown = ", ".join(f"{value:g}" for value in facts.temperatures)
    median = "" if len(facts.temperatures) == 1 else f", median {facts.median_temperature:g}"
    return f"temperature {shown}{median}"


def _cool(facts: Facts) -> Item:
    name = "temperature"
    if facts.temperature_spread is None:
        text = "not known: find out the temperatures in production (--temperature, repeatable)"
        return Item(name, Answer.UNKNOWN, text)
    cool = facts.temperature_spread <= SPREAD and max(facts.temperatures) <= WARM
    return Item(name, _answer(cool), f"{_temperatures(facts)} (wanted: homogeneous and at most {WARM:g})")


def _hot(facts: Facts) -> Item:
    name = "temperature"
    if facts.temperature_spread is None or facts.median_temperature is None:
        return Item(
            name, Answer.UNKNOWN, "not known: find out the temperatures in production (--temperature)"
        )
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
        return Item(name, Answer.UNKNOWN, "not known: find out the size of the drafter")
    if room.budget <= 0:
        return Item(name, Answer.NO, "no VRAM is left for keys and values")
    if room.fits is None:
        return Item(name, Answer.UNKNOWN, f"not known: find out whether what is served fits ({_needs(load)})")
    assert room.tokens is not None
    assert load.tokens is not None
    text = f"{load.tokens:,} tokens are to be held, {room.tokens:,} fit with the drafter"
    return Item(name, _answer(room.fits), text)


def _memory_bound(method: Method, memory: Memory, load: PlannedLoad) -> Item:
    name, room = "memory_bound", memory.after
    if method.drafter is Drafter.LOOKUP and memory.before.budget > 0:
        return Item(name, Answer.NO, f"{method.name} takes no VRAM")
    if room is not None and room.budget <= 0:
        return Item(name, Answer.YES, "no VRAM is left for keys and values")
    if room is None or room.fits is None:
        return Item(name, Answer.UNKNOWN, f"not known: find out whether what is served fits ({_needs(load)})")
    if room.fits:
        return Item(name, Answer.NO, "what is to be served fits")
    text = f"{load.batch:,} requests of {load.context:,} tokens do not fit with the drafter"
    return Item(name, Answer.YES, f"{text}{', nor without it' if memory.before.fits is False else ''}")


def _needs(load: PlannedLoad) -> str:
    flags = (("--context", load.context), ("--batch", load.batch))
    missing = [flag for flag, value in flags if value is None]
    return ", ".join(missing) or "--target-config"


def _objective_gains(facts: Facts) -> Item:
    name = "objective"
    if facts.objective is None:
        return Item(name, Answer.UNKNOWN, "not known: find out what matters most (--objective)")
    gains = facts.objective is not Objective.TTFT
    return Item(name, _answer(gains), f"the objective is {facts.objective} (wanted: tpot or throughput)")


def _ttft_bound(facts: Facts) -> Item:
    name = "ttft_bound"
    if facts.objective is None:
        return Item(name, Answer.UNKNOWN, "not known: find out what matters most (--objective)")
    bound = facts.objective is Objective.TTFT
    text = (
        "speculation does not bring the first token sooner"
        if bound
        else f"the objective is {facts.objective}"
    )
    return Item(name, _answer(bound), text)


def _unmonitored(facts: Facts) -> Item:
    name = "unmonitored"
    if facts.monitored is None:
        return Item(name, Answer.UNKNOWN, "not known: find out whether acceptance is monitored (--monitored)")
    text = "acceptance is monitored" if facts.monitored else "nobody would see when acceptance falls"
    return Item(name, _answer(not facts.monitored), text)
