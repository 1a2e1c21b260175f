"""The grid of a sweep: prompts, cells and the plan."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from ...config.options import ConfigError

#: The built-in sets, from the most to the least predictable.
BUILTIN = ("code", "extraction", "chat", "creative")

#: Prompts of one file: several hundred times the 16 that a cell sends by default.
_MAX_PROMPTS = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "developer", "tool"]
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one request: a conversation, usually of a single message."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """One JSON line of a file: one of the two fields."""

    prompt: str = ""
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A named set of prompts."""

    name: str
    prompts: tuple[Prompt, ...]

    @property
    def digest(self) -> str:
        """A fingerprint of the prompts, which shows in the record whether two sweeps
        sent the same.
        """
        texts = [
            [(m.role, m.content) for m in prompt.messages] for prompt in self.prompts
        ]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _builtin(name: str) -> PromptSet:
    text = (
        files(__package__).joinpath("data", f"{name}.txt").read_text(encoding="utf-8")
    )
    return PromptSet(name, _read(text, name))


def load(words: Iterable[str]) -> tuple[PromptSet, ...]:
    """Return the sets with these names: built-in ones, ``all`` of them, or files; or
    raise ConfigError.

    A file is text with one prompt a line, or JSON lines with ``{"prompt": "..."}`` or
    ``{"messages": [{"role": "user", "content": "..."}]}``.
    """
    sets: list[PromptSet] = []
    for word in words:
        if word == "all":
            sets += map(_builtin, BUILTIN)
        else:
            sets.append(_builtin(word) if word in BUILTIN else _file(word))
    for name, times in Counter(one.name for one in sets).items():
        if times > 1:
            raise ConfigError(f'--prompts: "{name}" is there twice')
    return tuple(sets)


def _file(path: str) -> PromptSet:
    shown = json.dumps(path, ensure_ascii=False)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        known = f"built in: {', '.join(BUILTIN)}, all"
        raise ConfigError(
            f"--prompts {shown}: cannot be read: {error.strerror}; {known}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--prompts {shown}: not UTF-8 text") from error
    name = "".join(
        letter if letter.isprintable() else "?" for letter in Path(path).stem
    )
    return PromptSet(name, _read(text, f"--prompts {shown}"))


def _read(text: str, source: str) -> tuple[Prompt, ...]:
    numbered = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not numbered:
        raise ConfigError(f"{source}: no prompt in it")
    if len(numbered) > _MAX_PROMPTS:
        raise ConfigError(
            f"{source}: {len(numbered)} prompts; allowed: at most {_MAX_PROMPTS}"
        )
    if numbered[0][1].startswith("{"):
        return tuple(
            _parse(line, f"{source} line {number}") for number, line in numbered
        )
    return tuple(Prompt((Message("user", line),)) for _, line in numbered)


def _parse(line: str, source: str) -> Prompt:
    try:
        entry = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, RecursionError):
        entry = _Line()
    if entry.prompt:
        return Prompt((Message("user", entry.prompt),))
    if entry.messages:
        return Prompt(entry.messages)
    raise ConfigError(
        f'{source}: not a prompt; allowed: {{"prompt": "..."}} or '
        '{"messages": [{"role": "user", "content": "..."}]}'
    )


#: Tokens of a warm-up's answers: it is the prompts that have to be in the cache.
_WARM_UP_TOKENS = 8
#: The temperatures of the published sweep, with acceptance of about .81, .71, .52 and
#: .38.
TEMPERATURES = (0.0, 0.4, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to an API of the server."""

    api: str  # ``chat`` or ``completions``
    body: dict[str, object]
    prompt: int  # the index of its prompt in the set


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a set of prompts, a number of workers, a temperature."""

    prompts: str
    concurrency: int
    temperature: float

    @property
    def name(self) -> str:
        """A description of the cell."""
        return (
            f"{self.prompts}, temperature {self.temperature:g}, concurrency "
            f"{self.concurrency}"
        )


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to measure and how, without the server."""

    prompts: tuple[PromptSet, ...]  # sets of prompts, each with cells of its own
    #: Sampling temperatures, 0 (greedy) or more.
    temperatures: tuple[float, ...] = TEMPERATURES
    #: Numbers of workers, each of which sends its next request after its last response.
    concurrencies: tuple[int, ...] = (1,)
    waves: bool = False  # whether all workers send their next requests together
    requests: int = 16  # requests per cell; they use the prompts of the set in turn
    max_tokens: int = 128  # most tokens of a response
    model: str = ""  # name of the model; empty for the only one of the server
    api: str = "chat"  # ``chat`` or ``completions``
    top_p: float | None = None  # nucleus sampling, ``None`` for the server's default
    #: Whether responses continue to `max_tokens` (a vLLM extension).
    ignore_eos: bool = False
    allow_other_traffic: bool = False  # whether to measure despite other traffic
    request_timeout: float = 120.0  # timeout of one response, in seconds
    #: Seconds for which the server must be quiet before the first cell.
    watch: float = 3.0

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells in the order of measurement: temperature changes fastest."""
        return tuple(
            Cell(prompts.name, concurrency, temperature)
            for prompts in self.prompts
            for concurrency in self.concurrencies
            for temperature in self.temperatures
        )

    def requests_of(self, cell: Cell) -> tuple[Request, ...]:
        """Return the requests of a cell in order."""
        prompts = next(one for one in self.prompts if one.name == cell.prompts).prompts
        places = (i % len(prompts) for i in range(self.requests))
        return tuple(
            self.request(place, prompts[place], cell.temperature) for place in places
        )

    def warm_up(self) -> tuple[Request, ...]:
        """Return a short request with each prompt, which fills the server's prefix
        cache.
        """
        short = replace(self, max_tokens=_WARM_UP_TOKENS)
        prompts = [
            prompt for one in self.prompts for prompt in one.prompts[: self.requests]
        ]
        return tuple(
            short.request(place, prompt) for place, prompt in enumerate(prompts)
        )

    def request(self, place: int, prompt: Prompt, temperature: float = 0.0) -> Request:
        """Return the request with one prompt, which has the index `place` in its set."""
        body: dict[str, object] = {"model": self.model, "temperature": temperature}
        body |= {
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.api == "chat":
            body["messages"] = [
                {"role": m.role, "content": m.content} for m in prompt.messages
            ]
        else:
            body["prompt"] = "\n".join(message.content for message in prompt.messages)
        return Request(self.api, body, place)
