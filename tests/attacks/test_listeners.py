"""Attacks on the listeners: none makes the process large or slow, or keeps probes from
their answers.

Each asserts the memory limits of the chart, that probes are answered, that the stream
of another client goes on, and that no connection is left behind. Limits are those that
tell right from wrong on a busy machine: without protection, each attack takes ten times
as much.
"""

import contextlib
import gzip
import json
import math
import os
import re
import resource
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.rig import connect, counted, cpu_seconds, get, limited, read_answer, vllm
from support.commands import run_here
from support.exporter import RunningExporter, request, running_exporter
from support.faulty_server import (
    FaultyServer,
    answer,
    flood,
    head,
    replay,
    sequence,
    status,
)
from support.ports import free_port
from support.programs import eventually
from vllm_specdec_exporter.listener.connection_limits import MAX_CONNECTIONS
from webconfig.https import HTTPS, address_of, client_context, guarded
from webconfig.pki import Pki

pytestmark = pytest.mark.full

MIB = 1024 * 1024
#: The limits of the chart, and memory that one attack may add.
LIMIT = 128 * MIB
LIMIT_WITH_TAP = 256 * MIB
MOST = 60 * MIB
TOKEN = "a-token-for-tests"
#: The body of a request whose answer goes on until the attack is over.
STREAMED = b"streamed"


class _Server(socketserver.ThreadingTCPServer):
    """What is behind the tap: reads, and answers what it is told to."""

    daemon_threads = True
    request_queue_size = 1024  # beyond it the system resets connections
    pieces: tuple[bytes, ...] = ()

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        with contextlib.suppress(OSError):
            length = 0
            while (line := self.rfile.readline(65536)) not in (b"\r\n", b""):
                if line.startswith(b"Content-Length:"):
                    length = int(line.split(b":")[1])
            # This one stays open for the bystander of the whole attack.
            if self.rfile.read(length) == STREAMED:
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
                    b"first\r\n"
                )
                self.server.goes_on.wait()
                self.wfile.write(b"4\r\nlast\r\n0\r\n\r\n")
                return
            for piece in self.server.pieces:
                self.wfile.write(piece)
            while self.rfile.read1(MIB):
                pass


def peak(exporter: RunningExporter) -> int:
    """The most memory that the process ever had, in bytes."""
    [line] = re.findall(
        r"VmHWM:\s+(\d+) kB", Path(f"/proc/{exporter.pid}/status").read_text()
    )
    return int(line) * 1024


@dataclass
class Attacked:
    """An exporter with a tap and pushes, and how it was before."""

    exporter: RunningExporter
    server: _Server
    tap: str
    memory: int = 0
    cpu: float = 0.0

    def __post_init__(self) -> None:
        self.memory = peak(self.exporter)
        self.cpu = cpu_seconds(self.exporter)

    def assert_small(self, *, cpu: float, memory: int = MOST) -> None:
        """It took no more memory than allowed, and so many seconds of processor."""
        assert peak(self.exporter) - self.memory < memory, "memory"
        assert cpu_seconds(self.exporter) - self.cpu < cpu, "processor time"


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Attacked]:
    (tmp_path / "token").write_text(TOKEN)
    with _Server() as server, FaultyServer(replay()) as vllm:
        tap = f"127.0.0.1:{free_port()}"
        behind = f"http://127.0.0.1:{server.server_address[1]}"
        flags = (
            f"--tap.listen-address={tap}",
            f"--tap.upstream={behind}",
            f"--vllm.url={vllm.url}",
            f"--push.bearer-token-file={tmp_path / 'token'}",
        )
        with (
            running_exporter(*flags) as exporter,
            connect(f"http://{tap}") as bystander,
        ):
            exporter.wait_until_up()
            bystander.sendall(post(STREAMED))
            assert bystander.recv(MIB).startswith(b"HTTP/1.1 200")
            open_files = exporter.descriptors()
            with probed(exporter):
                yield Attacked(exporter, server, f"http://{tap}")
            eventually(lambda: exporter.descriptors() <= open_files)
            assert peak(exporter) < LIMIT_WITH_TAP
            server.goes_on.set()
            assert bystander.recv(MIB) == b"4\r\nlast\r\n0\r\n\r\n", (
                "the stream of another client was cut"
            )
            assert "Traceback" not in exporter.log()
        server.shutdown()


