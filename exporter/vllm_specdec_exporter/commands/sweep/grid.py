"""The grid of a sweep: zones of acceptance, prompts, cells and the plan.

The zones are published bounds for draft models of about a ninth of the target's size: below 0.50 drafting
costs more than it gains, from 0.50 to 0.65 it is near break-even, above that it likely pays. Cheap drafters
(n-gram, suffix, EAGLE and MTP heads) pay below these bounds.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.options import ConfigError
from ...config.thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable


_PUBLISHED = Thresholds()


class Zone(StrEnum):
    """Zones of an acceptance ratio."""

    DISABLE = "disable"
    NEAR_BREAK_EVEN = "near break-even"
    LIKELY_BENEFIT = "likely benefit"


#: Long descriptions of the zones.
MEANINGS = {
    Zone.DISABLE: "disable: costs more than it gains (draft models)",
    Zone.NEAR_BREAK_EVEN: "near break-even",
    Zone.LIKELY_BENEFIT: "likely benefit",
}

NOTE = (
    "The zones are published for draft models of about 1:9 of the target's size; cheap drafters "
    "(n-gram, suffix, EAGLE, MTP) pay below them too."
)


@dataclass(frozen=True, slots=True)
class Zones:
    """The bounds between the zones, as acceptance ratios from 0 to 1, rising; else ValueError."""

    disable_below: float = _PUBLISHED.disable_acceptance_ratio  # below it drafting costs more than it gains
    #: Above it drafting likely pays; in between it is near break-even.
    benefit_above: float = _PUBLISHED.break_even_acceptance_ratio

    def __post_init__(self) -> None:
        if not 0 <= self.disable_below <= self.benefit_above <= 1:
            raise ValueError("allowed: 0 <= the disable bound <= the benefit bound <= 1")

    def of(self, acceptance: float) -> Zone:
        """Return the zone of an acceptance ratio."""
        if acceptance < self.disable_below:
            return Zone.DISABLE
        return Zone.LIKELY_BENEFIT if acceptance > self.benefit_above else Zone.NEAR_BREAK_EVEN

    def crossed_by(self, low: float, high: float) -> bool:
        """Return whether an interval covers more than one zone."""
        return self.of(low) is not self.of(high)


#: The built-in sets, from the most to the least predictable.
BUILTIN = ("code", "extraction", "chat", "creative")

_MOST = 10_000
_ROLES = frozenset({"system", "user", "assistant", "developer", "tool"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one request: a conversation, usually of a single message."""

    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """The messages as plain text, for the completions API."""
        return "\n".join(message.content for message in self.messages)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A named set of prompts."""

    name: str
    prompts: tuple[Prompt, ...]

    @property
    def digest(self) -> str:
        """A fingerprint of the prompts, to detect an edited file."""
        told = [[(m.role, m.content) for m in prompt.messages] for prompt in self.prompts]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def builtin(name: str) -> PromptSet:
    """Return the built-in set of that name."""
    text = files(__package__).joinpath("data", f"{name}.txt").read_text(encoding="utf-8")
    return PromptSet(name, _read(text, name))


def load(words: Iterable[str]) -> tuple[PromptSet, ...]:
    """Return the sets with these names: built-in ones, ``all`` of them, or files; or raise ConfigError.

    A file is text with one prompt a line, or JSON lines with ``{"prompt": "..."}`` or ``{"messages":
    [{"role": "user", "content": "..."}]}``.
    """
    sets: list[PromptSet] = []
    for word in words:
        if word == "all":
            sets += map(builtin, BUILTIN)
        else:
            sets.append(builtin(word) if word in BUILTIN else _file(word))
    names = [one.name for one in sets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f'--prompts: "{name}" is there twice')
    return tuple(sets)


def _file(path: str) -> PromptSet:
    shown = json.dumps(path, ensure_ascii=False)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        known = f"built in: {', '.join(BUILTIN)}, all"
        raise ConfigError(f"--prompts {shown}: cannot be read: {error.strerror}; {known}") from error
    except ValueError as error:
        raise ConfigError(f"--prompts {shown}: not UTF-8 text") from error
    name = "".join(letter if letter.isprintable() else "?" for letter in Path(path).stem)
    return PromptSet(name, _read(text, f"--prompts {shown}"))


def _read(text: str, source: str) -> tuple[Prompt, ...]:
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not numbered:
        raise ConfigError(f"{source}: no prompt in it")
    if len(numbered) > _MOST:
        raise ConfigError(f"{source}: {len(numbered)} prompts; allowed: at most {_MOST}")
    if numbered[0][1].startswith("{"):
        return tuple(_parse(line, f"{source} line {number}") for number, line in numbered)
    return tuple(Prompt((Message("user", line),)) for _, line in numbered)


def _parse(line: str, source: str) -> Prompt:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        prompt, messages = document.get("prompt"), document.get("messages")
        if isinstance(prompt, str) and prompt:
            return Prompt((Message("user", prompt),))
        if isinstance(messages, list) and messages and all(map(_is_message, messages)):
            return Prompt(tuple(Message(m["role"], m["content"]) for m in messages))
    raise ConfigError(
        f'{source}: not a prompt; allowed: {{"prompt": "..."}} or '
        '{"messages": [{"role": "user", "content": "..."}]}'
    )


def _is_message(document: object) -> bool:
    found = document if isinstance(document, dict) else {}
    return found.get("role") in _ROLES and isinstance(found.get("content"), str)


#: The temperatures of the published sweep, with acceptance of about .81, .71, .52 and .38.
TEMPERATURES = (0.0, 0.4, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a set of prompts, a number of workers, a temperature."""

    prompts: str
    concurrency: int
    temperature: float

    @property
    def name(self) -> str:
        """A description of the cell."""
        return f"{self.prompts}, temperature {self.temperature:g}, concurrency {self.concurrency}"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to measure and how, without the server."""

    prompts: tuple[PromptSet, ...]  # sets of prompts, each with cells of its own
    temperatures: tuple[float, ...] = TEMPERATURES  # sampling temperatures, 0 (greedy) or more
    #: Numbers of workers, each of which sends its next request after its last response.
    concurrencies: tuple[int, ...] = (1,)
    waves: bool = False  # whether all workers send their next requests together
    requests: int = 16  # requests per cell; they use the prompts of the set in turn
    max_tokens: int = 128  # most tokens of a response
    model: str = ""  # name of the model; empty for the only one of the server
    api: str = "auto"  # ``chat``, ``completions``, or ``auto``: chat unless the server has no chat template
    #: Of a cell's first request, increased by 1 for each further one; ``None`` for no seeds, as in most
    #: production traffic: vLLM's drafter ignores seeds while its sampler does not, which may change
    #: acceptance.
    seed: int | None = None
    top_p: float | None = None  # nucleus sampling, ``None`` for the server's default
    ignore_eos: bool = False  # whether responses continue to `max_tokens` (a vLLM extension)
    allow_other_traffic: bool = False  # whether to measure despite other traffic
    request_timeout: float = 120.0  # timeout of one response, in seconds
    max_duration: float = 1800.0  # seconds after which the sweep stops; it can be continued
    pause: float = 0.0  # seconds between two cells
    watch: float = 3.0  # seconds for which the server must be quiet before the first cell
    zones: Zones = Zones()  # the bounds of the zones in reports

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells in the order of measurement: temperature changes fastest."""
        return tuple(
            Cell(prompts.name, concurrency, temperature)
            for prompts in self.prompts
            for concurrency in self.concurrencies
            for temperature in self.temperatures
        )

    def asked(self, cell: Cell) -> tuple[tuple[int, Prompt], ...]:
        """Return the prompts of the cell's requests in order, each with its index in the set."""
        prompts = next(one for one in self.prompts if one.name == cell.prompts).prompts
        return tuple((i % len(prompts), prompts[i % len(prompts)]) for i in range(self.requests))

    def warm_up(self) -> tuple[Prompt, ...]:
        """Return every prompt of the sweep once, to fill the server's prefix cache before the first cell."""
        return tuple(prompt for one in self.prompts for prompt in one.prompts[: self.requests])
