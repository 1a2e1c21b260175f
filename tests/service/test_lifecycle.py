"""The life of the process: start, reload, being held up, end, and what it logs on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from support.builders import vllm_lines
from support.exporter import Metrics, parse_logfmt, running_exporter
from support.faulty_server import Behaviour, FaultyServer, answer, capture, hang, replay, sequence
from support.programs import COMMAND, clean_environment, eventually
from vllm_specdec_exporter import config
from vllm_specdec_exporter.exporter import Exporter
from vllm_specdec_exporter.reading import Counters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.exporter import RunningExporter

pytestmark = pytest.mark.full

#: Within how many seconds the process must end: far sooner than what it could wait for, however busy the CPU.
PROMPT = 3.0
REFUSING = "http://127.0.0.1:1"


class TestEnd:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals(self, number: signal.Signals) -> None:
        """SIGTERM and SIGINT end the process at once, with exit code 0 and a line that says so."""
        with FaultyServer(replay()) as server, running_exporter("--vllm.url", server.url) as exporter:
            exporter.wait_until_up()
            code, seconds = exporter.terminate(number)

            assert code == 0
            assert seconds < PROMPT
            assert exporter.log_lines()[-1]["msg"] == "stopping"
            assert "Traceback" not in exporter.log()

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_with_a_hanging_server(self, scheme: str) -> None:
        """A poll that hangs, in the handshake or behind it, does not hold up the end."""
        with FaultyServer(hang(reads_request=False)) as server:
            url = server.url.replace("http", scheme)
            with running_exporter(
                "--vllm.url", url, "--poll.interval", "30s", "--poll.timeout", "20s"
            ) as exporter:
                eventually(lambda: server.connections)
                code, seconds = exporter.terminate()

                assert code == 0
                assert seconds < PROMPT
                assert "Traceback" not in exporter.log()

    def test_with_open_connections(self) -> None:
        """Idle connections, half a request and a scraper that does not read do not hold it up either."""
        with (
            FaultyServer(replay()) as server,
            running_exporter("--vllm.url", server.url) as exporter,
            contextlib.ExitStack() as stack,
        ):
            exporter.wait_until_up()
            idle, half, slow = (stack.enter_context(_connection(exporter)) for _ in range(3))
            idle.sendall(_get("/metrics"))
            eventually(lambda: b"vllm_specdec_build_info" in idle.recv(1 << 20))
            half.sendall(_get("/metrics")[:-4])
            slow.setblocking(False)
            _fill(slow)
            code, seconds = exporter.terminate()

            assert code == 0
            # Half a second of grace for whoever is still being answered.
            assert seconds < PROMPT + 0.5
            assert "Traceback" not in exporter.log()


def _connection(exporter: RunningExporter) -> socket.socket:
    host, port = exporter.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    return connection


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _fill(connection: socket.socket) -> None:
    """Ask without reading the answers until the exporter takes no more requests."""
    since = time.monotonic()
    while time.monotonic() - since < 0.3:
        try:
            connection.send(_get("/metrics") * 50)
            since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.02)


class TestClients:
    """Whatever clients do, it is no line in the log."""

    def test_that_misbehave(self) -> None:
        """Clients that speak no HTTP, or go away in the middle, leave no trace."""
        with FaultyServer(replay()) as server, running_exporter("--vllm.url", server.url) as exporter:
            exporter.wait_until_up()
            before = len(exporter.log_lines())
            for words in (
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
                b"nonsense\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
                _get("/metrics")[:-2],
                b"",
            ):
                with _connection(exporter) as connection:
                    with contextlib.suppress(OSError):
                        connection.sendall(words)
                    connection.settimeout(0.3)
                    with contextlib.suppress(OSError):
                        connection.recv(100)
            for _ in range(5):
                with _connection(exporter) as connection:
                    connection.sendall(_get("/metrics") * 20)
            assert exporter.get("/metrics").status == 200

            quiet = {"activity", "quality", "payoff", "recommendation", "server is up"}
            assert [line for line in exporter.log_lines()[before:] if line["msg"] not in quiet] == []


class TestStart:
    def test_port_in_use(self) -> None:
        """A port that is taken: one line that names flag, address and reason, and exit code 1."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = _run("--web.listen-address", address, "--vllm.url", REFUSING)

        assert (done.returncode, done.stdout) == (1, "")
        assert (
            f'vllm-specdec-exporter: error: --web.listen-address "{address}": '
            "cannot listen: Address already in use\n"
        ) == done.stderr

    def test_host_that_cannot_be_listened_on(self) -> None:
        """The same for a host that does not exist; the reason is one that can be understood."""
        done = _run("--web.listen-address", "no-such-host.invalid:9850", "--vllm.url", REFUSING)

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert '--web.listen-address "no-such-host.invalid:9850": cannot listen: ' in done.stderr
        assert "Unknown error" not in done.stderr

    def test_says_where(self) -> None:
        """The first line says version, address and servers, without their passwords."""
        with running_exporter(
            "--vllm.url", "http://user:hunter2@127.0.0.1:1", "--vllm.url", "unix:/no/such.sock"
        ) as exporter:
            [line] = exporter.log_lines("listening")
            log = exporter.log()

        assert exporter.url == f"http://{line['address']}"
        assert line["targets"] == "http://127.0.0.1:1,unix:/no/such.sock"
        assert "hunter2" not in log