#: Seconds of processor time that a probe may take. The chart gives 0.2 of a core, and a
#: probe 5 s, which is 1 s of it: a third of that. Measured are up to 0.15 s.
_SOON = 0.3
_PROBER = Path(__file__).with_name("prober.py")


@contextlib.contextmanager
def probed(exporter: RunningExporter, within: float = _SOON) -> Iterator[None]:
    """Send probes from another address: 99 of 100 are answered within so much processor
    time, in seconds, as far as chance lets one tell.

    That is what a probe waits for where nothing else runs, and it does not grow where
    others take the machine. Time in which the process only waits has another bound.
    """
    target = [*exporter.address.split(":"), str(exporter.pid)]
    with subprocess.Popen(
        [sys.executable, _PROBER, *target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as prober:
        assert prober.stdout is not None
        assert prober.stdout.readline() == "probing\n"
        try:
            yield
        finally:
            output, _ = prober.communicate(timeout=120)
    assert prober.returncode == 0
    took = json.loads(output)
    processor, waited = (sorted(each) for each in zip(*took, strict=True))
    # Three standard deviations above it (Poisson): of few probes the hundredth part is
    # less than one, and the 99th percentile would be the slowest of all.
    hundredth = len(took) / 100
    slow = [each for each in processor if each >= within]
    assert len(slow) <= hundredth + 3 * math.sqrt(hundredth), (len(took), slow)
    assert waited[len(took) * 9 // 10] < 0.5, waited


def post(body: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """A request with a body as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


# --- the tap


def test_endless_head(attacked: Attacked) -> None:
    """A header, its name or a URL without end passes, and is not collected."""
    for begin in (b"GET / HTTP/1.1\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\nX"):
        with connect(attacked.tap) as client:
            client.sendall(begin)
            for _ in range(48):
                client.sendall(b"a" * MIB)
            attacked.assert_small(cpu=10.0, memory=20 * MIB)


def exchange(attacked: Attacked, body: bytes, *answer: bytes) -> None:
    """Send a request through the tap, and read the answer of these pieces."""
    response = b"".join(answer)
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        f"{len(response)}\r\n\r\n"
    ).encode()
    attacked.server.pieces = (head, *answer)
    observations = attacked.exporter.metrics().values("request_observations_total")
    with connect(attacked.tap) as client:
        client.settimeout(120)
        client.sendall(post(body))
        assert read_answer(client).endswith(response)
    attacked.exporter.wait_for(
        lambda m: m.values("request_observations_total") != observations
    )


ANSWER = b'{"model":"m","choices":[{"index":0}]}'


def test_request_with_many_names(attacked: Attacked) -> None:
    """It is still observed: what is needed is read, and no other name is kept."""
    names = b",".join(b'"%d":0' % number for number in range(700_000))
    exchange(attacked, b'{"model":"m",' + names + b"}", ANSWER)
    attacked.assert_small(cpu=4.0)


def test_answer_with_many_objects(attacked: Attacked) -> None:
    """Choices without end, and a record with many names, are counted and not kept."""
    many = b",".join([b"{}"] * 2_000_000)
    exchange(attacked, b'{"model":"m"}', b'{"model":"m","choices":[' + many + b"]}")
    names = b",".join(b'"%d":0' % number for number in range(700_000))
    record = b'"metrics":{"speculative_decoding":{' + names + b"}}"
    exchange(
        attacked,
        b'{"model":"m"}',
        b'{"model":"m","choices":[{"index":0}],' + record + b"}",
    )
    attacked.assert_small(cpu=4.0)


def chunked(pieces: Iterable[bytes]) -> bytes:
    """A chunk of its own for each piece, so that the pieces stay apart on their way."""
    parts = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return b"".join(parts) + b"0\r\n\r\n"


def stream(attacked: Attacked, body: bytes) -> None:
    """Send a request through the tap, and read this chunked stream of events."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n"
    )
    attacked.server.pieces = (head, body)
    with connect(attacked.tap) as client:
        client.settimeout(120)
        client.sendall(post(b'{"model":"m","stream":true}'))
        read = bytearray()
        while not read.endswith(b"0\r\n\r\n"):
            read += client.recv(MIB)
        assert read == head + body


def test_event_in_small_pieces(attacked: Attacked) -> None:
    """An event of nearly the largest size that is read, of which each piece is sent by
    itself.
    """
    event = b'data: {"model":"m","choices":[{"text":"' + b"a" * 3_900_000 + b'"}]}\n\n'
    pieces = [event[at : at + 100] for at in range(0, len(event), 100)]
    stream(attacked, chunked([*pieces, b"data: [DONE]\n\n"]))
    attacked.exporter.wait_for(lambda m: m.total("request_observations_total") == 1)
    attacked.assert_small(cpu=4.0)


@pytest.mark.parametrize(
    ("event", "in_a_chunk", "chunks"),
    [
        (b"a", 1, 1_300_000),
        (b"data:x\n\n", 1_000_000, 1),
        (b"data:x\r\r", 1_000_000, 1),
        (b"data:xxxxxxxxx\n\n", 1, 400_000),
    ],
    ids=["chunks", "events", "CR", "both"],
)
def test_streams_of_tiny_pieces(
    attacked: Attacked, event: bytes, in_a_chunk: int, chunks: int
) -> None:
    """After ten thousand of them, a stream is not observed any more."""
    stream(attacked, chunked([event * in_a_chunk] * chunks))
    attacked.assert_small(cpu=1.5)


def test_request_in_tiny_chunks(attacked: Attacked) -> None:
    """It passes, and is not observed."""
    with connect(attacked.tap) as client:
        client.settimeout(120)
        head, _, _ = post(b"", "Transfer-Encoding: chunked").rpartition(
            b"Content-Length"
        )
        client.sendall(head + b"\r\n" + chunked([b"a"] * 1_300_000))
    attacked.exporter.wait_for(
        lambda m: m.value("tap_unobserved_total", reason="connection") == 1
    )
    attacked.assert_small(cpu=1.5)


def test_heads_of_many_names(attacked: Attacked) -> None:
    """Of the headers of a request, those that are needed are kept, and as long as they
    are needed.
    """
    lines = (f"{number:x}:" for number in range(9000))
    head = "\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(connect(attacked.tap)).sendall(head)
        attacked.exporter.wait_for(lambda m: m.total("tap_requests_total") > 150)
        attacked.assert_small(cpu=4.0, memory=20 * MIB)


def test_connections_that_take_all_descriptors(attacked: Attacked) -> None:
    """Half of them, or some hundreds, are left for polls and for the other port; the
    rest wait.
    """
    with (
        limited(attacked.exporter.pid, resource.RLIMIT_NOFILE, 200),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(300):
            stack.enter_context(connect(attacked.tap))
        attacked.exporter.wait_for(lambda m: m.total("tap_open_connections") >= 40)
        assert attacked.exporter.get("/-/healthy").status == 200
        polls = attacked.exporter.metrics().total("last_success_timestamp_seconds")
        attacked.exporter.wait_for(
            lambda m: m.total("last_success_timestamp_seconds") > polls
        )
        assert attacked.exporter.metrics().total("tap_open_connections") <= 60
    # the bystander
    attacked.exporter.wait_for(lambda m: m.value("tap_open_connections") == 1)


# --- port 9850


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/-/healthy", "", 405),
        ("/api/v1/requests", "", 401),
        ("/api/v1/requests", TOKEN, 415),
    ],
)
def test_compressed_bodies(
    attacked: Attacked, path: str, token: str, status: int
) -> None:
    """No body is decompressed."""
    bomb = gzip.compress(bytes(200 * MIB))
    headers = ("Content-Encoding: gzip", f"Authorization: Bearer {token}")
    answers = []
    for _ in range(4):
        with connect(attacked.exporter.url) as client:
            client.sendall(post(bomb, *headers, path=path))
            answers.append(read_answer(client).split(b" ")[1])
    assert answers == [b"%d" % status] * 4
    attacked.assert_small(cpu=2.0)


@pytest.mark.parametrize(
    ("path", "addresses", "ahead"),
    [("/", 1, 1), ("/config", 1, 1), ("/", 4, 1), ("/metrics", 1, 20), ("/", 1, 20)],
)
def test_many_requests_at_a_time(
    attacked: Attacked, path: str, addresses: int, ahead: int
) -> None:
    """Probes come first where many connections ask again and again, also many requests
    ahead of an answer.
    """
    with contextlib.ExitStack() as stack:
        sources = [f"127.0.0.{number + 1}" for number in range(addresses)] * 12
        crowd = [
            stack.enter_context(connect(attacked.exporter.url, source=source))
            for source in sources
        ]
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for client in crowd:
                client.sendall(get(path) * ahead)
            for client in crowd:
                if ahead == 1:
                    read_answer(client)
                    continue
                # The reader of one answer would swallow the beginning of the next.
                answers = b""
                while answers.count(b"HTTP/1.1 ") < ahead:
                    answers += client.recv(MIB)


@contextlib.contextmanager
def throttled(pid: int) -> Iterator[None]:
    """Give a process a fifth of a core, as a limit in Kubernetes does: stop it while it
    is 20 ms or more ahead of that.
    """
    end = threading.Event()
    clock = ~pid << 3 | 2

    def throttle() -> None:
        ahead = 0.0
        seen = time.monotonic(), time.clock_gettime(clock)
        while not end.is_set():
            now = time.monotonic(), time.clock_gettime(clock)
            ahead += now[1] - seen[1] - 0.2 * (now[0] - seen[0])
            # What others of the machine kept it from is given later, up to five turns.
            ahead = max(ahead, -0.1)
            seen = now
            if ahead >= 0.02:
                os.kill(pid, signal.SIGSTOP)
                end.wait(ahead / 0.2)
                os.kill(pid, signal.SIGCONT)
            end.wait(0.002)

    with ThreadPoolExecutor() as pool:
        throttling = pool.submit(throttle)
        try:
            yield
        finally:
            end.set()
            throttling.result()
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("linger", [(1, 0), (0, 0)], ids=["reset", "closed"])
def test_connections_that_end_at_once(
    attacked: Attacked, linger: tuple[int, int]
) -> None:
    """From four addresses, each with a request: what the chart gives in processor time
    is enough.
    """
    begin = time.monotonic()

    def reset(source: str) -> None:
        opened = 0
        while (passed := time.monotonic() - begin) < 6:
            with connect(attacked.exporter.url, source=source) as client:
                client.sendall(get("/metrics"))
                client.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *linger)
                )
            opened += 1
            # 300 connections a second from each address, not as many as go
            time.sleep(max(0.0, opened / 300 - passed))

    # An unthrottled process would hide what each connection costs.
    with throttled(attacked.exporter.pid), ThreadPoolExecutor() as pool:
        list(pool.map(reset, (f"127.0.0.{number}" for number in range(2, 6))))


