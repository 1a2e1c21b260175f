"""Settings of the tap, by flags, environment and file, and what the exporter tells of it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.certificates import Authority
from support.ports import free_port
from support.programs import COMMAND, clean_environment
from tap.ends import HOST, PATIENCE, connect, serving
from tap.process import both, numbers, process
from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    EVENTS,
    answer,
    chat_request,
    chunks,
    request,
    stream_head,
)

if TYPE_CHECKING:
    from pathlib import Path

_WAIT = "--startup.on-error=wait"
_TAP = ("tap_open_connections", "tap_connections_total", "tap_requests_total")


_ON = f"--tap.listen-address={HOST}:0"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--tap.listen-address=nonsense"], "--tap.listen-address"),
        (["--tap.listen-address=127.0.0.1:70000"], "--tap.listen-address"),
        ([_ON, "--tap.upstream=vllm:8000"], "--tap.upstream"),
        ([_ON, "--tap.upstream=http://vllm:8000/v1"], "without path"),
        ([_ON, "--tap.upstream=http://user:hidden@vllm:8000"], "--tap.upstream"),
        ([_ON, "--vllm.url=http://a:1", "--vllm.url=http://b:1"], "--tap.upstream is needed"),
        ([_ON, "--tap.ask-for-usage=maybe"], "--tap.ask-for-usage"),
        ([_ON, "--tap.drain-timeout=25"], "--tap.drain-timeout"),
        ([_ON, "--tap.cert-file=/nowhere.pem", "--tap.key-file=/nowhere.pem"], "--tap.cert-file"),
        ([_ON, "--tap.key-file={existing}"], "--tap.cert-file and --tap.key-file go together"),
        ([_ON, "--requests.type=nonsense"], "--requests.type"),
        ([_ON, "--requests.tenant=blue"], "--requests.tenant-header"),
    ],
)
def test_wrong_settings_are_one_line_that_names_them(flags: list[str], told: str, tmp_path: Path) -> None:
    existing = tmp_path / "file"
    existing.write_text("x")
    words = [flag.replace("{existing}", str(existing)) for flag in flags]
    found = subprocess.run(
        [COMMAND, "--config.check", *words],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=PATIENCE,
    )
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert told in line
    assert "hidden" not in line


@pytest.mark.parametrize("source", ["flags", "environment", "file"])
async def test_the_tap_is_set_up_by_flags_environment_and_file(source: str) -> None:
    """A tap over TLS that asks, whatever says so; /config shows it."""
    async with serving() as upstream:
        settings = {"ask-for-usage": "true", "upstream": upstream.url}
        flags = [f"--tap.{name}={value}" for name, value in settings.items()] if source == "flags" else []
        env = {
            f"VLLM_SPECDEC_EXPORTER_TAP_{name.upper().replace('-', '_')}": value
            for name, value in (settings if source == "environment" else {}).items()
        }
        config = {"tap": {name.replace("-", "_"): value for name, value in settings.items()}}
        async with process(
            *flags, upstream="", env=env, config=config if source == "file" else ""
        ) as running:
            await running.listens()
            client = await connect(running.port)
            await client.send(request(chat_request(stream=True)))
            server = await upstream.connection()
            head = await server.read_head()
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert b'"include_usage":true' in await server.read(length)
            await server.send(stream_head() + chunks(EVENTS))
            assert await client.read_head() == stream_head()
            shown = await running.get("/config")
            assert "ask_for_usage: 'true'" in shown
            assert upstream.url in shown
            await running.becomes(
                lambda found: found.value("request_observations_total", record="detailed") == 1,
                "request_observations_total",
            )
            client.reset()


async def test_it_relays_to_the_server_that_it_polls() -> None:
    """Unless told otherwise; polls go past the tap, and are no requests of it."""
    async with serving() as upstream, process(f"--vllm.url={upstream.url}", upstream="") as running:
        await running.listens()
        poll = await upstream.connection()
        assert b" /metrics " in await poll.read_head()
        client = await connect(running.port)
        await client.send(ASKED_PLAIN)
        async with asyncio.timeout(PATIENCE):
            while True:
                server = await upstream.connection()
                if (await server.read_head()).startswith(b"POST "):
                    break
        await server.send(ANSWERED_PLAIN)
        assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
        metrics = await running.metrics("tap_requests_total")
        assert metrics.value("tap_requests_total") == 1
        await client.close()


async def test_tls_of_the_process(tmp_path: Path) -> None:
    """The flags for certificates arrive where they count."""
    authority = Authority(tmp_path, "authority")
    cert, key = authority.issue(HOST)
    flags = (f"--tap.cert-file={cert}", f"--tap.key-file={key}")
    async with serving() as upstream, process(*flags, upstream=upstream.url) as running:
        await running.listens()
        client = await connect(running.port, ssl.create_default_context(cafile=str(authority.file)))
        await client.send(ASKED_PLAIN)
        server = await upstream.connection()
        assert await server.read(len(ASKED_PLAIN)) == ASKED_PLAIN
        await server.send(ANSWERED_PLAIN)
        assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
        await client.close()


# --- what it tells


async def test_the_metrics_of_the_tap() -> None:
    """Every series is there from the beginning, at 0, and counts what happens."""
    async with serving() as upstream:
        async with process(upstream=upstream.url) as running:
            await running.listens()
            metrics = await running.metrics()
            assert [metrics.value(name) for name in _TAP] == [0, 0, 0]
            errors = {"refused", "unreachable", "reset", "tls", "timeout"}
            reasons = {
                "aborted",
                "busy",
                "connection",
                "encoded",
                "internal",
                "malformed",
                "refused",
                "too_large",
            }
            found = {key["reason"] for key in metrics.labels("tap_upstream_errors_total")}
            assert found == errors
            assert {key["reason"] for key in metrics.labels("tap_unobserved_total")} == reasons
            assert numbers(metrics, "tap_unobserved_total") == {}

            client, server = await both(running, upstream, ASKED_PLAIN)
            await server.send(ANSWERED_PLAIN)
            assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
            refusal = answer({"error": {}}, "400 Bad Request")
            await running.ask(client, server, ASKED_PLAIN, refusal)
            await running.ask(client, server, request(method="GET"), answer({"data": []}))
            second, pending = await both(running, upstream, ASKED)
            metrics = await running.metrics()
            assert [metrics.value(name) for name in _TAP] == [2, 2, 4]
            await second.close()
            await pending.close()
            await running.becomes(
                lambda found: found.value("tap_open_connections") == 1, "tap_open_connections"
            )
            metrics = await running.metrics()
            assert numbers(metrics, "tap_unobserved_total") == {"refused": 1, "aborted": 1}
            assert numbers(metrics, "request_observations_total") == {"detailed,tap": 1}
            await client.close()
        gone = upstream.url
    async with process(upstream=gone) as running:
        await running.listens()
        for _ in range(2):
            client = await connect(running.port)
            await client.send(ASKED_PLAIN)
            assert (await client.rest())[0].startswith(b"HTTP/1.1 502 ")
            await client.close()
        metrics = await running.metrics()
        assert numbers(metrics, "tap_upstream_errors_total") == {"refused": 2}
        assert running.exporter.log().count("tap cannot reach the server") == 1


async def test_many_connections_at_once() -> None:
    """More than a process may open at first: it takes as many as it may have."""
    async with serving() as upstream:
        port = free_port()
        words = [f"--web.listen-address={HOST}:0", f"--tap.listen-address={HOST}:{port}"]
        command = [
            "/bin/sh",
            "-c",
            'ulimit -Sn 128; exec "$@"',
            "sh",
            COMMAND,
            *words,
            "--tap.upstream",
            upstream.url,
        ]
        running = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, env=clean_environment()
        )
        assert running.stderr is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while b"msg=listening" not in await running.stderr.readline():
                    pass
            ends = [await connect(port) for _ in range(150)]
            for client in ends:
                await client.send(ASKED_PLAIN)
                server = await upstream.connection()
                assert await server.read(len(ASKED_PLAIN)) == ASKED_PLAIN
                await server.send(ANSWERED_PLAIN)
                assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
            for client in ends:
                await client.close()
        finally:
            running.terminate()
            await running.communicate()
        assert running.returncode == 0
