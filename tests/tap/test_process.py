"""The exporter with a tap as a process: traffic goes on as long as it can, whatever settings and signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess

import pytest

from support.ports import free_port
from support.programs import COMMAND, clean_environment
from tap.ends import HOST, PATIENCE, connect, serving
from tap.process import both, numbers, process
from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    BEGUN,
    MODEL,
    RECORD,
    REST,
    chat_request,
    request,
    stream_head,
)

_WAIT = "--startup.on-error=wait"
_TAP = ("tap_open_connections", "tap_connections_total", "tap_requests_total")


# --- standing by


@pytest.mark.parametrize(
    "wrong",
    [
        ["--spec.config={"],
        ["--cost.file=/nowhere.yml"],
        ["--web.config.file=/nowhere.yml"],
        ["--no-such-flag"],
        ["--requests.tenant=blue"],
        ["--push.bearer-token-file=/nowhere"],
    ],
    ids=["value", "file", "web-config", "flag", "requests", "push"],
)
async def test_whatever_else_is_wrong_it_relays(wrong: list[str]) -> None:
    """Traffic does not stop for a setting that has nothing to do with it."""
    async with serving() as upstream, process(_WAIT, *wrong, upstream=upstream.url) as running:
        await running.listens()
        client, server = await both(running, upstream, ASKED)
        await server.send(BEGUN + REST)
        assert await client.read(len(BEGUN + REST)) == BEGUN + REST
        await running.ask(client, server, ASKED_PLAIN, ANSWERED_PLAIN)
        await client.close()
        assert await server.rest() == (b"", "end")
        assert "cannot start, standing by" in running.exporter.log()
        code, _ = await asyncio.to_thread(running.exporter.terminate)
        assert code == 0


async def test_a_connection_survives_that_the_configuration_is_mended() -> None:
    """A stream goes on through it, and requests are observed from then on."""
    async with (
        serving() as upstream,
        process(_WAIT, upstream=upstream.url, config="requests: {window: soon}\n") as running,
    ):
        await running.listens()
        client, server = await both(running, upstream, ASKED_PLAIN)
        await server.send(ANSWERED_PLAIN)
        assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
        await client.send(ASKED)
        assert await server.read(len(ASKED)) == ASKED
        await server.send(BEGUN)
        assert await client.read(len(BEGUN)) == BEGUN

        running.exporter.configure("requests: {window: 1h}\n")
        running.send(signal.SIGHUP)
        await running.starts()

        await server.send(REST)
        assert await client.read(len(REST)) == REST
        await running.ask(client, server, ASKED_PLAIN, ANSWERED_PLAIN)
        metrics = await running.metrics()
        assert numbers(metrics, "request_observations_total") == {"detailed,tap": 2}
        assert [metrics.value(name) for name in _TAP] == [1, 1, 3]
        assert running.exporter.log().count("tap listening") == 1
        assert len(upstream.ends) == 1
        await client.close()


async def test_a_tap_whose_settings_are_mended() -> None:
    """It relays to whom the mended configuration names, at the address that it names."""
    async with serving() as upstream, serving() as other:
        port = free_port()
        wrong = f"tap: {{upstream: '{other.url}', drain_timeout: 0s}}\nrequests: {{window: soon}}\n"
        right = f"tap: {{upstream: '{upstream.url}', listen_address: '{HOST}:{port}'}}\n"
        async with process(_WAIT, upstream="", config=wrong) as running:
            await running.listens()
            client = await connect(running.port)
            await client.send(ASKED_PLAIN)
            server = await other.connection()
            assert await server.read(len(ASKED_PLAIN)) == ASKED_PLAIN

            running.exporter.configure(right)
            running.send(signal.SIGHUP)
            await running.starts()
            assert await client.rest() == (b"", "reset")
            await client.close()
            # The flag names the address, and is stronger than the file.
            client, server = await both(running, upstream, ASKED_PLAIN)
            await server.send(ANSWERED_PLAIN)
            assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
            await client.close()


async def test_a_tap_of_which_nothing_can_be_used() -> None:
    """It stands by without one, and says why."""
    flags = (_WAIT, "--tap.upstream=ftp://x", "--spec.config={")
    async with process(*flags, upstream="") as running:
        await running.says("no tap while standing by")
        assert "ftp://x" in running.exporter.log()
        with pytest.raises(ConnectionRefusedError):
            await connect(running.port)
        assert "standing by" in await running.get("/-/healthy")


async def test_a_file_of_which_nothing_can_be_used() -> None:
    """Without it, there is what the flags say of the tap, and once it is mended, what both say."""
    async with serving() as polled, serving() as upstream:
        flags = (_WAIT, f"--vllm.url={polled.url}")
        async with process(*flags, upstream="", config="tap: {upstream: 'ftp://x'}\n") as running:
            await running.listens()
            client, server = await both(running, polled, ASKED_PLAIN)
            await server.send(ANSWERED_PLAIN)
            assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
            running.exporter.configure(f"tap: {{upstream: '{upstream.url}'}}\n")
            running.send(signal.SIGHUP)
            await running.starts()
            assert (await client.rest())[0] == b""
            await client.close()
            client, server = await both(running, upstream, ASKED_PLAIN)
            await server.send(ANSWERED_PLAIN)
            assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
            await client.close()


# --- its address


async def test_an_address_that_is_taken_ends_it() -> None:
    """With one line that names the flag."""
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        found = await asyncio.to_thread(
            subprocess.run,
            [COMMAND, f"--web.listen-address={HOST}:0", f"--tap.listen-address={HOST}:{port}"],
            capture_output=True,
            text=True,
            env=clean_environment(),
            timeout=PATIENCE,
        )
    assert found.returncode == 1
    (line,) = [line for line in found.stderr.splitlines() if "error" in line]
    assert line.startswith(
        f'vllm-specdec-exporter: error: --tap.listen-address "{HOST}:{port}": cannot listen: '
    )


async def test_an_address_that_is_taken_is_waited_for() -> None:
    """Asked to wait, it does all else meanwhile, says once why, and listens as soon as it can."""
    async with serving() as upstream:
        with socket.create_server((HOST, 0)) as other:
            port = other.getsockname()[1]
            async with process(_WAIT, upstream=upstream.url, port=port) as running:
                await running.says("tap cannot listen")
                await running.starts()
                assert (await running.metrics("tap_open_connections")).value("tap_open_connections") == 0
                other.close()
                await running.listens()
                client, server = await both(running, upstream, ASKED_PLAIN)
                await server.send(ANSWERED_PLAIN)
                assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
                await client.close()
                await server.close()
                await running.becomes(
                    lambda found: found.value("tap_open_connections") == 0, "tap_open_connections"
                )
                assert running.exporter.log().count("tap cannot listen") == 1


async def test_ending_while_its_address_is_taken() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        async with process(_WAIT, upstream="http://127.0.0.1:1", port=port) as running:
            await running.says("tap cannot listen")
            running.send(signal.SIGTERM)
            assert await running.exit_code() == 0


# --- its end


@pytest.mark.parametrize("flags", [(), (_WAIT, "--spec.config={")], ids=["serving", "standing by"])
async def test_sigterm_waits_for_streams_and_for_nobody_else(flags: tuple[str, ...]) -> None:
    """Idle connections end at once, nobody new is let in, and the process ends with its last stream."""
    async with serving() as upstream, process(*flags, upstream=upstream.url) as running:
        await running.listens()
        idle, server_of_idle = await both(running, upstream, ASKED_PLAIN)
        await server_of_idle.send(ANSWERED_PLAIN)
        assert await idle.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
        silent = await connect(running.port)
        stream, server = await both(running, upstream, ASKED)
        await server.send(BEGUN)
        assert await stream.read(len(BEGUN)) == BEGUN

        running.send(signal.SIGTERM)
        assert await idle.rest() == (b"", "end")
        assert await silent.rest() == (b"", "end")
        assert await server_of_idle.rest() == (b"", "end")
        with pytest.raises(ConnectionRefusedError):
            await connect(running.port)
        assert running.exporter.process.poll() is None
        await server.send(REST)
        assert await stream.rest() == (REST, "end")
        assert await running.exit_code() == 0
        assert await server.rest() == (b"", "end")
        for end in (idle, silent, stream):
            await end.close()


async def test_metrics_are_served_while_streams_end() -> None:
    """The last of them counts too."""
    async with serving() as upstream, process(upstream=upstream.url) as running:
        await running.listens()
        stream, server = await both(running, upstream, ASKED)
        other, server_of_other = await both(running, upstream, ASKED)
        running.send(signal.SIGTERM)
        await running.says("stopping")
        await server.send(BEGUN + REST)
        assert await stream.rest() == (BEGUN + REST, "end")
        metrics = await running.metrics("request_observations_total", "tap_open_connections")
        assert numbers(metrics, "request_observations_total") == {"detailed,tap": 1}
        assert metrics.value("tap_open_connections") == 1
        await server_of_other.send(BEGUN + REST)
        assert await other.rest() == (BEGUN + REST, "end")
        assert await running.exit_code() == 0
        await stream.close()
        await other.close()


async def test_a_second_sigterm_ends_it_at_once() -> None:
    """What is under way is cut off then, and the server learns of it."""
    async with serving() as upstream, process(upstream=upstream.url) as running:
        await running.listens()
        stream, server = await both(running, upstream, ASKED)
        await server.send(BEGUN)
        assert await stream.read(len(BEGUN)) == BEGUN
        running.send(signal.SIGTERM)
        await running.says("stopping")
        running.send(signal.SIGTERM)
        assert (await stream.rest())[0] == b""
        assert (await server.rest())[0] == b""
        assert await running.exit_code() == 0
        await stream.close()


async def test_what_never_ends_is_cut_off_in_time() -> None:
    """After --tap.drain-timeout: a WebSocket nobody closes, a stream nobody reads."""
    async with serving() as upstream, process("--tap.drain-timeout=300ms", upstream=upstream.url) as running:
        await running.listens()
        stream, server = await both(running, upstream, ASKED)
        upgrade = request(method="GET", Connection="Upgrade", Upgrade="websocket")
        socket_, server_of_socket = await both(running, upstream, upgrade)
        await server_of_socket.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        stuck, server_of_stuck = await both(running, upstream, ASKED)
        server_of_stuck.writer.write(stream_head() + bytes(30_000_000))
        running.send(signal.SIGTERM)
        assert await running.exit_code() == 0
        for end in (server, server_of_socket, server_of_stuck):
            assert (await end.rest())[0] == b""
        for end in (stream, socket_, stuck):
            end.reset()
            await end.close()


# --- reloading


async def test_a_reload_keeps_counters_and_connections() -> None:
    """How requests are classified changes with it, on connections that exist too."""
    before = "requests: {type_header: X-Type}\n"
    after = "requests: {type: ['mine=model:org/*'], tenant_header: X-Tenant, tenant: [blue]}\n"
    async with serving() as upstream, process(upstream=upstream.url, config=before) as running:
        await running.listens()
        asked = request(chat_request(), X_Type="batch", X_Tenant="blue")
        client, server = await both(running, upstream, asked)
        await server.send(ANSWERED_PLAIN)
        assert await client.read(len(ANSWERED_PLAIN)) == ANSWERED_PLAIN
        await running.becomes(
            lambda found: found.values("request_drafts_total", request_type="batch"), "request_drafts_total"
        )

        running.exporter.configure(after)
        running.send(signal.SIGHUP)
        await running.says("configuration reloaded")
        await running.ask(client, server, asked, ANSWERED_PLAIN)
        metrics = await running.metrics()
        drafts = {key["request_type"]: key for key in metrics.labels("request_drafts_total")}
        assert set(drafts) == {"batch", "mine"}
        assert {key["model_name"] for key in drafts.values()} == {MODEL}
        assert numbers(metrics, "request_observations_total") == {"detailed,tap": 2}
        assert sum(metrics.values("tenant_requests_total", tenant="blue").values()) == 1
        assert [metrics.value(name) for name in _TAP] == [1, 1, 2]

        running.exporter.configure("requests: {window: soon}\n")
        running.send(signal.SIGHUP)
        await running.says("configuration not reloaded")
        await running.ask(client, server, asked, ANSWERED_PLAIN)
        metrics = await running.metrics("request_drafts_total")
        assert metrics.value("request_drafts_total", request_type="mine") == 2 * RECORD["num_spec_steps"]
        await client.close()


async def test_a_reload_during_a_stream() -> None:
    """It goes on, and is counted by what was in force when it began."""
    async with (
        serving() as upstream,
        process(upstream=upstream.url, config="requests: {type: ['old=model:*']}\n") as running,
    ):
        await running.listens()
        stream, server = await both(running, upstream, ASKED)
        await server.send(BEGUN)
        assert await stream.read(len(BEGUN)) == BEGUN
        running.exporter.configure("requests: {type: ['new=model:*']}\n")
        running.send(signal.SIGHUP)
        await running.says("configuration reloaded")
        await server.send(REST)
        assert await stream.read(len(REST)) == REST
        await running.ask(stream, server, ASKED_PLAIN, ANSWERED_PLAIN)
        metrics = await running.metrics("request_drafts_total")
        assert {key["request_type"] for key in metrics.labels("request_drafts_total")} == {"old", "new"}
        await stream.close()


async def test_another_tap_takes_a_restart() -> None:
    """A reload says so, and the tap goes on as it was."""
    async with serving() as upstream:
        config = "tap: {ask_for_usage: %s}\n"
        async with process(upstream=upstream.url, config=config % "false") as running:
            await running.listens()
            running.exporter.configure(config % "true")
            running.send(signal.SIGHUP)
            await running.says("take effect after a restart")
            plain = request(chat_request(stream=True))
            client, server = await both(running, upstream, plain)
            await server.send(BEGUN + REST)
            assert await client.read(len(BEGUN + REST)) == BEGUN + REST
            await client.close()