def leave(url: str, *requests: bytes) -> None:
    """Send each request on connections that are reset at once: an answer, also an
    interim one, meets that.
    """
    for each in requests:
        for _ in range(100):
            with connect(url) as client:
                client.sendall(each)
                client.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )


def test_requests_that_would_fill_the_log(attacked: Attacked) -> None:
    """Not a line for each: none of clients that leave, and one of reloads that all have
    the same result.
    """
    logged = len(attacked.exporter.log_lines())
    expect = "Expect: 100-continue"
    headers = (expect, "Expect: x", "a" * 9000)
    for path in ("/-/healthy", "/metrics", "/nothing"):
        requests = [get(path, header) for header in headers]
        leave(attacked.exporter.url, *requests)
    leave(attacked.exporter.url, post(b"{}", expect, path="/api/v1/requests"))
    url = f"{attacked.exporter.url}/-/reload"
    reloads = [request(url, "POST", source="127.0.0.9").status for _ in range(4)]
    assert reloads == [200] * 4
    lines = [
        line["msg"]
        for line in attacked.exporter.log_lines()[logged:]
        if "target" not in line
    ]
    assert lines == ["configuration reloaded"]


def test_long_lists_of_encodings(attacked: Attacked) -> None:
    """A head is read up to 64 KiB, and what a client accepts up to less."""
    commas = "Accept-Encoding: " + "," * 8000
    for lines in (3, 100):
        for _ in range(10):
            with connect(attacked.exporter.url) as client:
                with contextlib.suppress(ConnectionError):  # cut off
                    client.sendall(get("/metrics", *[commas] * lines))
                if lines == 3:
                    assert read_answer(client).startswith(b"HTTP/1.1 200"), lines
    attacked.assert_small(cpu=2.0)


