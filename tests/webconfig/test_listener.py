"""The listener: whoever answers on its sockets can be exchanged, and nobody who connects notices."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from vllm_specdec_exporter.listener import Listener
from webconfig.saying import Says, hear


async def test_exchange() -> None:
    """Each connection is answered while answers change a hundred times, and none by who was there before."""
    listener = await Listener.open("127.0.0.1", 0)
    port = int(listener.addresses[0].rpartition(":")[2])
    heard: list[bytes] = []
    listener.serve(lambda: Says(b"0"))

    async def connect() -> None:
        while not ended.is_set():
            heard.append(await hear(f"127.0.0.1:{port}"))

    ended = asyncio.Event()
    clients = [asyncio.create_task(connect()) for _ in range(8)]
    for number in range(1, 101):
        listener.serve(lambda number=number: Says(b"%d" % number))  # type: ignore[misc]
        await asyncio.sleep(0.002)
        assert await hear(f"127.0.0.1:{port}") == b"%d" % number
    ended.set()
    await asyncio.gather(*clients)
    listener.close()

    assert len(heard) > 100
    assert b"" not in heard
    assert len(set(heard)) > 50
    with pytest.raises(ConnectionRefusedError):
        await hear(f"127.0.0.1:{port}")


async def test_several_addresses() -> None:
    """An empty host is every address, each told as it is listened on."""
    listener = await Listener.open("", 0)
    listener.serve(lambda: Says(b"hello"))
    heard = {}
    for address in listener.addresses:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        reader, writer = await asyncio.open_connection(
            "::1" if ":" in host else "127.0.0.1", port, family=family
        )
        heard[family] = await reader.read()
        writer.close()
        await writer.wait_closed()
    listener.close()

    assert heard == {socket.AF_INET: b"hello", socket.AF_INET6: b"hello"}


async def test_an_address_that_is_taken() -> None:
    """It is an error of the system, with its number."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="address already in use") as caught,
    ):
        await Listener.open("127.0.0.1", taken.getsockname()[1])

    assert caught.value.errno == errno.EADDRINUSE
