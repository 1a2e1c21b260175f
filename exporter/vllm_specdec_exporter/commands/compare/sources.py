"""Sources of the sides: servers, which are observed at the same time, and files."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.options import ConfigError
from ...config.values import Target, mask_url, parse_target
from ...publish import snapshot
from ..check import observe
from .side import SideError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...observe.result import ExporterResult
    from ...observe.state import Settings
    from ...serve.tls import UpstreamConfig

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|unix:")
_LONGEST_NAME = 24
_MOST = 26
_MAX_FILE = 64 * 1024 * 1024
#: Seconds to wait for failures of further servers, so that the error names all of them.
_GRACE = 0.5


@dataclass(frozen=True, slots=True)
class ResultSource:
    """The source of a side."""

    name: str
    target: Target | None = None  # the server to observe, ``None`` for a file
    path: str = ""  # the file
    server: str = ""  # the server in the file, by its address; empty for the only one

    @property
    def shown(self) -> str:
        """The address or the file, without secrets."""
        if self.target is not None:
            return self.target.name
        return f"{self.path}#{self.server}" if self.server else self.path


def parse_sources(words: Sequence[str]) -> tuple[ResultSource, ...]:
    """Parse sources: ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``; ConfigError if they are not valid."""
    if not 2 <= len(words) <= _MOST:
        allowed = f"2 to {_MOST}, each a server's address or a snapshot's file"
        raise ConfigError(f"{len(words)} sides given; allowed: {allowed}")
    sources = tuple(parse_source(word, chr(ord("A") + place)) for place, word in enumerate(words))
    for place, source in enumerate(sources):
        for other in sources[:place]:
            if source.name == other.name:
                hint = "give them names of their own: NAME=URL-or-FILE"
                raise ConfigError(f'two sides are called "{source.name}"; {hint}')
            if source.shown == other.shown:
                raise ConfigError(f"sides {other.name} and {source.name} are the same: {source.shown}")
    return sources


def parse_source(text: str, name: str) -> ResultSource:
    """Parse ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``, by default named `name`, or raise ConfigError."""
    before, equals, behind = text.partition("=")
    if equals and not set(before) & set("/:?#") and not _exists(text):
        if not 0 < len(before.strip()) <= _LONGEST_NAME or not before.isprintable():
            shown = json.dumps(mask_url(text), ensure_ascii=False)
            raise ConfigError(f"side {shown}: a name has 1 to {_LONGEST_NAME} characters: NAME=URL-or-FILE")
        name, text = before.strip(), behind
    if _ADDRESS.match(text):
        try:
            return ResultSource(name, target=parse_target(text))
        except ValueError as error:
            raise ConfigError(f'side {name}, URL "{mask_url(text)}": {error}') from error
    path, hash_, server = text.rpartition("#")
    if hash_ and not _exists(text):
        return ResultSource(name, path=path, server=server)
    return ResultSource(name, path=text)


def read(source: ResultSource) -> ExporterResult:
    """Return the snapshot in a file; SideError if it holds none, ConfigError if not of the server."""
    what = f"side {source.name} ({json.dumps(source.path, ensure_ascii=False)})"
    try:
        with Path(source.path).open("rb") as file:
            body = file.read(_MAX_FILE + 1)
    except OSError as error:
        msg = f"{what}: cannot be read: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            msg += "; an address would begin with http://, https:// or unix:"
        raise SideError(msg) from error
    except ValueError as error:  # a NUL in the name
        raise SideError(f"{what}: cannot be read: {error}") from error
    if len(body) > _MAX_FILE:
        raise SideError(f"{what}: larger than {_MAX_FILE // 1024**2} MiB")
    try:
        result = snapshot.decode(body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        wanted = "a snapshot as check --json and compare --save write it"
        raise SideError(f"{what}: not {wanted}: {reason}") from error
    if not source.server:
        return result
    chosen = tuple(target for target in result.targets if target.target == source.server)
    if len(chosen) != 1:
        known = ", ".join(target.target for target in result.targets) or "none"
        asked = json.dumps(source.server)
        raise ConfigError(f"side {source.name}: {source.path} has no server {asked}; it has {known}")
    return replace(result, targets=chosen)


async def watch(
    sources: Sequence[ResultSource], upstream: UpstreamConfig, settings: Settings, seconds: float
) -> list[ExporterResult]:
    """Observe servers for some seconds, all at the same time; with 0, each is polled once.

    If one cannot be polled, the observation ends at once with a SideError that names each of them.
    """
    tasks = {
        asyncio.ensure_future(observe(replace(upstream, targets=(source.target,)), settings, seconds)): source
        for source in sources
        if source.target is not None
    }
    pending = set(tasks)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if any(not _up(task.result()) for task in done):
                await asyncio.wait(tasks, timeout=_GRACE)
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    down = [
        f"side {source.name} ({source.shown}): {_why(task.result())}"
        for task, source in tasks.items()
        if not task.cancelled() and not _up(task.result())
    ]
    if down:
        raise SideError("; ".join(down))
    return [task.result() for task in tasks]


def _up(result: ExporterResult) -> bool:
    return all(target.up for target in result.targets)


def _why(result: ExporterResult) -> str:
    failures = (target.failure for target in result.targets)
    return "; ".join(f"{failure.reason}: {failure.message}" for failure in failures if failure)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False
