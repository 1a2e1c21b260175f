"""What tests of faults share: the exporter before a server that is broken and mended, what always holds."""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.builders import vllm_lines
from support.exporter import Metrics, RunningExporter, running_exporter
from support.faulty_server import Behaviour, FaultyServer, replay
from vllm_specdec_exporter.engines.reading import Counters

#: Polls so frequent that a test sees a fault soon.
STEADY = ("--poll.interval", "500ms", "--poll.timeout", "490ms")

#: Reasons of failed polls on a busy machine, whatever the server does.
LATE = frozenset({"timeout", "stale"})

#: Nothing listens there: for faults that are not the server's.
NO_SERVER = ("--vllm.url", "http://127.0.0.1:1")

#: Seconds within which probes and scrapes are answered, whatever happens.
PROMPT = 10.0

COUNTED = Counters(
    drafts=1000,
    draft_tokens=4000,
    accepted_tokens=1600,
    accepted_tokens_per_position=(800, 500, 200, 100),
    generation_tokens=2600,
)


def vllm(counters: Counters = COUNTED, *, model: str = "m", engines: int = 1) -> bytes:
    """What a vLLM with these counters answers."""
    lines = [
        line
        for number in range(engines)
        for line in vllm_lines(counters, model_name=model, engine=str(number))
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def grown(counters: Counters, times: int) -> Counters:
    """Counters after so many times the work."""
    return Counters(
        drafts=counters.drafts * times,
        draft_tokens=counters.draft_tokens * times,
        accepted_tokens=counters.accepted_tokens * times,
        accepted_tokens_per_position=tuple(n * times for n in counters.accepted_tokens_per_position),
        generation_tokens=counters.generation_tokens * times,
    )


def assert_alive(exporter: RunningExporter) -> None:
    """The process runs, and its probes and scrapes are answered at once."""
    assert exporter.process.poll() is None, exporter.log()
    healthy = exporter.get("/-/healthy")
    assert (healthy.status, healthy.text) == (200, "healthy\n")
    assert exporter.get("/-/ready").status == 200
    scrape = exporter.get("/metrics")
    assert scrape.status == 200
    assert max(healthy.seconds, scrape.seconds) < PROMPT


def memory(exporter: RunningExporter) -> int:
    """Bytes of memory that the process has taken."""
    [value] = exporter.metrics().samples["process_resident_memory_bytes"].values()
    return int(value)


def cpu_seconds(exporter: RunningExporter) -> float:
    """Processor time that the process has used."""
    fields = Path(f"/proc/{exporter.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def new_errors(before: Metrics | None, after: Metrics) -> set[str]:
    """The reasons under which polls failed in between, or ever; without those of a busy machine."""
    known = before.errors() if before else {}
    return {reason for reason, count in after.errors().items() if count > known.get(reason, 0)} - LATE


@dataclass
class Rig:
    """An exporter before one server.

    Attributes:
        server: what it polls.
        exporter: the process.
        refusing: whether the server's port is closed.
    """

    server: FaultyServer
    exporter: RunningExporter
    refusing: bool = False

    def mend(self) -> Metrics:
        """Let the server be well, and see that the exporter is."""
        if self.refusing:
            self.server.listen()
            self.refusing = False
        self.server.behaviour = replay(start=40)
        after = self.exporter.wait_for(
            lambda m: m if m.value("up") == 1 and m.value("drafts_total", model_name="tiny-llama") else None
        )
        assert_alive(self.exporter)
        return after

    def breaks(self, behaviour: Behaviour | None, reason: str) -> Metrics:
        """Inject a fault of the server, see what is promised of every one of them, and mend it.

        Args:
            behaviour: what the server does; ``None`` for a closed port.
            reason: the only reason under which failed polls may be counted.

        Returns:
            what /metrics said during the fault.
        """
        before = self.exporter.metrics()
        if behaviour is None:
            self.server.refuse()
            self.refusing = True
        else:
            self.server.behaviour = behaviour
        least = before.errors().get(reason, 0) + 1
        during = self.exporter.wait_for(lambda m: m if m.errors().get(reason, 0) >= least else None)
        assert during.value("up") == 0
        assert during.of_engines() == set()
        assert new_errors(before, during) <= {reason}, during.errors()
        assert_alive(self.exporter)
        self.mend()
        return during


@contextlib.contextmanager
def rigged(*flags: str, **more: Any) -> Iterator[Rig]:
    """Run an exporter before a server that is well."""
    with (
        FaultyServer(replay()) as server,
        running_exporter("--vllm.url", server.url, *STEADY, *flags, **more) as exporter,
    ):
        exporter.wait_until_up()
        yield Rig(server, exporter)


# --- the process's surroundings


#: Run by Python before the program: the clock on the wall and the name service, as files beside it have them.
_INTERPOSED = """
import pathlib, socket, time
HERE = pathlib.Path(__file__).parent
wall, look_up = time.time, socket.getaddrinfo

def shifted():
    try:
        return wall() + float(HERE.joinpath("shift").read_text() or 0)
    except OSError:
        return wall()

def resolved(host, port, *args, **more):
    if not str(host).endswith(".test"):
        return look_up(host, port, *args, **more)
    while HERE.joinpath("silent").exists():
        time.sleep(0.05)
    try:
        addresses = HERE.joinpath("hosts").read_text().split()
    except OSError:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    return [one for address in addresses for one in look_up(address, port, *args, **more)]

time.time, socket.getaddrinfo = shifted, resolved
"""


class Surroundings:
    """The wall clock and the name service of one process, both in the test's hands.

    Neither can be had otherwise without changing them for the whole machine. Names under ``.test`` are
    resolved here, all others by the system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "sitecustomize.py").write_text(_INTERPOSED)
        self.env = {"PYTHONPATH": str(folder)}

    def shift_clock(self, seconds: float) -> None:
        """Let the wall clock be so much ahead of the real one."""
        new = self._folder / ".shift"
        new.write_text(str(seconds))
        new.replace(self._folder / "shift")

    def resolve(self, *addresses: str) -> None:
        """Let every name stand for these addresses, without any for none."""
        if addresses:
            new = self._folder / ".hosts"
            new.write_text(" ".join(addresses))
            new.replace(self._folder / "hosts")
        else:
            (self._folder / "hosts").unlink(missing_ok=True)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Let nobody answer questions for names."""
        (self._folder / "silent").touch()
        try:
            yield
        finally:
            (self._folder / "silent").unlink()


@contextlib.contextmanager
def limited(pid: int, limit: int, value: int) -> Iterator[None]:
    """Lower a limit of a running process."""
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (value, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, limit, before)


# --- clients


def connect(url: str, receive_buffer: int = 0, source: str = "") -> socket.socket:
    """Open a connection to where a URL points, from `source` if given."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    connection = socket.socket()
    connection.settimeout(10)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    if source:
        connection.bind((source, 0))
    connection.connect((parts.hostname, parts.port))
    return connection


def get(path: str, *headers: str) -> bytes:
    """A request as bytes."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def read_answer(connection: socket.socket) -> bytes:
    """Read one answer with a Content-Length: its head and its body."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += _receive(connection)
    head, _, body = found.partition(b"\r\n\r\n")
    [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(length.split(b":")[1]):
        body += _receive(connection)
    return head + b"\r\n\r\n" + body


def _receive(connection: socket.socket) -> bytes:
    block = connection.recv(1 << 16)
    assert block, "the connection ended before the answer was whole"
    return block