@pytest.mark.parametrize(
    "ahead", [b"", get("/-/ready")], ids=["first", "behind a request"]
)
def test_heads_that_never_end(attacked: Attacked, ahead: bytes) -> None:
    """Of many connections, on which headers come without an end; all are closed."""
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(
                connect(attacked.exporter.url, source=f"127.0.0.{number % 2 + 2}")
            )
            for number in range(400)
        ]
        for client in crowd:
            client.setblocking(False)
            # closed: one address has a fifth of the connections
            with contextlib.suppress(OSError):
                client.sendall(
                    ahead
                    + b"GET / HTTP/1.1\r\n"
                    + (b"Y: " + b"a" * 8100 + b"\r\n") * 119
                )
            client.settimeout(60)
        attacked.assert_small(cpu=10.0)
        for client in crowd:
            with contextlib.suppress(ConnectionError):
                assert ahead or client.recv(1) == b"", client
                while client.recv(MIB):
                    pass


def test_silent_connections_over_tls(tmp_path: Path) -> None:
    """With as many as there may be, the chart's limit holds."""
    pki = Pki(tmp_path)
    with (
        guarded(pki, HTTPS) as exporter,
        contextlib.ExitStack() as stack,
    ):
        context = client_context(pki)
        memory = peak(exporter)
        [host, port] = address_of(exporter)
        for number in range(MAX_CONNECTIONS):
            client = stack.enter_context(
                connect(f"https://{host}:{port}", source=f"127.0.0.{number % 4 + 1}")
            )
            stack.enter_context(
                context.wrap_socket(client, server_hostname="localhost")
            )
        assert peak(exporter) - memory < 30 * MIB
        assert peak(exporter) < LIMIT


