"""Faults of the machine: no memory, no descriptors."""

import resource
import time
from itertools import count
from pathlib import Path

import pytest

from faults.rig import assert_alive, connect, get, limited, read_answer, rigged
from support.exporter import Metrics
from support.faulty_server import answer, replay
from support.programs import eventually

pytestmark = pytest.mark.full

MIB = 1024 * 1024


def test_memory_exhausted() -> None:
    with rigged() as rig:
        exporter = rig.exporter
        pages = Path(f"/proc/{exporter.pid}/statm").read_text().split()[0]
        used = int(pages) * resource.getpagesize()
        # Enough for what arrives, and not for what is made of it.
        with limited(exporter.pid, resource.RLIMIT_AS, used + 24 * MIB):
            rig.server.behaviour = answer(b"# x\n" * (4 * MIB - 9))
            during = exporter.metrics_when(lambda m: m.errors().get("internal"))
            assert during.value("up") == 0
            assert during.of_engines() == set()
            assert_alive(exporter)
            # Answers of the usual size need no more than there is.
            rig.server.behaviour = replay()
            exporter.wait_until_up()
        assert "MemoryError" in exporter.log()
        assert_alive(exporter)


def lowest_free_descriptor(pid: int) -> int:
    """Return the number that the next descriptor of a process gets: it is what the
    limit is about, and not how many are open.
    """
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in count() if number not in taken)


def test_descriptors_exhausted() -> None:
    with rigged() as rig:
        exporter = rig.exporter
        with connect(exporter.url) as kept, connect(exporter.url) as spare:
            for connection in (kept, spare):
                connection.sendall(get("/-/ready"))
                assert b"200 OK" in read_answer(connection), connection
            # A poll takes the lowest number that is free, and gives it back.
            lowest = lowest_free_descriptor(exporter.pid)
            for _ in range(100):
                time.sleep(0.02)
                lowest = min(lowest, lowest_free_descriptor(exporter.pid))
            with limited(exporter.pid, resource.RLIMIT_NOFILE, lowest):

                def scraped() -> Metrics:
                    kept.sendall(get("/metrics"))
                    return Metrics(read_answer(kept).partition(b"\r\n\r\n")[2].decode())

                eventually(lambda: scraped().errors().get("unreachable", 0) >= 2)
                during = scraped()
                assert during.value("up") == 0
                assert during.of_engines() == set()
                spare.sendall(get("/-/healthy"))
                assert read_answer(spare).endswith(b"healthy\n")
                # Whoever comes now waits, and is answered when there are descriptors
                # again.
                waiting = connect(exporter.url)
                waiting.sendall(get("/-/healthy"))
            with waiting:
                assert read_answer(waiting).endswith(b"healthy\n")
        exporter.wait_until_up()
        assert_alive(exporter)
        assert "Traceback" not in exporter.log()
        levels = [line["level"] for line in exporter.log_lines()]
        assert levels.count("warning") + levels.count("error") <= 3
