"""The grid of a sweep: prompts, cells and the plan."""

import hashlib
import json
from collections.abc import Iterable
from itertools import cycle, islice, product, starmap
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...config.options import ConfigError
from ...publish.terminal import printable

#: The built-in sets, from the most to the least predictable.
BUILTIN = ("code", "extraction", "chat", "creative")

#: Prompts of one file: several hundred times the 16 that a cell sends by default.
_MAX_PROMPTS = 10_000


class Message(Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "developer", "tool"]
    content: str


#: The prompt of one request: a conversation, usually of a single message.
Prompt = tuple[Message, ...]


class _Line(Struct):
    """One JSON line of a file: one of the two fields."""

    prompt: str = ""
    messages: Prompt = ()


class PromptSet(Struct, frozen=True):
    """A named set of prompts."""

    name: str
    prompts: tuple[Prompt, ...]

    @property
    def digest(self) -> str:
        """A fingerprint, which shows whether two sweeps sent the same prompts."""
        # Sixteen digits tell the sets of some sweeps apart, and fit into a line.
        return hashlib.sha256(msgspec.json.encode(self.prompts)).hexdigest()[:16]


def load_prompts(names: Iterable[str]) -> tuple[PromptSet, ...]:
    """Return the sets with these names: built-in ones, ``all`` of them, or files; or
    raise ConfigError.

    A file is text with one prompt a line, or JSON lines with ``{"prompt": "..."}`` or
    ``{"messages": [{"role": "user", "content": "..."}]}``.
    """
    sets: dict[str, PromptSet] = {}
    for name in names:
        for member in BUILTIN if name == "all" else (name,):
            prompts = _set(member)
            if prompts.name in sets:
                raise ConfigError(f'--prompts: "{prompts.name}" is there twice')
            sets[prompts.name] = prompts
    return tuple(sets.values())


def _set(name: str) -> PromptSet:
    shown = json.dumps(name, ensure_ascii=False)
    path = Path(name)
    if name in BUILTIN:
        path = Path(__file__).parent / "data" / f"{name}.txt"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"--prompts {shown}: cannot be read: {error.strerror}; built in: "
            f"{', '.join(BUILTIN)}, all"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--prompts {shown}: not UTF-8 text") from error
    return PromptSet(printable(path.stem), _read(text, f"--prompts {shown}"))


def _read(text: str, source: str) -> tuple[Prompt, ...]:
    prompts = []
    # Not by the name of the file: .txt and .jsonl are both usual for JSON lines.
    is_json = text.lstrip().startswith("{")
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if is_json and line:
            prompts.append(_parse(line, f"{source} line {number}"))
        elif line:
            prompts.append((Message("user", line),))
    if not prompts:
        raise ConfigError(f"{source}: no prompt in it")
    if len(prompts) > _MAX_PROMPTS:
        raise ConfigError(
            f"{source}: {len(prompts)} prompts; allowed: at most {_MAX_PROMPTS}"
        )
    return tuple(prompts)


def _parse(line: str, source: str) -> Prompt:
    try:
        entry = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, RecursionError):
        entry = _Line()
    if entry.prompt:
        return (Message("user", entry.prompt),)
    if entry.messages:
        return entry.messages
    raise ConfigError(
        f'{source}: not a prompt; allowed: {{"prompt": "..."}} or '
        '{"messages": [{"role": "user", "content": "..."}]}'
    )


#: Tokens of a warm-up's answers: it is the prompts that have to be in the cache.
_WARM_UP_TOKENS = 8
#: The temperatures of the published sweep, with acceptance of about .81, .71, .52 and
#: .38.
TEMPERATURES = (0.0, 0.4, 0.8, 1.0)


class Request(Struct, frozen=True):
    """A request to an API of the server."""

    api: str  # ``chat`` or ``completions``
    body: dict[str, object]
    prompt: int  # the index of its prompt in the set


class Cell(Struct, frozen=True):
    """One measurement: a set of prompts, a number of workers, a temperature."""

    prompts: str  # name of the set of prompts
    concurrency: int  # number of workers
    temperature: float

    @property
    def name(self) -> str:
        """A description of the cell."""
        return (
            f"{self.prompts}, temperature {self.temperature:g}, concurrency "
            f"{self.concurrency}"
        )


class SweepPlan(Struct, frozen=True):
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
        names = (prompts.name for prompts in self.prompts)
        cells = product(names, self.concurrencies, self.temperatures)
        return tuple(starmap(Cell, cells))

    def requests_of(self, cell: Cell) -> tuple[Request, ...]:
        """Return the requests of a cell in order."""
        [prompts] = [each.prompts for each in self.prompts if each.name == cell.prompts]
        requests = []
        for index, prompt in islice(cycle(enumerate(prompts)), self.requests):
            requests.append(self.request(index, prompt, cell.temperature))
        return tuple(requests)

    def warm_up(self) -> tuple[Request, ...]:
        """Return a short request with each prompt, which fills the server's prefix
        cache.
        """
        short = replace(self, max_tokens=_WARM_UP_TOKENS)
        prompts: list[Prompt] = []
        # Cells with fewer requests than prompts do not send the last ones.
        for each in self.prompts:
            prompts += each.prompts[: self.requests]
        return tuple(starmap(short.request, enumerate(prompts)))

    def request(self, index: int, prompt: Prompt, temperature: float = 0.0) -> Request:
        """Return the request with one prompt, which has this index in its set."""
        body: dict[str, object] = {
            "model": self.model,
            "temperature": temperature,
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.api == "chat":
            body["messages"] = prompt
        else:
            body["prompt"] = "\n".join(message.content for message in prompt)
        return Request(self.api, body, index)