# --- the server

SLOW = ("--poll.interval", "3s", "--poll.timeout", "2900ms")


def test_server_with_many_positions() -> None:
    """They are left out with a finding, so that metrics and page stay small, and probes
    are answered.
    """
    positions = range(1000, 260, -10)
    bodies = [vllm(counted(times, positions), engines=240) for times in (1, 2, 3)]
    with (
        FaultyServer(sequence(bodies)) as server,
        running_exporter("--vllm.url", server.url, *SLOW) as exporter,
    ):
        exporter.wait_for(
            lambda m: len(m.values("window_drafts", window="30s")) == 240,
            "window_drafts",
        )
        with probed(exporter):
            bodies = [
                request(exporter.url + path, timeout=60).body
                for path in ("/", "/metrics", "/api/v1/snapshot")
            ]
        assert max(map(len, bodies)) < 3 * MIB
        assert b"positions in one response: per-position values ignored" in bodies[2]
        assert peak(exporter) < LIMIT


def test_server_whose_names_are_long() -> None:
    """What they would make of `/metrics` is refused if it is too much; up to that,
    memory is enough.
    """
    with (
        FaultyServer(answer(vllm(model="m" * 1000, engines=250))) as server,
        running_exporter("--vllm.url", server.url, *SLOW) as exporter,
    ):
        exporter.wait_for(lambda m: m.errors().get("malformed"))
        assert "its labels would take 8388608 characters" in exporter.get("/").text
        server.behaviour = answer(vllm(model="m" * 320, engines=250))
        exporter.wait_until_up()
        with probed(exporter):
            scrapes = [request(f"{exporter.url}/metrics", timeout=60) for _ in range(3)]
        assert min(len(scrape.body) for scrape in scrapes) > 4 * MIB
        assert peak(exporter) < LIMIT


