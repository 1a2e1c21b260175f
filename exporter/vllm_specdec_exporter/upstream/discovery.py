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
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohappyeyeballs import AddrInfoType, addr_to_addr_infos
from aiohttp.abc import AbstractResolver, ResolveResult

from ..config.values import Target, format_address
from ..observe.result import Discovered
from ..runtime import logs
from ..runtime.daemon_threads import SharedThreads

#: How long the last known servers stay while the name has no answer, in seconds.
KEEP_SECONDS = 300.0
RESOLVE_SECONDS = 10.0  # deadline of a resolution, in seconds

#: Errors of `getaddrinfo` that are an answer: there is no such name, or it has no
#: records of this family.
_NO_RECORDS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class Resolver(AbstractResolver):
    """Resolves host names; concurrent identical queries share one thread."""

    def __init__(self) -> None:
        self._threads = SharedThreads()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raise OSError if the name cannot be resolved."""
        return list(await self._threads.call(_get_addresses, host, port, family))

    async def addresses(self, host: str, port: int) -> list[AddrInfoType]:
        """Return the addresses of a host name or literal address for
        `aiohappyeyeballs`, or raise OSError.
        """
        with contextlib.suppress(ValueError):
            ip_address(host)
            return addr_to_addr_infos((host, port)) or []
        hosts = [each["host"] for each in await self.resolve(host, port)]
        return [
            info for each in hosts for info in addr_to_addr_infos((each, port)) or ()
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _get_addresses(
    host: str, port: int, family: socket.AddressFamily
) -> list[ResolveResult]:
    infos = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return [
        ResolveResult(
            hostname=host,
            # with the zone of a link-local address
            host=socket.getnameinfo(address, numeric)[0],
            port=port,
            family=address_family,
            proto=protocol,
            flags=numeric,
        )
        for address_family, _, protocol, _, address in infos
    ]


class _Name:
    """A name, and its servers by the last answer."""

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self.servers: tuple[Target, ...] = ()
        self._target = target
        self._clock = clock
        self._found_at: float | None = None
        self._family: socket.AddressFamily | None = None
        self._failure: str | None = "not resolved yet"

    def result(self) -> Discovered:
        return Discovered(
            self._target.name,
            self._failure is None,
            len(self.servers),
            self._failure or "",
        )

    async def resolve(self, resolver: Resolver) -> None:
        try:
            addresses = await self._addresses(resolver)
            failure = None if addresses else "the name has no records"
        except TimeoutError:
            addresses = []
            failure = f"no answer within {RESOLVE_SECONDS:g} s"
        except (OSError, UnicodeError) as error:
            addresses = []
            failure = str(error)
        before = self.servers
        if addresses:
            self._found_at = self._clock()
            self.servers = tuple(self._server(host, port) for host, port in addresses)
        elif not self._kept:
            self.servers = ()
        self._log(before, failure)

    @property
    def _kept(self) -> bool:
        """Whether the servers of the last answer are recent enough to stay without
        another.
        """
        return (
            self._found_at is not None
            and self._clock() - self._found_at <= KEEP_SECONDS
        )

    async def _addresses(self, resolver: Resolver) -> list[tuple[str, int]]:
        """Return host and port of each server; a pod with addresses of both families is
        one, by IPv4.

        Raises:
            OSError: a query failed, and the other has no records, or not the family of
                the known servers: those may be the same pods, which would all seem to
                be gone.
        """
        families = socket.AF_INET, socket.AF_INET6
        queries = (self._of_family(resolver, family) for family in families)
        answers = dict(
            zip(
                families,
                await asyncio.gather(*queries, return_exceptions=True),
                strict=True,
            )
        )
        failures = [one for one in answers.values() if isinstance(one, BaseException)]
        by_family = {
            family: one
            for family, one in answers.items()
            if one and not isinstance(one, BaseException)
        }
        if failures and (
            not by_family or (self._kept and self._family not in by_family)
        ):
            raise failures[0]
        if not by_family:
            return []
        self._family, addresses = next(iter(by_family.items()))
        return addresses

    async def _of_family(
        self, resolver: Resolver, family: socket.AddressFamily
    ) -> list[tuple[str, int]]:
        host, port, _ = self._target.address
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                addresses = await resolver.resolve(host, port, family)
        except socket.gaierror as error:
            if error.errno in _NO_RECORDS:
                return []
            raise
        return sorted({(each["host"], each["port"]) for each in addresses})

    def _server(self, host: str, port: int) -> Target:
        url = (
            urlsplit(self._target.url)
            ._replace(netloc=format_address(host, port))
            .geturl()
        )
        return replace(self._target, url=url, discovery=False)

    def _log(self, before: tuple[Target, ...], failure: str | None) -> None:
        fields = {"name": self._target.name, "targets": len(self.servers)}
        if failure is not None and (failure != self._failure or before != self.servers):
            logs.log(logging.WARNING, "name not resolved", **fields, error=failure)
        elif failure is None and (self._failure is not None or before != self.servers):
            logs.log(logging.INFO, "discovered", **fields)
        self._failure = failure


class Discovery:
    """The servers of a configuration, those behind its names included; `clock` is
    monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._resolver = Resolver()
        self._names: dict[Target, _Name] = {}

    def use(self, targets: Iterable[Target]) -> bool:
        """Resolve the names among these targets from now on; return whether there are
        any.
        """
        names = [target for target in targets if target.discovery]
        self._names = {
            name: self._names.get(name) or _Name(name, self._clock) for name in names
        }
        return bool(names)

    async def resolve(self) -> None:
        """Resolve every name once. Failures are logged, and in the results."""
        await asyncio.gather(
            *(name.resolve(self._resolver) for name in self._names.values())
        )

    def servers(self, targets: Iterable[Target]) -> tuple[Target, ...]:
        """Return the targets with the known servers in place of each name; every
        address once.
        """
        by_name: dict[str, Target] = {}
        for target in targets:
            name = self._names.get(target)
            for server in (
                (name.servers if name else ()) if target.discovery else (target,)
            ):
                by_name.setdefault(server.name, server)
        return tuple(by_name.values())

    def results(self) -> tuple[Discovered, ...]:
        """Return what came of each name."""
        return tuple(name.result() for name in self._names.values())
