"""The resolver: names of servers become addresses, and a name server that is silent holds up nothing else.

aiohttp's own asks in the threads of `asyncio.to_thread`, of which there are few, and for which Python waits
at exit: a name server that does not answer would hold up the end of the process for half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType

_Question = tuple[str, int, socket.AddressFamily]
_Found = list[ResolveResult]


class Resolver(AbstractResolver):
    """Asks the system, in a thread of its own for each question that is under way.

    Who asks again what is being asked already waits for the same answer, so a silent name server costs one
    thread.
    """

    def __init__(self) -> None:
        self._under_way: dict[_Question, asyncio.Future[_Found]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> _Found:
        """Return the addresses of a host.

        Raises:
            OSError: it has none, or nobody knows.
        """
        question = host, port, family
        future = self._under_way.get(question)
        if future is None:
            future = self._under_way[question] = self._ask(question)
        # Whoever gives up does so for himself.
        return list(await asyncio.shield(future))

    async def addresses(self, host: str, port: int) -> list[AddrInfoType]:
        """Return the addresses of a host as `aiohappyeyeballs` takes them; an address is one of itself.

        Raises:
            OSError: it has none, or nobody knows.
        """
        with contextlib.suppress(ValueError):
            ip_address(host)
            return [_address(host, port)]
        return [_address(found["host"], port) for found in await self.resolve(host, port)]

    async def close(self) -> None:
        """Nothing is open."""

    def _ask(self, question: _Question) -> asyncio.Future[_Found]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Found] = loop.create_future()

        def settle(found: _Found | None, error: Exception | None) -> None:
            self._under_way.pop(question, None)
            if error is None:
                future.set_result(found or [])
            else:
                future.set_exception(error)
                future.exception()  # perhaps nobody waits any more: that is no defect to tell of

        def ask() -> None:
            found: _Found | None = None
            error: Exception | None = None
            try:
                found = _look_up(*question)
            except Exception as raised:  # noqa: BLE001 - whoever asked is told
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(settle, found, error)

        threading.Thread(target=ask, name="resolver", daemon=True).start()
        return future


def _look_up(host: str, port: int, family: socket.AddressFamily) -> _Found:
    infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=_numeric(address),
            port=port,
            family=found,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found, _, protocol, _, address in infos
    ]


def _address(host: str, port: int) -> AddrInfoType:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


def _numeric(address: tuple[Any, ...]) -> str:
    """Return the address as text; an address of one link has the link with it."""
    return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
