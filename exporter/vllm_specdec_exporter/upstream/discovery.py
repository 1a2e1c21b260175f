"""The resolver of host names, and discovery by DNS: the servers behind a name, at each
poll interval.

The answer replaces the servers found before. While there is none, the last known
servers stay for `KEEP_SECONDS`: a name server that is restarted must not end all
series.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohappyeyeballs import AddrInfoType, addr_to_addr_infos
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec.structs import replace

from ..config.listen_address import format_address
from ..config.values import Target
from ..observe.result import Discovered
from ..runtime import logs
from ..runtime.daemon_threads import SharedThreads

#: Servers that one exporter polls, those behind names included: a record in DNS may
#: have thousands of addresses, and each takes memory and a connection.
MAX_SERVERS = 1000
#: How long the last known servers stay while the name has no answer, in seconds.
KEEP_SECONDS = 300.0
RESOLVE_SECONDS = 10.0  # deadline of a resolution, in seconds

#: Errors of `getaddrinfo` that are an answer: there is no such name, or it has no
#: records of this family.
_NO_RECORDS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


class Resolver(AbstractResolver):
    """Resolves host names; concurrent identical queries share one thread."""

    def __init__(self) -> None:
        self._threads = SharedThreads()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host, for aiohttp; raise OSError if the name cannot
        be resolved.
        """
        return [
            ResolveResult(
                hostname=host,
                # with the zone of a link-local address
                host=socket.getnameinfo(address, _NUMERIC)[0],
                port=port,
                family=address_family,
                proto=protocol,
                flags=_NUMERIC,
            )
            for address_family, _, protocol, _, address in await self._query(
                host, port, family
            )
        ]

    async def addresses(self, host: str, port: int) -> Sequence[AddrInfoType]:
        """Return the addresses of a host name or literal address for
        `aiohappyeyeballs`, or raise OSError.
        """
        with contextlib.suppress(ValueError):
            ip_address(host)
            return addr_to_addr_infos((host, port)) or []
        return await self._query(host, port, socket.AF_UNSPEC)

    async def _query(
        self, host: str, port: int, family: socket.AddressFamily
    ) -> Sequence[AddrInfoType]:
        return await self._threads.call(_get_addresses, host, port, family)

    async def close(self) -> None:
        """Nothing is open."""


def _get_addresses(
    host: str, port: int, family: socket.AddressFamily
) -> Sequence[AddrInfoType]:
    return socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )


class _Name:
    """A name, and its servers by the last answer."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self.servers: tuple[Target, ...] = ()
        self._target = target
        self._clock = clock
        self._answered_at: float | None = None
        self._family: socket.AddressFamily | None = None  # of the servers
        self._failure = "not resolved yet"
        self._found: tuple[Target, ...] = ()

    def result(self) -> Discovered:
        return Discovered(
            name=self._target.name,
            up=not self._failure,
            targets=len(self.servers),
            failure=self._failure,
        )

    async def resolve(self, resolver: Resolver) -> str:
        """Find the servers anew, and return why there is no answer, if so."""
        try:
            addresses = await self._addresses(resolver)
        except (OSError, UnicodeError) as error:
            if not self._are_kept:
                self._found = ()
            return str(error)
        self._answered_at = self._clock()
        self._found = tuple(self._server(*address) for address in addresses)
        return ""

    def settle(self, failure: str, room: int) -> None:
        """Have the first of what was found as servers, at most `room`, and log what has
        changed.
        """
        previous = self.servers
        self.servers = self._found[:room]
        found = len(self._found)
        if found > room:
            failure = (
                f"{found} addresses, of which {room} are polled: an exporter has at "
                f"most {MAX_SERVERS} servers"
            )
        self._log(previous, failure)
        self._failure = failure

    @property
    def _are_kept(self) -> bool:
        """Whether the last answer is recent enough for its servers to stay without
        another.
        """
        return (
            self._answered_at is not None
            and self._clock() - self._answered_at <= KEEP_SECONDS
        )

    async def _addresses(self, resolver: Resolver) -> list[tuple[str, int]]:
        """Return host and port of each server; a pod with addresses of both families is
        one, by IPv4.

        Raises:
            OSError: there is no answer. Also if one family failed, and the other is not
                that of the known servers: those may be the same pods, which would all
                seem to be gone.
        """
        failure: Exception = OSError("the name has no records")
        has_failed = False
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                addresses = await self._of_family(resolver, family)
            except (OSError, UnicodeError) as error:
                if not has_failed:
                    failure = error
                has_failed = True
                continue
            is_of_others = self._are_kept and family != self._family
            if addresses and not (has_failed and is_of_others):
                self._family = family
                return addresses
        raise failure

    async def _of_family(
        self, resolver: Resolver, family: socket.AddressFamily
    ) -> list[tuple[str, int]]:
        host, port, _ = self._target.address
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                addresses = await resolver.resolve(host, port, family)
        except TimeoutError as error:
            raise OSError(f"no answer within {RESOLVE_SECONDS:g} s") from error
        except socket.gaierror as error:
            if error.errno in _NO_RECORDS:
                return []
            raise
        return sorted({(each["host"], each["port"]) for each in addresses})

    def _server(self, host: str, port: int) -> Target:
        named = urlsplit(self._target.url)
        url = named._replace(netloc=format_address(host, port)).geturl()
        return replace(self._target, url=url, discovery=False)

    def _log(self, previous: tuple[Target, ...], failure: str) -> None:
        fields = {"name": self._target.name, "targets": len(self.servers)}
        has_changed = previous != self.servers
        if failure and (has_changed or failure != self._failure):
            logs.log(logging.WARNING, "name not resolved", **fields, error=failure)
        elif not failure and (has_changed or self._failure):
            logs.log(logging.INFO, "discovered", **fields)


class Discovery:
    """The servers of a configuration, those behind its names included; `clock` is
    monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._resolver = Resolver()
        self._names: dict[Target, _Name] = {}
        self._given = 0  # servers that are given by their addresses

    def use(self, targets: Iterable[Target]) -> bool:
        """Resolve the names among these targets from now on; return whether there are
        any.
        """
        previous = self._names
        self._names = {}
        self._given = 0
        for target in targets:
            if not target.discovery:
                self._given += 1
            else:
                self._names[target] = previous.get(target) or _Name(target, self._clock)
        return bool(self._names)

    async def resolve(self) -> None:
        """Resolve every name once. Failures are logged, and in the results."""
        names = list(self._names.values())
        failures = await asyncio.gather(
            *(name.resolve(self._resolver) for name in names)
        )
        room = MAX_SERVERS - self._given
        for name, failure in zip(names, failures, strict=True):
            name.settle(failure, room)
            room -= len(name.servers)

    def servers(self, targets: Iterable[Target]) -> tuple[Target, ...]:
        """Return the targets with the known servers in place of each name; every
        address once.
        """
        by_name: dict[str, Target] = {}
        for target in targets:
            servers: tuple[Target, ...] = (target,)
            if target.discovery:
                name = self._names.get(target)
                servers = name.servers if name else ()
            for server in servers:
                by_name.setdefault(server.name, server)
        return tuple(by_name.values())

    def results(self) -> tuple[Discovered, ...]:
        """Return what came of each name."""
        return tuple(name.result() for name in self._names.values())
