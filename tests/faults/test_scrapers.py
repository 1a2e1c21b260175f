"""Clients of the exporter that misbehave: probes and other scrapers are answered all
the while.
"""

import contextlib
import time

import pytest

from faults.rig import (
    Rig,
    assert_alive,
    connect,
    cpu_seconds,
    get,
    memory,
    read_answer,
    vllm,
)
from support.exporter import RunningExporter
from support.faulty_server import answer
from support.programs import eventually

pytestmark = pytest.mark.full

MIB = 1024 * 1024


def test_asks_and_never_reads(rig: Rig) -> None:
    rig.server.behaviour = answer(vllm(engines=50))
    rig.exporter.wait_for(lambda m: len(m.values("drafts_total")) == 50)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            scraper = stack.enter_context(
                connect(rig.exporter.url, receive_buffer=4096)
            )
            scraper.sendall(get("/metrics") * 200)
        eventually(lambda: _stands_still(rig.exporter), 120)
        assert_alive(rig.exporter)
        assert memory(rig.exporter) < 150 * MIB
    assert_alive(rig.exporter)


def _stands_still(exporter: RunningExporter) -> bool:
    """Tell whether the process answers and has little to do: the answers that nobody
    takes are not made.
    """
    if exporter.get("/metrics").status != 200:
        return False
    begin = cpu_seconds(exporter)
    time.sleep(0.5)
    return cpu_seconds(exporter) - begin < 0.25


def _status_of(rig: Rig, sent: bytes) -> int:
    """Send this; return the status of the answer, 0 for none."""
    with connect(rig.exporter.url) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        with contextlib.suppress(ConnectionError):
            return int(read_answer(client).split(b" ")[1])
    return 0


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (get("/metrics", "X-Padding: " + "x" * 200_000), (0, 400, 431)),
        (get("/metrics", *["X-Header: a"] * 200), (0, 400, 431)),
        (get("/metrics?name[]=" + "x" * 200_000), (0, 400, 414)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), (0, 400)),
        (b"nonsense\r\n\r\n", (0, 400)),
    ],
    ids=["long header", "many headers", "long query", "TLS", "nonsense"],
)
def test_refused(rig: Rig, sent: bytes, statuses: tuple[int, ...]) -> None:
    assert _status_of(rig, sent) in statuses
    assert_alive(rig.exporter)
