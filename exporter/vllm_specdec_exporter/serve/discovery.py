"""Discovery by DNS: the servers behind a name, resolved anew at each poll interval.

The answer replaces the servers found before. While there is none, the last known servers stay for
`KEEP_SECONDS`: a name server that is restarted must not end all series.

SRV records come by a query over TCP to the machine's name servers: `getaddrinfo` has none, and the answer for
many pods does not fit into a datagram.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..config.values import format_address
from ..observe.result import Discovered
from . import logs
from .sockets import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..config.values import Target

KEEP_SECONDS = 300.0  # how long the last known servers stay while the name has no answer, in seconds
RESOLVE_SECONDS = 10.0  # deadline of a resolution, in seconds
RESOLV_CONF = Path("/etc/resolv.conf")  # where the machine's name servers and search domains are
QUERY_SECONDS = 2.0  # deadline of a query to one name server, in seconds
_PORT = 53
_SRV, _INTERNET = 33, 1
_RECURSION_DESIRED = 0x0100
_NO_ERROR, _NO_NAME = 0, 3
_POINTER = 0xC0

#: Errors of `getaddrinfo` that are an answer: there is no such name, or it has no records of this family.
_NO_RECORDS = (socket.EAI_NONAME, socket.EAI_NODATA)


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
        return Discovered(self._target.name, self._failure is None, len(self.servers), self._failure or "")

    async def resolve(self, resolver: Resolver) -> None:
        try:
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
        elif not self._kept:
            self.servers = ()
        self._log(before, failure)

    @property
    def _kept(self) -> bool:
        """Whether the servers of the last answer are recent enough to stay without another."""
        return self._found_at is not None and self._clock() - self._found_at <= KEEP_SECONDS

    async def _addresses(self, resolver: Resolver) -> list[tuple[str, int]]:
        """Return host and port of each server; a pod with addresses of both families is one, by IPv4.

        Raises:
            OSError: a query failed, and the other has no records, or not the family of the known servers:
                those may be the same pods, which would all seem to be gone.
        """
        if self._target.discovery == "dnssrv":
            async with asyncio.timeout(RESOLVE_SECONDS):
                return await srv_records(self._target.address[0])
        families = socket.AF_INET, socket.AF_INET6
        queries = (self._of_family(resolver, family) for family in families)
        answers = dict(zip(families, await asyncio.gather(*queries, return_exceptions=True), strict=True))
        failures = [one for one in answers.values() if isinstance(one, BaseException)]
        found = {family: one for family, one in answers.items() if one and not isinstance(one, BaseException)}
        if failures and (not found or (self._kept and self._family not in found)):
            raise failures[0]
        if not found:
            return []
        self._family, addresses = next(iter(found.items()))
        return addresses

    async def _of_family(self, resolver: Resolver, family: socket.AddressFamily) -> list[tuple[str, int]]:
        """Return host and port of each record of one family; empty if there are none."""
        host, port, _ = self._target.address
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await resolver.resolve(host, port, family)
        except socket.gaierror as error:
            if error.errno in _NO_RECORDS:
                return []
            raise
        return sorted({(each["host"], each["port"]) for each in found})

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
        """Resolve the names among these targets from now on; return whether there are any."""
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


async def srv_records(name: str) -> list[tuple[str, int]]:
    """Return host and port of each SRV record of a name, sorted; empty if there are none.

    The name is tried as it is, and then, without a dot at its end, below each search domain. Raises OSError
    if for one of these names no name server gave a valid answer, and no other has records.
    """
    servers, domains = await asyncio.to_thread(_configured)
    names = [name] if name.endswith(".") else [name, *(f"{name}.{domain}" for domain in domains)]
    failure: OSError | None = None
    for one in names:
        try:
            if found := await _ask_all(servers, one.rstrip(".")):
                return found
        except OSError as error:  # a name outside the cluster, whose servers may not be reached
            failure = failure or error
    if failure:
        raise failure
    return []


def _configured() -> tuple[list[str], list[str]]:
    servers, domains = [], []
    for line in RESOLV_CONF.read_text("utf-8", "replace").splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search" | "domain", *names]:
                domains = [each.strip(".") for each in names]
    return servers or ["127.0.0.1"], [each for each in domains if each]


async def _ask_all(servers: list[str], name: str) -> list[tuple[str, int]]:
    """Return the answer of the first name server that gives one."""
    why: Exception = OSError("no name server")
    for server in servers:
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                return decode(query := encode(name), await _exchange(server, query))
        except TimeoutError:
            why = OSError(f"the name server {server} did not answer within {QUERY_SECONDS:g} s")
        except (OSError, EOFError) as error:
            why = OSError(f"the name server {server}: {error}")
    raise why


async def _exchange(server: str, query: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, _PORT)
    try:
        writer.write(struct.pack("!H", len(query)) + query)
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        return await reader.readexactly(length)
    finally:
        writer.close()


def encode(name: str) -> bytes:
    """Return a query for the SRV records of a name (RFC 1035, 4.1); OSError if it is no host name."""
    question = b""
    for label in name.encode("ascii", "replace").split(b"."):
        if not 0 < len(label) < 64:
            raise OSError(f"{name!r} is not a name: a label of {len(label)} characters")
        question += bytes([len(label)]) + label
    head = struct.pack("!2s5H", os.urandom(2), _RECURSION_DESIRED, 1, 0, 0, 0)
    return head + question + b"\0" + struct.pack("!2H", _SRV, _INTERNET)


def decode(query: bytes, answer: bytes) -> list[tuple[str, int]]:
    """Return host and port of each SRV record in the answer to `query`, sorted; OSError for an error."""
    try:
        number, flags, questions, records = struct.unpack_from("!2s3H", answer)
        if number != query[:2] or not flags & 0x8000:
            raise OSError("not an answer to the query")
        if (code := flags & 0xF) not in (_NO_ERROR, _NO_NAME):
            raise OSError(f"response code {code}")
        place = 12
        for _ in range(questions):
            place = _read_name(answer, place)[1] + 4
        found = set()
        for _ in range(records):
            place = _read_name(answer, place)[1]
            kind, _, _, length = struct.unpack_from("!HHIH", answer, place)
            place += 10
            if kind == _SRV:
                (port,) = struct.unpack_from("!H", answer, place + 4)
                found.add((_read_name(answer, place + 6)[0], port))
            place += length
    except (struct.error, IndexError) as error:
        raise OSError("the answer is cut off") from error
    return sorted(record for record in found if record[0])  # the root means: no such service (RFC 2782)


def _read_name(message: bytes, place: int) -> tuple[str, int]:
    """Return a name, and the place behind it, with pointers resolved (RFC 1035, 4.1.4)."""
    labels: list[str] = []
    end, limit = 0, place
    while length := message[place]:
        if length & _POINTER == _POINTER:
            end = end or place + 2
            place = (length & ~_POINTER) << 8 | message[place + 1]
            # Each pointer leads further back than the one before, so that there is an end.
            if place >= limit:
                raise OSError("a name that points forward or into itself")
            limit = place
        else:
            labels.append(message[place + 1 : place + 1 + length].decode("ascii", "replace"))
            place += 1 + length
    return ".".join(labels), end or place + 1