def _run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *args], env=clean_environment(), capture_output=True, text=True, timeout=30, check=False
    )


class TestProbes:
    @pytest.mark.parametrize("behaviour", [hang(), answer(b"<html>\n"), None], ids=["hangs", "HTML", "gone"])
    def test_do_not_depend_on_the_server(self, behaviour: Behaviour | None) -> None:
        """Health and readiness are the exporter's own, so a pod stays ready whatever vLLM does."""
        with FaultyServer(behaviour or hang()) as server:
            if behaviour is None:
                server.refuse()
            with running_exporter("--vllm.url", server.url) as exporter:
                at_once = [exporter.get(path).status for path in ("/-/healthy", "/-/ready")]
                exporter.wait_for(lambda metrics: sum(metrics.errors().values()) >= 2)
                later = [exporter.get(path) for path in ("/-/healthy", "/-/ready")]

        assert at_once == [200, 200]
        assert [(a.status, a.text) for a in later] == [(200, "healthy\n"), (200, "ready\n")]


# --- reload


@pytest.fixture
def servers() -> Iterator[tuple[FaultyServer, FaultyServer]]:
    with FaultyServer(replay()) as one, FaultyServer(replay()) as other:
        yield one, other


def _settings(*servers: FaultyServer, **more: Any) -> dict[str, Any]:
    return {"vllm": {"url": [server.url for server in servers]}, **more}


def _span(metrics: Metrics, **labels: str) -> float:
    return max(metrics.values("window_span_seconds", **labels).values(), default=0.0)


def _windows(metrics: Metrics, target: str) -> set[str]:
    return {dict(key)["window"] for key in metrics.values("window_drafts", target=target)}


