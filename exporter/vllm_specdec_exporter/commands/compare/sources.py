"""Sources of the sides: servers, which are observed at the same time, and files."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...config.files import read_regular
from ...config.options import ConfigError
from ...config.values import Target, mask_url, parse_target
from ...observe.result import ExporterResult
from ...observe.state import Settings
from ...publish import snapshot
from ...serve.upstream_tls import UpstreamConfig
from ..check import observe
from .side import SideError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|unix:")
#: So that two columns of the table fit into a terminal of 100 characters.
_MAX_NAME = 24
#: A snapshot of a thousand engines has about 10 MiB.
_MAX_FILE = 64 * 1024 * 1024


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


def parse_sources(reference: str, side: str) -> tuple[ResultSource, ResultSource]:
    """Parse both sources: ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``; ConfigError if they are not valid."""
    sources = parse_source(reference, "A"), parse_source(side, "B")
    one, other = sources
    if one.name == other.name:
        raise ConfigError(
            f'both sides are called "{one.name}"; give them names of their own: NAME=URL-or-FILE'
        )
    if one.shown == other.shown:
        raise ConfigError(f"sides {one.name} and {other.name} are the same: {one.shown}")
    return sources


def parse_source(text: str, name: str) -> ResultSource:
    """Parse ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``, by default named `name`, or raise ConfigError."""
    before, equals, behind = text.partition("=")
    if equals and not set(before) & set("/:?#"):
        if not 0 < len(before.strip()) <= _MAX_NAME or not before.isprintable():
            shown = json.dumps(mask_url(text), ensure_ascii=False)
            raise ConfigError(f"side {shown}: a name has 1 to {_MAX_NAME} characters: NAME=URL-or-FILE")
        name, text = before.strip(), behind
    if _ADDRESS.match(text):
        try:
            return ResultSource(name, target=parse_target(text))
        except ValueError as error:
            raise ConfigError(f'side {name}, URL "{mask_url(text)}": {error}') from error
    path, _, server = text.partition("#")
    return ResultSource(name, path=path, server=server)


def read(source: ResultSource) -> ExporterResult:
    """Return the snapshot in a file; SideError if it holds none, ConfigError if not of the server."""
    what = f"side {source.name} ({json.dumps(source.path, ensure_ascii=False)})"
    body, problem = read_regular(source.path, _MAX_FILE)
    if body is None:
        raise SideError(f"{what}: {problem}; an address would begin with http://, https:// or unix:")
    try:
        result = snapshot.decode(body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise SideError(f"{what}: not a snapshot as check --json writes it: {reason}") from error
    if not source.server:
        return result
    chosen = tuple(target for target in result.targets if target.target == source.server)
    if len(chosen) != 1:
        known = ", ".join(target.target for target in result.targets) or "none"
        server = json.dumps(source.server)
        raise ConfigError(f"side {source.name}: {source.path} has no server {server}; it has {known}")
    return replace(result, targets=chosen)


async def watch(
    sources: Iterable[ResultSource], upstream: UpstreamConfig, settings: Settings, seconds: float
) -> dict[ResultSource, ExporterResult]:
    """Observe the sources that are servers for some seconds, at the same time; with 0, poll each once."""
    upstreams = {s: replace(upstream, targets=(s.target,)) for s in sources if s.target is not None}
    results = await asyncio.gather(*(observe(one, settings, seconds) for one in upstreams.values()))
    return dict(zip(upstreams, results, strict=True))