def test_scrapes_of_a_thousand_servers() -> None:
    """A plain scrape holds up no probe, and fits into memory: it is nowhere in one
    piece.
    """
    with (
        FaultyServer(answer(vllm()), host="0.0.0.0") as server,
        contextlib.ExitStack() as stack,
    ):
        urls = [
            f"--vllm.url=http://127.0.{n // 250}.{n % 250 + 1}:{server.port}"
            for n in range(1000)
        ]
        # A thousand polls share one machine: the interval leaves room for scrapes.
        slow = ("--poll.interval", "25s", "--poll.timeout", "9s")
        exporter = stack.enter_context(running_exporter(*urls, *slow))
        exporter.wait_for(lambda m: m.total("up") == 1000, "up")
        memory = peak(exporter)
        with probed(exporter):
            scrapes = [request(f"{exporter.url}/metrics", timeout=60) for _ in range(3)]
        assert min(len(scrape.body) for scrape in scrapes) > 5 * MIB
        assert peak(exporter) - memory < 2.5 * len(scrapes[0].body), "memory"


def test_credentials_that_the_server_quotes(tmp_path: Path) -> None:
    """In a reason phrase, a redirect or a malformed line: masked on pages, in the log
    and by commands.
    """
    token = "eyJhbGciOi.J9-secret-token" * 8
    (tmp_path / "token").write_text(token)
    key = "another-secret-key"
    flags = (
        f"--vllm.bearer-token-file={tmp_path / 'token'}",
        f"--vllm.header=X-Key: {key}",
    )
    secrets = (key, "hidden%20word", "hidden word", "two parts", token[:20])
    behaviours = (
        status(f"403 no {token} another-secret-key"),
        status(f"403 {'x' * 200} {token}"),
        status(
            "302 Found",
            Location=(
                f"http://elsewhere/?pwd=hidden%20word&x={token}&hidden word, two parts"
            ),
        ),
        answer(b"", Content_Encoding=token),
        answer(f"vllm:x{{{token}".encode()),
        answer(f'vllm:spec_decode_num_drafts_total{{engine="{token}"}} -1\n'.encode()),
        answer(b"!" + token.encode() + b" hidden word\n"),
    )
    with FaultyServer(replay()) as server:
        url = f"{server.url}/metrics?pwd=hidden%20word&pass=two+parts"
        with running_exporter("--vllm.url", url, *flags) as exporter:
            exporter.wait_until_up()
            for number, behaviour in enumerate(behaviours):
                failed = exporter.metrics().total("poll_errors_total")
                server.behaviour = behaviour
                exporter.wait_for(
                    lambda m, enough=failed + 2: m.total("poll_errors_total") >= enough
                )
                texts = [
                    exporter.get(path).text
                    for path in ("/", "/api/v1/snapshot", "/metrics", "/config")
                ]
                assert "secret" in "".join(texts), f"nothing of {number} is quoted"
                saved = f"--out={tmp_path / 'baseline.json'}"
                checked = run_here("check", url, *flags)
                recorded = run_here("baseline", url, *flags, saved)
                texts += [checked.out, checked.err, recorded.out, recorded.err]
                shown = "".join([*texts, exporter.log()]).lower()
                leaked = [secret for secret in secrets if secret.lower() in shown]
                assert leaked == [], number


@pytest.mark.parametrize(
    ("begin", "block"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (head(Transfer_Encoding="chunked"), b"1\r\na\r\n" * 10_000),
        (head(Transfer_Encoding="chunked"), b"1;" + b"x" * 1000 + b"\r\na\r\n"),
    ],
    ids=["interim answers", "chunks of a byte", "chunk extensions"],
)
@pytest.mark.parametrize("unix", [False, True], ids=["TCP", "Unix socket"])
def test_server_that_sends_no_body(
    tmp_path: Path, begin: bytes, block: bytes, unix: bool
) -> None:
    """What it sends beside a body has a limit, so that a poll does not take all the
    time it has.
    """
    path = tmp_path / "vllm.sock" if unix else None
    with (
        FaultyServer(flood(begin, block), unix=path) as server,
        running_exporter("--vllm.url", server.url, *SLOW) as exporter,
    ):
        exporter.wait_for(lambda m: m.total("poll_errors_total") >= 1)
        used = cpu_seconds(exporter)
        failing = exporter.metrics_when(lambda m: m.total("poll_errors_total") >= 4)
        assert cpu_seconds(exporter) - used < 0.5 * 3
        assert failing.errors().keys() == {"malformed"}