class TestReload:
    @pytest.mark.parametrize("how", ["SIGHUP", "POST"])
    def test_takes_effect(self, servers: tuple[FaultyServer, FaultyServer], how: str) -> None:
        """Thresholds, windows and servers of the changed file are in force, what was known is kept."""
        one, other = servers
        before = _settings(one, threshold={"minimum_drafts": 50}, window=["30s", "5m"])
        with running_exporter(config=before) as exporter:
            exporter.wait_for(lambda metrics: _span(metrics) > 0.8)
            read = exporter.metrics().value("config_last_reload_success_timestamp_seconds")
            span = _span(exporter.metrics())
            begin = time.monotonic()
            changed = _settings(one, other, threshold={"minimum_drafts": 70}, window=["10s", "1m"])
            exporter.configure(changed)
            self._reload(exporter, how)
            exporter.wait_for(
                lambda m: m.value("config_last_reload_success_timestamp_seconds") > read, within=5
            )
            metrics = exporter.wait_for(
                lambda m: m if len(m.values("up")) == 2 and set(m.values("up").values()) == {1.0} else None
            )

            assert metrics.value("threshold", name="minimum_drafts") == 70
            assert metrics.value("config_last_reload_successful") == 1
            assert {one.url, other.url} == {labels["target"] for labels in metrics.labels("up")}
            exporter.wait_for(lambda m: _windows(m, one.url) == {"10s", "1m"})
            grown = exporter.wait_for(lambda m: _span(m, target=one.url) > span and m)
            assert _span(grown, target=one.url) <= span + time.monotonic() - begin + 0.5
            assert grown.value("engine_resets_total", target=one.url) == 0
            assert grown.errors() == {}
            assert [line["msg"] for line in exporter.log_lines() if "configuration" in line["msg"]] == [
                "configuration reloaded"
            ]

            exporter.configure(_settings(other))
            self._reload(exporter, how)
            alone = exporter.wait_for(lambda m: m if len(m.values("up")) == 1 else None)
            assert alone.labels("up") == [{}]
            asked = len(one.polls())
            polled = len(other.polls())
            eventually(lambda: len(other.polls()) >= polled + 3)
            assert len(one.polls()) <= asked + 1

    @staticmethod
    def _reload(exporter: RunningExporter, how: str) -> None:
        if how == "SIGHUP":
            exporter.send(signal.SIGHUP)
        else:
            reloaded = exporter.post("/-/reload")
            assert (reloaded.status, reloaded.text) == (200, "reloaded\n")

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ("poll: [\n", "not YAML"),
            ("log: {level: loud}\n", "allowed: debug, info, warning, error"),
            ("vllm: {url: [http://a:1, http://a:1]}\n", "given twice"),
            (
                "vllm: {url: https://127.0.0.1:1, ca_file: /dev/null}\n",
                "no certificates in it",
            ),
        ],
    )
    def test_of_what_cannot_be_used(self, bad: str, message: str) -> None:
        """The old configuration stays in force; the answer, the log and a metric say why and that."""
        with FaultyServer(replay()) as server:
            good = _settings(server, threshold={"minimum_drafts": 50})
            with running_exporter(config=good) as exporter:
                exporter.wait_until_up()
                shown = exporter.get("/config").text
                exporter.configure(bad)
                refused = exporter.post("/-/reload")
                metrics = exporter.metrics()

                assert refused.status == 500
                assert refused.text.startswith("not reloaded: ")
                assert message in refused.text
                assert refused.text.count("\n") == 1
                assert metrics.value("config_last_reload_successful") == 0
                assert metrics.value("threshold", name="minimum_drafts") == 50
                assert shown == exporter.get("/config").text
                [line] = exporter.log_lines("configuration not reloaded")
                assert message in line["error"]
                polled = len(server.polls())
                eventually(lambda: len(server.polls()) > polled + 1)
                exporter.wait_until_up()

                exporter.send(signal.SIGHUP)
                eventually(lambda: len(exporter.log_lines("configuration not reloaded")) == 2)
                exporter.configure(good)
                assert exporter.post("/-/reload").status == 200
                assert exporter.metrics().value("config_last_reload_successful") == 1

    def test_of_what_needs_a_restart(self) -> None:
        """A new listen address is not taken, and the log says so."""
        settings = {"vllm": {"url": REFUSING}, "web": {"listen_address": "127.0.0.1:0"}}
        with running_exporter(config=settings, fast=False) as exporter:
            exporter.configure({**settings, "web": {"listen_address": "127.0.0.1:1"}})

            assert exporter.post("/-/reload").status == 200
            assert exporter.get("/-/ready").status == 200
            assert len([line for line in exporter.log_lines() if "restart" in line["msg"]]) == 1

    async def test_many_at_once(self) -> None:
        """However many reloads come together, each server is polled by one loop afterwards."""
        with FaultyServer(replay()) as server:
            exporter = Exporter(partial(config.load, {"vllm.url": [server.url]}, {}))
            exporter.start()
            try:
                await asyncio.gather(*(exporter.reload() for _ in range(5)))
                loops = [task for task in asyncio.all_tasks() if task.get_name().startswith("poll ")]

                assert len(loops) == 1
                assert exporter.healthy()
            finally:
                await exporter.stop()

    async def test_is_healthy_all_the_while(self) -> None:
        """A liveness probe that comes within a reload does not fail."""
        with FaultyServer(hang()) as server:
            exporter = Exporter(partial(config.load, {"vllm.url": [server.url]}, {}))
            exporter.start()
            try:
                reload = asyncio.create_task(exporter.reload())
                health = []
                while not reload.done():
                    health.append(exporter.healthy())
                    await asyncio.sleep(0)

                assert {True} == set(health)
            finally:
                await exporter.stop()

    def test_while_the_server_hangs(self) -> None:
        """A reload does not wait for a poll."""
        with (
            FaultyServer(hang()) as server,
            running_exporter(
                "--poll.interval", "30s", "--poll.timeout", "20s", config=_settings(server)
            ) as exporter,
        ):
            eventually(lambda: server.connections)

            assert exporter.post("/-/reload").seconds < 15


# --- held up


