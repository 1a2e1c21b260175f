"""The life of the process: start, reload, being held up, end, and what it logs on the way."""

import json

import pytest

from support.commands import run
from support.exporter import parse_logfmt, running_exporter
from support.faulty_server import FaultyServer, answer, capture, replay
from support.ports import free_port
from support.programs import eventually

pytestmark = pytest.mark.full

REFUSING = "http://127.0.0.1:1"


def test_a_host_that_cannot_be_listened_on() -> None:
    """One that does not exist is like a port that is taken: the reason is one that can be understood."""
    done = run("--web.listen-address", "no-such-host.invalid:9850", "--vllm.url", REFUSING)

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert '--web.listen-address "no-such-host.invalid:9850": cannot listen: ' in done.err
    assert "Unknown error" not in done.err


def test_a_reload_of_what_needs_a_restart() -> None:
    """A new listen address is not taken, and the log says so."""
    settings = {"vllm": {"url": REFUSING}, "web": {"listen_address": "127.0.0.1:0"}}
    with running_exporter(config=settings, fast=False) as exporter:
        exporter.configure({**settings, "web": {"listen_address": "127.0.0.1:1"}})

        assert exporter.post("/-/reload").status == 200
        assert exporter.get("/-/ready").status == 200
        assert len([line for line in exporter.log_lines() if "restart" in line["msg"]]) == 1


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
