"""What tests of faults share: the exporter before a server that is broken and mended,
what always holds.
"""

import contextlib
import http.client
import os
import resource
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.builders import counters, vllm_text
from support.exporter import Metrics, RunningExporter, running_exporter
from support.faulty_server import Behaviour, FaultyServer, replay
from vllm_specdec_exporter.engines.reading import Counters

#: Polls so frequent that a test sees a fault soon.
STEADY = ("--poll.interval", "500ms", "--poll.timeout", "490ms")

#: Reasons of failed polls on a busy machine, whatever the server does.
LATE = frozenset({"timeout", "stale"})

#: Seconds within which probes and scrapes are answered, whatever happens.
PROMPT = 10.0


def counted(
    times: int = 1, positions: Sequence[int] = (800, 500, 200, 100)
) -> Counters:
    """The counters of a thousand drafts, or of so many times the work."""
    return counters(1000 * times, [accepted * times for accepted in positions])


def vllm(
    values: Counters | None = None, *, model: str = "m", engines: int = 1
) -> bytes:
    """What a vLLM with these counters answers."""
    return b"".join(
        vllm_text(values or counted(), model_name=model, engine=str(number))
        for number in range(engines)
    )


def assert_alive(exporter: RunningExporter) -> None:
    """The process runs, and its probes and scrapes are answered at once."""
    assert exporter.process.poll() is None, exporter.log()
    healthy = exporter.get("/-/healthy")
    assert healthy.status == 200
    assert healthy.text == "healthy\n"
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
    # utime and stime
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def new_errors(earlier: Metrics | None, later: Metrics) -> set[str]:
    """The reasons under which polls failed in between, or ever; without those of a busy
    machine.
    """
    counts = earlier.errors() if earlier else {}
    return {
        reason
        for reason, count in later.errors().items()
        if count > counts.get(reason, 0)
    } - LATE


def assert_fails(exporter: RunningExporter, reason: str, more: int = 1) -> Metrics:
    """Wait until polls have failed under this reason again, see what is promised then;
    return the metrics.
    """
    first = exporter.metrics().errors().get(reason, 0)
    failing = exporter.metrics_when(lambda m: m.errors().get(reason, 0) > first)
    enough = failing.errors()[reason] + more
    during = exporter.metrics_when(lambda m: m.errors().get(reason, 0) >= enough)
    assert during.value("up") == 0
    assert during.of_engines() == set()
    assert new_errors(failing, during) <= {reason}, during.errors()
    assert_alive(exporter)
    return during


@dataclass
class Rig:
    """An exporter before one server."""

    server: FaultyServer
    exporter: RunningExporter

    def mend(self) -> Metrics:
        """Let the server be well, and see that the exporter is."""
        self.server.behaviour = replay(start=40)
        mended = self.exporter.metrics_when(
            lambda m: (
                m.value("up") == 1 and m.value("drafts_total", model_name="tiny-llama")
            )
        )
        assert_alive(self.exporter)
        return mended

    def breaks(self, behaviour: Behaviour, reason: str) -> None:
        """Inject a fault of the server, for which polls may fail under this reason
        alone, and mend it.
        """
        self.server.behaviour = behaviour
        assert_fails(self.exporter, reason)
        self.mend()


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


#: Run by Python before the program: the clock on the wall, the name service and a file
#: system that hangs, as files beside it have them.
_INTERPOSED = """
import io, os, pathlib, socket, time
HERE = pathlib.Path(__file__).parent
wall, look_up, read = time.time, socket.getaddrinfo, io.open

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
    infos = (look_up(address, port, *args, **more) for address in addresses)
    return [info for found in infos for info in found]

def hanging(function):
    def called(path, *args, **more):
        while True:
            try:
                with read(HERE / "hanging") as listed:
                    hangs = str(path) in listed.read().splitlines()
            except OSError:
                hangs = False
            if not hangs:
                return function(path, *args, **more)
            (HERE / "hung").touch()
            time.sleep(0.05)
    return called

time.time, socket.getaddrinfo = shifted, resolved
os.open, os.stat, io.open = hanging(os.open), hanging(os.stat), hanging(io.open)
"""


class Surroundings:
    """The wall clock, the names and the files of one process; names under ``.test`` are
    resolved here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "sitecustomize.py").write_text(_INTERPOSED)
        self.env = {"PYTHONPATH": str(folder)}

    def _write(self, name: str, text: str) -> None:
        """Write a file in one step: the process reads it at any time."""
        new = self._folder / f".{name}"
        new.write_text(text)
        new.replace(self._folder / name)

    def shift_clock(self, seconds: float) -> None:
        """Let the wall clock be so much ahead of the real one."""
        self._write("shift", str(seconds))

    def resolve(self, *addresses: str) -> None:
        """Let every name stand for these addresses, without any for none."""
        if addresses:
            self._write("hosts", " ".join(addresses))
        else:
            (self._folder / "hosts").unlink(missing_ok=True)

    def hang(self, *paths: Path | str) -> None:
        """Let every access to these files hang, and to no other."""
        self._write("hanging", "\n".join(map(str, paths)))

    @property
    def hangs(self) -> bool:
        """Whether the process tried to read one of them."""
        return (self._folder / "hung").exists()

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
    soft_and_hard = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (value, soft_and_hard[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, limit, soft_and_hard)


# --- clients


def connect(url: str, receive_buffer: int = 0, source: str = "") -> socket.socket:
    """Open a connection to where a URL points, from `source` if given."""
    parts = urlsplit(url)
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
    """Read one answer: its status, an empty line and its body."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert len(answer.headers.get_all("Content-Length", ())) == 1
    return f"HTTP/1.1 {answer.status} {answer.reason}\r\n\r\n".encode() + answer.read()
