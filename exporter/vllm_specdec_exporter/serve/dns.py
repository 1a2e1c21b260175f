"""SRV records, by a query over TCP to the machine's name servers.

`getaddrinfo` has none, and the answer for many pods does not fit into a datagram.
"""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")  # where the machine's name servers and search domains are
QUERY_SECONDS = 2.0  # deadline of a query to one name server, in seconds
_PORT = 53
_SRV, _INTERNET = 33, 1
_RECURSION_DESIRED = 0x0100
_NO_ERROR, _NO_NAME = 0, 3
_POINTER = 0xC0


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
                return decode_answer(query := encode_query(name), await _exchange(server, query))
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


def encode_query(name: str) -> bytes:
    """Return a query for the SRV records of a name (RFC 1035, 4.1); OSError if it is no host name."""
    question = b""
    for label in name.encode("ascii", "replace").split(b"."):
        if not 0 < len(label) < 64:
            raise OSError(f"{name!r} is not a name: a label of {len(label)} characters")
        question += bytes([len(label)]) + label
    head = struct.pack("!2s5H", os.urandom(2), _RECURSION_DESIRED, 1, 0, 0, 0)
    return head + question + b"\0" + struct.pack("!2H", _SRV, _INTERNET)


def decode_answer(query: bytes, answer: bytes) -> list[tuple[str, int]]:
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
