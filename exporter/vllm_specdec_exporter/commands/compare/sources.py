"""The sources of a comparison: servers to watch, and files with snapshots or saved
texts.
"""

import json
from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from ...config.options import ConfigError
from ...config.values import Target, is_address, mask_url, parse_target
from ...observe.result import ExporterResult
from ...observe.settings import Settings
from ...publish import snapshot
from ...upstream.connection import UpstreamConfig
from ..check import observe
from ..saved_text import SavedTextError, read_text, result_of
from .side import SideError

#: So that two columns of the table fit into a terminal of 100 characters.
_MAX_NAME = 24


class ResultSource(Struct, frozen=True):
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
        if self.server:
            return f"{self.path}#{self.server}"
        return self.path


def parse_sources(reference: str, side: str) -> tuple[ResultSource, ResultSource]:
    """Parse both sources, as `parse_source` does; ConfigError also if they are the
    same.
    """
    first = parse_source(reference, "A")
    second = parse_source(side, "B")
    if first.name == second.name:
        raise ConfigError(
            f'both sides are called "{first.name}"; give them names of their own: '
            "NAME=URL-or-FILE"
        )
    if first.shown == second.shown:
        raise ConfigError(
            f"sides {first.name} and {second.name} are the same: {first.shown}"
        )
    return first, second


def parse_source(text: str, default_name: str) -> ResultSource:
    """Parse ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``, or raise ConfigError."""
    name = default_name
    location = text
    given_name, equals, behind = text.partition("=")
    # An equals sign behind one of these belongs to an address or a path.
    if equals and not set(given_name) & set("/:?#"):
        name = given_name.strip()
        location = behind
        if not 0 < len(name) <= _MAX_NAME or not given_name.isprintable():
            shown = json.dumps(mask_url(text), ensure_ascii=False)
            raise ConfigError(
                f"side {shown}: a name has 1 to {_MAX_NAME} characters: "
                "NAME=URL-or-FILE"
            )
    if is_address(location):
        try:
            return ResultSource(name, target=parse_target(location))
        except ValueError as error:
            raise ConfigError(
                f'side {name}, URL "{mask_url(location)}": {error}'
            ) from error
    path, _, server = location.partition("#")
    return ResultSource(name, path=path, server=server)


def read_file(source: ResultSource, settings: Settings) -> ExporterResult:
    """Return the snapshot in a file, or what a saved text of metrics says of its
    server; SideError if it holds neither, ConfigError if not of the server.
    """
    side = f"side {source.name} ({json.dumps(source.path, ensure_ascii=False)})"
    try:
        text = read_text(source.path)
        if not text.is_snapshot:
            return result_of([text], settings)
        result = snapshot.decode(text.body)
    except SavedTextError as error:
        raise SideError(
            f"{side}: {error}; an address is host:port, or begins with http://, "
            "https:// or unix:"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise SideError(
            f"{side}: not a snapshot as check --json writes it: {reason}"
        ) from error
    if not source.server:
        return result
    targets = [target for target in result.targets if target.target == source.server]
    if len(targets) != 1:
        servers = ", ".join(map(attrgetter("target"), result.targets)) or "none"
        raise ConfigError(
            f"side {source.name}: {source.path} has no server "
            f"{json.dumps(source.server)}; it has {servers}"
        )
    return replace(result, targets=tuple(targets))


async def watch(
    servers: Iterable[ResultSource],
    upstream: UpstreamConfig,
    settings: Settings,
    seconds: float,
) -> dict[ResultSource, ExporterResult]:
    """Observe the servers, which are the targets of `upstream`, for some seconds, at
    the same time; with 0, poll each once.
    """
    result = await observe(upstream, settings, seconds)
    return {
        server: replace(result, targets=(target,))
        for server, target in zip(servers, result.targets, strict=True)
    }
