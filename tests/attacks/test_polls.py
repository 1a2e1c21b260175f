"""Attacks by servers: none of their answers ends the process, or keeps others waiting.

The memory is that of the chart's limit. How long a probe waits is counted in processor
time of the process, which grows little where others take the machine.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.test_listeners import LIMIT, MIB, peak, probed
from faults.rig import assert_fails, rigged, vllm
from support.exporter import RunningExporter, request, running_exporter
from support.faulty_server import FaultyServer, answer, capture, head, raw
from support.programs import eventually

pytestmark = pytest.mark.full

#: Processor time within which a probe is answered, whatever is read, in seconds: 0.06
#: alone, and 0.13 where other programs fill the processor's caches.
SOON = 0.2
SLOW = ("--poll.interval", "2s", "--poll.timeout", "1900ms")


def test_labels_without_end() -> None:
    """Lines of 16 KiB, each of which has thousands of labels."""
    labels = ",".join(f'l{number}=""' for number in range(1700))
    line = f"vllm:num_requests_running{{{labels},n=%d}} 1\n".replace("n=%d", 'n="%d"')
    body = "".join(line % number for number in range(330)).encode()
    with rigged() as rig:
        rig.server.behaviour = answer(body)
        assert_fails(rig.exporter, "malformed", more=3)
        assert peak(rig.exporter) < LIMIT
        rig.mend()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\n" * (16 * MIB), id="line feeds"),
        pytest.param(b"\nv" * (8 * MIB - 1) + b"\n", id="beginnings of names"),
        pytest.param(vllm(engines=256), id="engines"),
    ],
)
def test_a_large_answer_holds_nobody_up(body: bytes) -> None:
    with (
        FaultyServer(answer(body)) as server,
        running_exporter("--vllm.url", server.url, *SLOW) as exporter,
    ):
        eventually(lambda: len(server.polls()) > 1)
        with probed(exporter, SOON):
            polls = len(server.polls()) + 3
            eventually(lambda: len(server.polls()) >= polls)


def test_large_answers_at_once() -> None:
    """Eight servers, whose answers are as large as one may be, and end late."""
    body = capture() + b"# " + b"x" * (15 * MIB) + b"\n"
    begins = head(Content_Length=len(body)) + body[:-1]
    with FaultyServer(raw(begins, 4.0, body[-1:])) as server:
        urls = [f"{server.url}/metrics?n={number}" for number in range(8)]
        flags = [part for url in urls for part in ("--vllm.url", url)]
        with running_exporter(
            *flags, "--poll.interval=6s", "--poll.timeout=5900ms"
        ) as exporter:
            exporter.metrics_when(lambda m: m.total("up") > 0)
            eventually(lambda: len(server.polls()) > 2 * len(urls))
            assert peak(exporter) < LIMIT


@contextlib.contextmanager
def starved(exporter: RunningExporter) -> Iterator[None]:
    """Leave it a tenth of a processor, which another program keeps busy.

    Stopped by signals in place of that, a process begins each turn with cold caches,
    and one step costs it twenty times as much.
    """
    cpu = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        os.sched_setaffinity(busy.pid, {cpu})
        for entry in Path(f"/proc/{exporter.pid}/task").iterdir():
            thread = int(entry.name)
            os.sched_setaffinity(thread, {cpu})
            # Its weight is 110, where that of the other is 1024.
            os.setpriority(os.PRIO_PROCESS, thread, 10)
        try:
            yield
        finally:
            busy.kill()


@pytest.mark.timeout(900)
def test_too_little_processor_time() -> None:
    """Scrapes and probes are answered before polls, and no server is called dead."""
    with FaultyServer(answer(capture())) as server:
        urls = [f"{server.url}/metrics?n={number}" for number in range(60)]
        flags = [part for url in urls for part in ("--vllm.url", url)]
        with running_exporter(
            *flags, "--poll.interval=500ms", "--poll.timeout=450ms"
        ) as exporter:
            exporter.metrics_when(lambda m: m.total("up") == len(urls))
            quiet = exporter.log()
            meanwhile: dict[str, list[int]] = {"/-/healthy": [], "/metrics": []}
            with starved(exporter):
                for path in list(meanwhile) * 2:
                    polls = len(server.polls())
                    scrape = request(exporter.url + path, timeout=120)
                    assert scrape.status == 200
                    meanwhile[path].append(len(server.polls()) - polls)
                    time.sleep(1)
            # Counted, as a slow machine makes both slow: each turn of the loop lets one
            # poll begin or be judged. Measured are 1 and 8.
            assert max(meanwhile["/-/healthy"]) < 20
            assert max(meanwhile["/metrics"]) < len(urls)
            after = exporter.metrics()
            assert after.total("poll_errors_total", reason="stale") > 0
            assert "server is down" not in exporter.log().removeprefix(quiet)
            eventually(lambda: exporter.log_lines("polls are left out"))
            exporter.metrics_when(lambda m: m.total("up") == len(urls))
