"""The life of the process: start, reload, being held up, end, and what it logs on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from support.builders import vllm_lines
from support.commands import run
from support.exporter import Metrics, parse_logfmt, running_exporter
from support.faulty_server import FaultyServer, answer, capture, hang, replay, sequence
from support.ports import free_port
from support.programs import eventually
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.exporter import Exporter

if TYPE_CHECKING:
    from support.exporter import RunningExporter

pytestmark = pytest.mark.full

#: Within how many seconds the process must end: far sooner than what it could wait for, however busy the CPU.
PROMPT = 3.0
REFUSING = "http://127.0.0.1:1"


class TestEnd:
    def test_with_a_hanging_handshake(self) -> None:
        """A poll that hangs, already in the handshake, does not hold up the end."""
        with FaultyServer(hang(reads_request=False)) as server:
            slow = ("--poll.interval", "30s", "--poll.timeout", "20s")
            with running_exporter("--vllm.url", server.url.replace("http", "https"), *slow) as exporter:
                eventually(lambda: server.connections)
                code, seconds = exporter.terminate()

                assert code == 0
                assert seconds < PROMPT
                assert exporter.log_lines()[-1]["msg"] == "stopping"
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


def test_clients_that_misbehave() -> None:
    """Clients that speak no HTTP, or go away in the middle, leave no trace in the log."""
    with FaultyServer(replay()) as server, running_exporter("--vllm.url", server.url) as exporter:
        exporter.wait_until_up()
        before = len(exporter.log_lines())
        for words in (b"nonsense\r\n\r\n", _get("/metrics")[:-2], _get("/metrics") * 20, b""):
            with _connection(exporter) as connection, contextlib.suppress(OSError):
                connection.sendall(words)
                connection.settimeout(0.3)
                connection.recv(100)
        assert exporter.get("/metrics").status == 200

        quiet = {"activity", "quality", "payoff", "recommendation", "server is up"}
        assert [line for line in exporter.log_lines()[before:] if line["msg"] not in quiet] == []


class TestStart:
    def test_port_in_use(self) -> None:
        """A port that is taken: one line that names flag, address and reason, and exit code 1."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = run("--web.listen-address", address, "--vllm.url", REFUSING)

        assert (done.code, done.out) == (1, "")
        assert (
            f'vllm-specdec-exporter: error: --web.listen-address "{address}": '
            "cannot listen: Address already in use\n"
        ) == done.err

    def test_host_that_cannot_be_listened_on(self) -> None:
        """The same for a host that does not exist; the reason is one that can be understood."""
        done = run("--web.listen-address", "no-such-host.invalid:9850", "--vllm.url", REFUSING)

        assert (done.code, done.out) == (1, "")
        assert done.err.count("\n") == 1
        assert '--web.listen-address "no-such-host.invalid:9850": cannot listen: ' in done.err
        assert "Unknown error" not in done.err

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


# --- reload


def _settings(*servers: FaultyServer, **more: Any) -> dict[str, Any]:
    return {"vllm": {"url": [server.url for server in servers]}, **more}


def _span(metrics: Metrics, **labels: str) -> float:
    return max(metrics.values("window_span_seconds", **labels).values(), default=0.0)


def _windows(metrics: Metrics, target: str) -> set[str]:
    return {dict(key)["window"] for key in metrics.values("window_drafts", target=target)}


