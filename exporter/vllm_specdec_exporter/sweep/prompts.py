"""Prompts: the built-in sets, and files of the user's own.

Acceptance depends on what is asked for more than on most settings: code and extraction repeat what stands in
the prompt or follow a form, free text does not. So each set makes cells of its own and is never mixed with
another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """What one request asks: a conversation, most often of a single message."""

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
        """A fingerprint of the prompts, by which an edited file is noticed."""
        told = [[(m.role, m.content) for m in prompt.messages] for prompt in self.prompts]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def builtin(name: str) -> PromptSet:
    """Return the built-in set of that name."""
    text = files(__package__).joinpath("data", f"{name}.txt").read_text(encoding="utf-8")
    return PromptSet(name, _read(text, name))


def load(words: Iterable[str]) -> tuple[PromptSet, ...]:
    """Return the sets that the words name: built-in ones, ``all`` of them, or files.

    A file is text with one prompt a line, or JSON lines with ``{"prompt": "..."}`` or
    ``{"messages": [{"role": "user", "content": "..."}]}``.

    Raises:
        ConfigError: a file that cannot be used, or a name given twice.
    """
    sets: list[PromptSet] = []
    for word in words:
        if word == "all":
            sets += map(builtin, BUILTIN)
        elif word in BUILTIN:
            sets.append(builtin(word))
        else:
            sets.append(_file(word))
    names = [one.name for one in sets]
    for name in names:
        if names.count(name) > 1:
            msg = f'--prompts: "{name}" is there twice'
            raise ConfigError(msg)
    return tuple(sets)


def _file(path: str) -> PromptSet:
    shown = json.dumps(path, ensure_ascii=False)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"--prompts {shown}: cannot be read: {error.strerror}; built in: {', '.join(BUILTIN)}, all"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"--prompts {shown}: not UTF-8 text"
        raise ConfigError(msg) from error
    name = "".join(letter if letter.isprintable() else "?" for letter in Path(path).stem)
    return PromptSet(name, _read(text, f"--prompts {shown}"))


def _read(text: str, source: str) -> tuple[Prompt, ...]:
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not numbered:
        msg = f"{source}: no prompt in it"
        raise ConfigError(msg)
    if len(numbered) > _MOST:
        msg = f"{source}: {len(numbered)} prompts; allowed: at most {_MOST}"
        raise ConfigError(msg)
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
    msg = (
        f'{source}: not a prompt; allowed: {{"prompt": "..."}} or '
        '{"messages": [{"role": "user", "content": "..."}]}'
    )
    raise ConfigError(msg)


def _is_message(document: object) -> bool:
    return (
        isinstance(document, dict)
        and document.get("role") in _ROLES
        and isinstance(document.get("content"), str)
    )
