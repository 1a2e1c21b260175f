"""The real exporter as a process, a client for it, and servers to point it at that misbehave on demand."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import yaml
from prometheus_client.parser import text_string_to_metric_families

from closing import turns
from vllm_specdec_exporter.metric import Kind, Scope
from vllm_specdec_exporter.metrics import METRICS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType

T = TypeVar("T")

DATA = Path(__file__).parents[1] / "data"
COMMAND = str(Path(sys.executable).with_name("vllm-specdec-exporter"))
CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: Fast enough for tests, with room for a busy machine.
FAST: Mapping[str, str] = {
    "--poll.interval": "500ms",
    "--poll.timeout": "480ms",
    "--web.listen-address": "127.0.0.1:0",
}


# --- waiting


def eventually(condition: Callable[[], T], within: float = 15.0) -> T:
    """Return what `condition` returns once that is true; fail when it takes longer than `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"did not happen within {within:g} s: {condition}"
        time.sleep(0.03)


# --- what a real vLLM answered


@cache
def capture(scenario: str = "ngram-phases") -> bytes:
    """The last answer of a recorded scenario."""
    return (DATA / "captures" / scenario / "metrics-final.txt").read_bytes()


@cache
def series(scenario: str = "ngram-phases") -> tuple[bytes, ...]:
    """The answers of a recorded scenario, one a second."""
    with gzip.open(DATA / "captures" / scenario / "metrics-series.jsonl.gz", "rt") as file:
        return tuple(json.loads(line)["text"].encode() for line in file)


# --- a client


@dataclass(frozen=True)
class Answer:
    """An answer of the exporter."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()


def request(url: str, method: str = "GET", timeout: float = 10.0, source: str = "", **headers: str) -> Answer:
    """Ask for `url` over a connection of its own, from `source`; underscores in header names mean dashes."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(
        parts.hostname, parts.port, timeout=timeout, source_address=(source, 0) if source else None
    )
    begin = time.monotonic()
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    known = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, known, body, time.monotonic() - begin)


Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The samples of one exposition, by name (without the prefix) and labels."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix("vllm_specdec_")
                found = self.samples.setdefault(name, {})
                key = tuple(sorted(sample.labels.items()))
                assert key not in found, f"{sample.name}{key} occurs twice"
                found[key] = sample.value

    def value(self, name: str, /, **labels: str) -> float | None:
        """The value of the one series of this name that has these labels, `None` where there is none."""
        found = self.values(name, **labels)
        assert len(found) < 2, f"several series: {found}"
        return next(iter(found.values()), None)

    def values(self, name: str, /, **labels: str) -> dict[Labels, float]:
        """Every series of this name that has these labels."""
        wanted = set(labels.items())
        return {key: value for key, value in self.samples.get(name, {}).items() if wanted <= set(key)}

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of every series of this name."""
        return [dict(key) for key in self.samples.get(name, {})]

    def one_hot(self, name: str, /, **labels: str) -> list[str]:
        """Which states of this one-hot metric are 1."""
        own = next(row.labels[0] for row in METRICS if row.name == name)
        return [dict(key)[own] for key, value in self.values(name, **labels).items() if value == 1]

    def errors(self, **labels: str) -> dict[str, float]:
        """The poll errors that occurred, by reason."""
        found = self.values("poll_errors_total", **labels)
        return {dict(key)["reason"]: value for key, value in found.items() if value}

    def of_engines(self, **labels: str) -> set[str]:
        """The names of samples with these labels that say something of an engine."""
        return {name for name in self.samples if name in ENGINE_SAMPLES and self.values(name, **labels)}


def _sample_names() -> Iterator[str]:
    for row in METRICS:
        if row.scope in (Scope.ENGINE, Scope.WINDOW):
            if row.kind is Kind.HISTOGRAM:
                yield from (f"{row.name}_{part}" for part in ("bucket", "count", "sum"))
            else:
                yield row.name


#: Samples that hang on an engine or on one of its windows: none of them may outlive a failed poll.
ENGINE_SAMPLES = frozenset(_sample_names())


# --- the exporter


_LOGFMT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^\s"=\\]+)(?: |$)')


def parse_logfmt(line: str) -> dict[str, str]:
    """Return the fields of a logfmt line; fail where it is none."""
    fields: dict[str, str] = {}
    position = 0
    while position < len(line):
        match = _LOGFMT.match(line, position)
        assert match is not None, f"not logfmt from character {position} on: {line!r}"
        assert match[1] not in fields, f"{match[1]} occurs twice: {line!r}"
        fields[match[1]] = json.loads(match[2]) if match[2].startswith('"') else match[2]
        position = match.end()
    return fields


@dataclass
class RunningExporter:
    """An exporter process."""

    process: subprocess.Popen[bytes]
    log_file: Path
    config_file: Path
    url: str = ""
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        self.pid = self.process.pid

    def get(self, path: str, **headers: str) -> Answer:
        return request(self.url + path, **headers)

    def post(self, path: str) -> Answer:
        return request(self.url + path, "POST")

    def metrics(self, *names: str) -> Metrics:
        """Return what /metrics says, of all series or of those with these names (without the prefix)."""
        query = "&".join(f"name[]=vllm_specdec_{name}" for name in names)
        return Metrics(self.get(f"/metrics?{query}").text)

    def snapshot(self, query: str = "") -> dict[str, Any]:
        answer = self.get(f"/api/v1/snapshot{query}")
        assert answer.status == 200, answer.text
        return dict(json.loads(answer.body))

    def configure(self, config: object) -> None:
        """Write the configuration file: text as it is, everything else as YAML."""
        self.config_file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))

    def wait_for(self, condition: Callable[[Metrics], T], *names: str, within: float = 15.0) -> T:
        """Return what `condition` returns of /metrics once that is true."""
        return eventually(lambda: condition(self.metrics(*names)), within)

    def wait_until_up(self) -> None:
        self.wait_for(lambda metrics: set(metrics.values("up").values()) == {1.0}, "up")

    def log(self) -> str:
        return self.log_file.read_text()

    def log_lines(self, message: str = "") -> list[dict[str, str]]:
        """The fields of the whole log lines so far, of those with this message if one is given."""
        lines = [parse_logfmt(line) for line in self.log().split("\n")[:-1]]
        return [line for line in lines if message in ("", line["msg"])]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds until then."""
        begin = time.monotonic()
        self.send(number)
        code = self.process.wait(timeout=20)
        return code, time.monotonic() - begin


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the processes: nothing of the tests' own but the path."""
    return {"PATH": os.environ.get("PATH", ""), **(more or {})}


@contextlib.contextmanager
def running_exporter(
    *args: str,
    env: Mapping[str, str] | None = None,
    config: object = None,
    fast: bool = True,
) -> Iterator[RunningExporter]:
    """Run the real command with `args` on a free port until it listens, and end it afterwards.

    Args:
        args: flags.
        env: environment variables beside PATH.
        config: content of the configuration file, as text or as an object to write as YAML.
        fast: whether to add the flags of `FAST` that are not given.
    """
    with tempfile.TemporaryDirectory() as directory:
        log_file, config_file = Path(directory, "log"), Path(directory, "config.yml")
        words = [COMMAND, *args]
        for flag, value in FAST.items() if fast else ():
            if flag not in args:
                words += [flag, value]
        if config is not None:
            words += ["--config.file", str(config_file)]
        with log_file.open("wb") as log:
            config_file.write_text(
                "" if config is None else config if isinstance(config, str) else yaml.safe_dump(config)
            )
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(env)
            )
        exporter = RunningExporter(process, log_file, config_file)
        try:
            exporter.url = eventually(lambda: _listens(exporter), 30)
            yield exporter
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(timeout=20)


def _listens(exporter: RunningExporter) -> str:
    """Return where the exporter listens once it does: as its log says, or else as its flag does."""
    log, words = exporter.log(), list(map(str, exporter.process.args))  # type: ignore[arg-type]
    assert exporter.process.poll() is None, f"it ended: {log}"
    given = words[words.index("--web.listen-address") + 1] if "--web.listen-address" in words else ":0"
    if not given.endswith(":0"):
        host, port = given.split(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return f"http://{given}"
        return ""
    found = re.search(r'(?:address=|"address": ?")([^\s"]+).*\n', log)
    return f"http://{found[1]}" if found else ""


# --- servers


@dataclass(frozen=True)
class Request:
    """What a server was asked; values of a header that came more than once are joined as HTTP has it."""

    method: str
    path: str
    headers: Mapping[str, str]


class Peer:
    """The other end of one connection, as a behaviour sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_request(self) -> Request:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").splitlines()
        method, path, _ = first.split(" ", 2)
        headers: dict[str, str] = {}
        for name, _, value in (line.partition(":") for line in lines if line):
            before = headers.get(name.lower())
            headers[name.lower()] = value.strip() if before is None else f"{before}, {value.strip()}"
        return Request(method, path, headers)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """End the connection in good order."""
        self._writer.close()

    async def wait_closed(self) -> None:
        await self._writer.wait_closed()

    def reset(self) -> None:
        """End the connection with a reset instead of a farewell."""
        connection = self._writer.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


@dataclass(frozen=True)
class Behaviour:
    """What a server does with a connection, once it has read the request or at once."""

    run: Callable[[Peer], Awaitable[None]]
    reads_request: bool = True


def head(status: str = "200 OK", version: str = "1.1", **headers: str | int | None) -> bytes:
    """The head of an answer; underscores in header names mean dashes, `None` leaves a header out."""
    lines = [f"HTTP/{version} {status}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode()


def raw(*parts: bytes | float, reads_request: bool = True, reset: bool = False) -> Behaviour:
    """Send bytes, pause for seconds where a number stands, then close or reset."""

    async def run(peer: Peer) -> None:
        for part in parts:
            if isinstance(part, bytes):
                await peer.send(part)
            else:
                await asyncio.sleep(part)
        if reset:
            peer.reset()
        else:
            peer.close()

    return Behaviour(run, reads_request)


def answer(
    body: bytes,
    status: str = "200 OK",
    content_type: str = CLASSIC,
    **headers: str | int | None,
) -> Behaviour:
    """Answer with `body`, properly."""
    fields = {"Content_Type": content_type, "Content_Length": len(body), **headers}
    return raw(head(status, **fields) + body)


def status(text: str, **headers: str | int | None) -> Behaviour:
    """Answer with a status and a short body."""
    return answer(b"no metrics here\n", text, **headers)


def hang(*before: bytes, reads_request: bool = True) -> Behaviour:
    """Send these bytes and then nothing more, without ever closing."""
    return raw(*before, 3600.0, reads_request=reads_request)


def drip(before: bytes, drop: bytes, pause: float) -> Behaviour:
    """Send `drop` after each pause, without end."""

    async def run(peer: Peer) -> None:
        await peer.send(before)
        while True:
            await peer.send(drop)
            await asyncio.sleep(pause)

    return Behaviour(run)


def flood(before: bytes, block: bytes) -> Behaviour:
    """Send `block` over and over as fast as it is taken."""
    return drip(before, block, 0)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", **headers: str | int | None) -> Behaviour:
    """Answer in chunks."""
    blocks = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    fields = {"Content_Type": CLASSIC, "Transfer_Encoding": "chunked", **headers}
    return raw(head(**fields), *blocks, end)


def sequence(bodies: Iterable[bytes], content_type: str = CLASSIC) -> Behaviour:
    """Answer one request after the other with these bodies, and from then on with the last."""
    left = list(bodies)

    async def run(peer: Peer) -> None:
        body = left.pop(0) if len(left) > 1 else left[0]
        await answer(body, content_type=content_type).run(peer)

    return Behaviour(run)


def replay(scenario: str = "ngram-phases", start: int = 5) -> Behaviour:
    """Answer with what a real vLLM answered, second by second."""
    return sequence(series(scenario)[start:])


class FaultyServer:
    """A server in a thread of its own that does with each connection what its behaviour says.

    Args:
        behaviour: what to do with requests; may be assigned anew at any time.
        host: address to listen on.
        unix: path of a Unix socket to listen on instead.
        tls: to speak TLS.

    Attributes:
        version: what to do with requests for /version.
        requests: what was asked, in order; without those that a behaviour did not read.
        connections: how many connections were accepted.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        host: str = "127.0.0.1",
        unix: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.version = status("404 Not Found")
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self._host = host
        self._unix = unix
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        if self._unix:
            return f"unix:{self._unix}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{self.port}"

    def polls(self) -> list[Request]:
        """The requests so far, without those for the version."""
        return [request for request in list(self.requests) if not request.path.endswith("/version")]

    def __enter__(self) -> FaultyServer:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self._run(self._hang_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def listen(self) -> None:
        """Accept connections, after `refuse` at the same address as before."""
        self._run(self._listen())

    def refuse(self) -> None:
        """Accept no more connections."""
        if self._listener is not None:
            self._run(self._close_listener())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _listen(self) -> None:
        if self._unix:
            self._unix.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self._unix))
            self._listener.listen()
        else:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            self._listener = socket.create_server((self._host, self.port), family=family)
            self.port = self._listener.getsockname()[1]
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _close_listener(self) -> None:
        assert self._listener is not None
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._listener = None

    async def _hang_up(self) -> None:
        # A task that never began would not close its connection.
        await turns(2)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close one turn of the loop after they were told to, TLS ones a few turns.
        await turns(10)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it went away again
        connection.setblocking(False)
        self.connections += 1
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        # The other side may go away at any time, also within the handshake: that is its right.
        gone = contextlib.suppress(OSError, asyncio.IncompleteReadError)
        with contextlib.closing(connection), gone:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            try:
                await self._behave(Peer(reader, writer))
            finally:
                transport.abort()
                await asyncio.sleep(0)

    async def _behave(self, peer: Peer) -> None:
        behaviour = self.behaviour
        if behaviour.reads_request:
            asked = await peer.read_request()
            self.requests.append(asked)
            if asked.path.endswith("/version"):
                behaviour = self.version
        await behaviour.run(peer)
        await peer.wait_closed()
