"""The grid: which cells a sweep has, and what is asked in each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .zones import Zones

if TYPE_CHECKING:
    from .prompts import Prompt, PromptSet

#: The temperatures of the published sweep, with acceptance of about .81, .71, .52 and .38.
TEMPERATURES = (0.0, 0.4, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: these prompts, by so many workers, at this temperature."""

    prompts: str
    concurrency: int
    temperature: float

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.prompts}, temperature {self.temperature:g}, concurrency {self.concurrency}"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to measure and how; everything but the server.

    Attributes:
        prompts: sets of prompts, each with cells of its own.
        temperatures: sampling temperatures, 0 (greedy) or more.
        concurrencies: numbers of workers, each of which sends its next request when its last was answered.
        requests: requests per cell; they take the prompts of the set in turn.
        max_tokens: most tokens of an answer.
        model: name of the model; empty for the only one that the server has.
        api: ``chat``, ``completions``, or ``auto``: chat unless the server has no chat template for it.
        seed: of a cell's first request, the next has the next; ``None`` for no seeds, as in most production
            traffic: vLLM's drafter does not heed a seed while its sampler does, and so may accept another
            share of the drafts.
        top_p: nucleus sampling, ``None`` for the server's default.
        ignore_eos: whether answers go on to `max_tokens` whatever the model says (a vLLM extra).
        allow_other_traffic: measure even where others use the server, too.
        request_timeout: seconds that one answer may take.
        max_duration: seconds that the sweep may take; then it stops, and can be continued.
        pause: seconds between two cells.
        watch: seconds for which the server must be quiet before the first cell.
        zones: the bounds of the zones in reports.
    """

    prompts: tuple[PromptSet, ...]
    temperatures: tuple[float, ...] = TEMPERATURES
    concurrencies: tuple[int, ...] = (1,)
    requests: int = 16
    max_tokens: int = 128
    model: str = ""
    api: str = "auto"
    seed: int | None = None
    top_p: float | None = None
    ignore_eos: bool = False
    allow_other_traffic: bool = False
    request_timeout: float = 120.0
    max_duration: float = 1800.0
    pause: float = 0.0
    watch: float = 3.0
    zones: Zones = Zones()

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells in the order in which they are measured: temperature changes fastest."""
        return tuple(
            Cell(prompts.name, concurrency, temperature)
            for prompts in self.prompts
            for concurrency in self.concurrencies
            for temperature in self.temperatures
        )

    def asked(self, cell: Cell) -> tuple[tuple[int, Prompt], ...]:
        """Return the prompts of the cell's requests in order, each with its place in the set."""
        prompts = next(one for one in self.prompts if one.name == cell.prompts).prompts
        return tuple((i % len(prompts), prompts[i % len(prompts)]) for i in range(self.requests))

    def warm_up(self) -> tuple[Prompt, ...]:
        """Return every prompt that the sweep will use, once.

        After that the server's prefix cache holds all of them, so that the first cell is no colder than
        the others.
        """
        return tuple(prompt for one in self.prompts for prompt in one.prompts[: self.requests])