def test_nothing_stale_is_served() -> None:
    """After the process was stopped for long, the first answers hold nothing from before, and say why."""
    with (
        FaultyServer(replay()) as server,
        running_exporter("--vllm.url", server.url) as exporter,
        _connection(exporter) as scraper,
        _connection(exporter) as client,
    ):
        before = exporter.wait_for(lambda m: m if m.values("acceptance_ratio") else None)
        stamp = before.value("last_success_timestamp_seconds")
        exporter.send(signal.SIGSTOP)
        server.behaviour = hang()
        # The requests are there already when the process goes on, before anything else is.
        for connection, path in ((scraper, "/metrics"), (client, "/api/v1/snapshot")):
            connection.sendall(_get(path).replace(b"Host: x", b"Host: x\r\nConnection: close"))
        _wait(0.3 + 0.25 + 1.0 + 0.5)  # interval, timeout, grace, and more
        exporter.send(signal.SIGCONT)
        after = Metrics(_rest(scraper).decode())
        [target] = json.loads(_rest(client))["targets"]

        assert after.value("up") == 0
        assert set() == after.of_engines()
        assert stamp <= after.value("last_success_timestamp_seconds") < stamp + 1
        assert (target["up"], target["engines"]) == (False, [])
        assert target["failure"]["reason"] in ("stale", "timeout")
        server.behaviour = replay(start=40)
        exporter.wait_until_up()


def _rest(connection: socket.socket) -> bytes:
    """The body of the answer that comes until the connection is closed."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b"")).partition(b"\r\n\r\n")[2]


def _wait(seconds: float) -> None:
    """Let time pass: the one thing here that no condition can tell."""
    deadline = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= deadline)


# --- logs


class TestLog:
    @pytest.mark.parametrize("form", ["logfmt", "json"])
    def test_lines(self, form: str) -> None:
        """Every line is one record with time, level and message, in the form asked for."""
        with (
            FaultyServer(replay()) as server,
            running_exporter(
                "--vllm.url", server.url, "--log.format", form, "--log.interval", "300ms"
            ) as exporter,
        ):
            exporter.wait_until_up()
            server.behaviour = answer(b'<html> "quoted" = \\ \n')
            exporter.wait_for(lambda metrics: metrics.errors())
            server.behaviour = replay()
            exporter.wait_until_up()
            eventually(lambda: exporter.log().count("aggregate") >= 2)
            exporter.terminate()
            lines = exporter.log().split("\n")
            assert lines.pop() == ""
            read = json.loads if form == "json" else parse_logfmt
            records = [read(line) for line in lines]

        assert all(list(record)[:3] == ["time", "level", "msg"] for record in records)
        assert all(record["time"].endswith("Z") for record in records)
        assert {"info", "warning"} == {record["level"] for record in records}
        messages = [record["msg"] for record in records]
        for message in ("listening", "server is up", "activity", "server is down", "aggregate", "stopping"):
            assert message in messages

    def test_aggregate(self) -> None:
        """In the set interval, a line per engine has the values of the judged window."""
        first = Counters(0, 0, 0, (0, 0, 0, 0), 0)
        second = Counters(200, 800, 500, (200, 150, 100, 50), 1000)
        bodies = [
            "".join(f"{line}\n" for line in vllm_lines(c, model_name="m", engine="0")).encode()
            for c in (first, second)
        ]
        with (
            FaultyServer(sequence(bodies)) as server,
            running_exporter("--vllm.url", server.url, "--log.interval", "400ms") as exporter,
        ):
            line = eventually(
                lambda: next((x for x in exporter.log_lines("aggregate") if x.get("drafts") == "200"), None)
            )
            eventually(lambda: len(exporter.log_lines("aggregate")) >= 4)
            moments = [x["time"] for x in exporter.log_lines("aggregate")]

        expected = {
            "level": "info",
            "target": server.url,
            "model_name": "m",
            "engine": "0",
            "activity": "active",
            "num_speculative_tokens": "4",
            "window": "5m",
            "acceptance_ratio": "0.625",
            "mean_acceptance_length": "3.5",
            "mean_draft_length": "4.0",
            "coverage_ratio": "0.7",
            "position_0_acceptance_ratio": "1.0",
            "position_3_acceptance_ratio": "0.25",
        }
        assert expected == {name: line.get(name) for name in expected}
        assert len(set(moments)) == len(moments)

    def test_no_aggregate(self) -> None:
        """An interval of 0 s means none."""
        with (
            FaultyServer(replay()) as server,
            running_exporter("--vllm.url", server.url, "--log.interval", "0s") as exporter,
        ):
            eventually(lambda: len(server.polls()) > 5)

            assert exporter.log_lines("aggregate") == []
            assert exporter.get("/-/healthy").status == 200

    def test_level(self) -> None:
        """Lines below the level are left out."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        flags = ("--log.level", "warning", "--web.listen-address", address)
        with (
            FaultyServer(answer(capture())) as server,
            running_exporter("--vllm.url", server.url, *flags) as exporter,
        ):
            exporter.wait_until_up()
            server.behaviour = answer(b"")
            exporter.wait_for(lambda metrics: metrics.errors())

            assert [line["level"] for line in exporter.log_lines()] == ["warning"]
