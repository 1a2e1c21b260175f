"""Discovery by DNS: the servers behind a name, resolved anew at each poll interval.

The answer replaces the servers found before. While there is none, the last known servers stay for
`KEEP_SECONDS`: a name server that is restarted must not end all series.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..config.values import format_address
from ..observe.result import Discovered
from . import logs
from .dns import srv_records
from .sockets import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..config.values import Target

KEEP_SECONDS = 300.0  # how long the last known servers stay while the name has no answer, in seconds
RESOLVE_SECONDS = 10.0  # deadline of a resolution, in seconds


class _Name:
    """A name, and its servers by the last answer."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self.servers: tuple[Target, ...] = ()
        self._target = target
        self._clock = clock
        self._found_at: float | None = None
        self._failure: str | None = "not resolved yet"

    def result(self) -> Discovered:
        return Discovered(self._target.name, self._failure is None, len(self.servers), self._failure or "")

    async def resolve(self, resolver: Resolver) -> None:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                addresses = await self._addresses(resolver)
            failure = None if addresses else "the name has no records"
        except TimeoutError:
            addresses, failure = [], f"no answer within {RESOLVE_SECONDS:g} s"
        except (OSError, UnicodeError) as error:
            addresses, failure = [], str(error)
        before = self.servers
        if addresses:
            self._found_at = self._clock()
            self.servers = tuple(self._server(host, port) for host, port in addresses)
        elif self._found_at is None or self._clock() - self._found_at > KEEP_SECONDS:
            self.servers = ()
        self._log(before, failure)

    async def _addresses(self, resolver: Resolver) -> list[tuple[str, int]]:
        host, port, _ = self._target.address
        if self._target.discovery == "dnssrv":
            return await srv_records(host)
        found = await resolver.resolve(host, port)
        # A pod with addresses of both families is one server.
        families = {each["family"] for each in found}
        family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
        return sorted({(each["host"], each["port"]) for each in found if each["family"] == family})

    def _server(self, host: str, port: int) -> Target:
        url = urlsplit(self._target.url)._replace(netloc=format_address(host, port)).geturl()
        return replace(self._target, url=url, discovery="")

    def _log(self, before: tuple[Target, ...], failure: str | None) -> None:
        fields = {"name": self._target.name, "targets": len(self.servers)}
        if failure is not None and (failure != self._failure or before != self.servers):
            logs.log(logging.WARNING, "name not resolved", **fields, error=failure)
        elif failure is None and (self._failure is not None or before != self.servers):
            logs.log(logging.INFO, "discovered", **fields)
        self._failure = failure


class Discovery:
    """The servers of a configuration, those behind its names included; `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._resolver = Resolver()
        self._names: dict[Target, _Name] = {}

    def use(self, targets: Iterable[Target]) -> bool:
        """Resolve the names among these targets from now on; return whether there are any.

        What is known of the names that were used before is kept.
        """
        names = [target for target in targets if target.discovery]
        self._names = {name: self._names.get(name) or _Name(name, self._clock) for name in names}
        return bool(names)

    async def resolve(self) -> None:
        """Resolve every name once. Failures are logged, and in the results."""
        await asyncio.gather(*(name.resolve(self._resolver) for name in self._names.values()))

    def servers(self, targets: Iterable[Target]) -> tuple[Target, ...]:
        """Return the targets with the known servers in place of each name; every address once."""
        found: dict[str, Target] = {}
        for target in targets:
            name = self._names.get(target)
            for server in (name.servers if name else ()) if target.discovery else (target,):
                found.setdefault(server.name, server)
        return tuple(found.values())

    def results(self) -> tuple[Discovered, ...]:
        """Return what came of each name."""
        return tuple(name.result() for name in self._names.values())