class TestReload:
    def test_takes_effect(self) -> None:
        """After SIGHUP or a POST, thresholds, windows and servers are the file's; what was known is kept."""
        with (
            FaultyServer(replay()) as one,
            FaultyServer(replay()) as other,
            running_exporter(
                config=_settings(one, threshold={"minimum_drafts": 50}, window=["30s", "5m"])
            ) as exporter,
        ):
            exporter.wait_for(lambda metrics: _span(metrics) > 0.8)
            read = exporter.metrics().value("config_last_reload_success_timestamp_seconds")
            span = _span(exporter.metrics())
            begin = time.monotonic()
            changed = _settings(one, other, threshold={"minimum_drafts": 70}, window=["10s", "1m"])
            exporter.configure(changed)
            exporter.send(signal.SIGHUP)
            exporter.wait_for(lambda m: m.value("config_last_reload_success_timestamp_seconds") > read)
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
            reloaded = exporter.post("/-/reload")
            assert (reloaded.status, reloaded.text) == (200, "reloaded\n")
            alone = exporter.wait_for(lambda m: m if len(m.values("up")) == 1 else None)
            assert alone.labels("up") == [{}]
            asked = len(one.polls())
            polled = len(other.polls())
            eventually(lambda: len(other.polls()) >= polled + 3)
            assert len(one.polls()) <= asked + 1

    def test_of_what_cannot_be_used(self) -> None:
        """The old configuration stays in force; the answer, the log and a metric say why and that."""
        with FaultyServer(replay()) as server:
            good = _settings(server, threshold={"minimum_drafts": 50})
            with running_exporter(config=good) as exporter:
                exporter.wait_until_up()
                shown = exporter.get("/config").text
                for number, (bad, message) in enumerate(
                    (
                        ("poll: [\n", "not YAML"),
                        ("log: {level: loud}\n", "allowed: debug, info, warning, error"),
                        ("vllm: {url: [http://a:1, http://a:1]}\n", "given twice"),
                        ("vllm: {url: https://a:1, ca_file: /dev/null}\n", "no certificates in it"),
                        ("spec: {config: '{'}\n", "not JSON"),
                        ("cost: {profile: free}\n", '"free": no such profile; known: auto, '),
                        ("cost: {draft_memory: 16GB}\n", "--cost.draft-memory and --cost.gpu-memory"),
                        ("baseline: {file: /nowhere.json}\n", '"/nowhere.json": cannot be read'),
                    )
                ):
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
                    assert message in exporter.log_lines("configuration not reloaded")[number]["error"]
                polled = len(server.polls())
                eventually(lambda: len(server.polls()) > polled + 1)
                exporter.wait_until_up()

                told = len(exporter.log_lines("configuration not reloaded"))
                exporter.send(signal.SIGHUP)
                eventually(lambda: len(exporter.log_lines("configuration not reloaded")) == told + 1)
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
        """Each server is polled by one loop afterwards; a probe that comes meanwhile does not fail."""
        with FaultyServer(hang()) as server:
            exporter = Exporter(partial(config.load, {"vllm.url": [server.url]}, {}))
            exporter.start()
            try:
                reloads = asyncio.gather(*(exporter.reload() for _ in range(5)))
                health = []
                while not reloads.done():
                    health.append(exporter.healthy())
                    await asyncio.sleep(0)
                loops = [task for task in asyncio.all_tasks() if task.get_name().startswith("poll ")]

                assert len(loops) == 1
                assert {True} == set(health)
            finally:
                await exporter.stop()


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

    def test_level_and_no_aggregate(self) -> None:
        """Lines below the level are left out; an interval of 0 s means no aggregate, at any level."""
        quiet = ("--log.level", "warning", "--web.listen-address", f"127.0.0.1:{free_port()}")
        with FaultyServer(answer(capture())) as server:
            url = ("--vllm.url", server.url)
            with running_exporter(*url, *quiet) as exporter:
                exporter.wait_until_up()
                server.behaviour = answer(b"")
                exporter.wait_for(lambda metrics: metrics.errors())
                assert [line["level"] for line in exporter.log_lines()] == ["warning"]
            server.behaviour = replay()
            with running_exporter(*url, "--log.interval", "0s") as exporter:
                asked = len(server.polls())
                eventually(lambda: len(server.polls()) > asked + 5)
                assert exporter.log_lines("aggregate") == []
                assert exporter.get("/-/healthy").status == 200
