"""The exporter with a tap as a process: settings, signals, reloads and metrics."""

import signal
from pathlib import Path

import pytest

from support.commands import run_here
from support.programs import COMMAND
from tap.ends import HOST, connect, passes, serving
from tap.process import answered, begun, both, numbers, process
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


async def test_a_connection_survives_that_the_configuration_is_mended() -> None:
    """A stream continues, and requests are observed from then on."""
    async with (
        serving() as upstream,
        process(
            _WAIT, upstream=upstream.url, config="requests: {window: soon}\n"
        ) as running,
    ):
        client, server = await answered(running, upstream)
        await passes(client, server, ASKED)
        await passes(server, client, BEGUN)
        await running.starts("requests: {window: 1h}\n")
        await passes(server, client, REST)
        await running.ask(client, server, ASKED_PLAIN, ANSWERED_PLAIN)
        metrics = await running.metrics()
        assert numbers(metrics, "request_observations_total") == {"detailed,tap": 2}
        assert [metrics.value(name) for name in _TAP] == [1, 1, 3]
        assert running.exporter.log().count("tap listening") == 1
        assert len(upstream.ends) == 1
        await client.close()


async def test_a_file_of_which_nothing_can_be_used() -> None:
    """The flags alone configure the tap. Once the file is mended, flags and file do."""
    async with serving() as polled, serving() as upstream:
        flags = (_WAIT, f"--vllm.url={polled.url}")
        async with process(
            *flags, upstream="", config="tap: {upstream: 'ftp://x'}\n"
        ) as running:
            client, _ = await answered(running, polled)
            await running.starts(
                f"tap: {{upstream: '{upstream.url}', listen_address: '{HOST}:1'}}\n"
            )
            assert (await client.rest())[0] == b""
            await client.close()
            # a flag has priority over the file
            client, _ = await answered(running, upstream)
            await client.close()


def test_a_check_finds_files_of_the_tap_that_hold_nothing_usable(
    tmp_path: Path,
) -> None:
    """Before the sidecar is rolled out, not after."""
    file = tmp_path / "file.pem"
    file.write_text("nothing")
    flags = ("--tap.upstream=https://vllm:8000", f"--vllm.ca-file={file}")
    outcome = run_here("--config.check", f"--tap.listen-address={HOST}:0", *flags)
    (line,) = outcome.err.splitlines()
    assert outcome.code == 2
    assert str(file) in line


# --- its end


@pytest.mark.parametrize(
    "flags", [(), (_WAIT, "--no-such-flag")], ids=["serving", "standing by"]
)
async def test_sigterm_waits_for_streams_and_for_nothing_else(
    flags: tuple[str, ...],
) -> None:
    """Idle connections end at once, new ones are refused, and the process ends with its
    last stream.

    Metrics are served until then. A process that stands by relays and ends in the same
    way.
    """
    async with serving() as upstream, process(*flags, upstream=upstream.url) as running:
        assert ("cannot start, standing by" in running.exporter.log()) == bool(flags)
        idle, server_of_idle = await answered(running, upstream)
        silent = await connect(running.port)
        stream, server = await begun(running, upstream)
        last, server_of_last = await begun(running, upstream)

        running.exporter.send(signal.SIGTERM)
        for end in (idle, silent, server_of_idle):
            assert await end.rest() == (b"", "end"), end
        with pytest.raises(ConnectionRefusedError):
            await connect(running.port)
        await server.send(REST)
        assert await stream.rest() == (REST, "end")
        assert running.exporter.process.poll() is None
        if not flags:
            metrics = await running.metrics(
                "request_observations_total", "tap_open_connections"
            )
            assert numbers(metrics, "request_observations_total") == {"detailed,tap": 2}
            assert metrics.value("tap_open_connections") == 1
        await server_of_last.send(REST)
        assert await last.rest() == (REST, "end")
        assert await running.exit_code() == 0
        assert await server_of_last.rest() == (b"", "end")
        for end in (idle, silent, stream, last):
            await end.close()


async def test_what_never_ends_is_cut_off_in_time() -> None:
    """After --tap.drain-timeout: a WebSocket that is not closed, a stream that is not
    read.
    """
    async with (
        serving() as upstream,
        process("--tap.drain-timeout=300ms", upstream=upstream.url) as running,
    ):
        upgrade = request(method="GET", Connection="Upgrade", Upgrade="websocket")
        socket_, server_of_socket = await both(running, upstream, upgrade)
        await server_of_socket.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        stuck, server_of_stuck = await both(running, upstream, ASKED)
        server_of_stuck.writer.write(stream_head() + bytes(30_000_000))
        running.exporter.send(signal.SIGTERM)
        assert await running.exit_code() == 0
        for end in (server_of_socket, server_of_stuck):
            assert (await end.rest())[0] == b"", end
        # in order, half an answer might look whole
        assert (await socket_.rest())[1] == "reset"
        await socket_.close()
        stuck.reset()
        await stuck.close()


async def test_a_reload_keeps_counters_and_connections() -> None:
    """Requests are classified by the configuration with which they began, on open
    connections too.

    Other rules start the counts of groups anew. Settings of the tap take a restart, as
    the log says.
    """
    old_config = "requests: {type_header: X-Type}\n"
    new_config = (
        "requests: {type: ['mine=model:org/*'], tenant_header: X-Tenant, tenant: "
        "[blue]}\n"
        "tap: {drain_timeout: 9s}\n"
    )
    async with (
        serving() as upstream,
        process(upstream=upstream.url, config=old_config) as running,
    ):
        asked = request(chat_request(), X_Type="batch", X_Tenant="blue")
        client, server = await both(running, upstream, asked)
        await passes(server, client, ANSWERED_PLAIN)
        stream, server_of_stream = await begun(running, upstream)

        await running.reload(new_config, "configuration reloaded")
        await running.says("take effect after a restart")
        await passes(server_of_stream, stream, REST)
        await running.ask(client, server, asked, ANSWERED_PLAIN)
        metrics = await running.metrics()
        labels = [
            (key["request_type"], key["model_name"])
            for key in metrics.labels("request_drafts_total")
        ]
        assert sorted(labels) == [("chat", MODEL), ("mine", MODEL)]
        assert numbers(metrics, "request_observations_total") == {"detailed,tap": 3}
        assert metrics.total("tenant_requests_total", tenant="blue") == 1
        assert [metrics.value(name) for name in _TAP] == [2, 2, 3]

        await running.reload("requests: {window: soon}\n", "configuration not reloaded")
        await running.ask(client, server, asked, ANSWERED_PLAIN)
        # not asked
        await running.ask(
            client, server, request(chat_request(stream=True)), BEGUN + REST
        )
        metrics = await running.metrics("request_drafts_total")
        assert (
            metrics.value("request_drafts_total", request_type="mine")
            == 3 * RECORD["num_spec_steps"]
        )
        await client.close()
        await stream.close()


async def test_many_connections_at_once() -> None:
    """More than the soft limit of open files allows: the process raises it to the hard
    limit.
    """
    command = ("/bin/sh", "-c", 'ulimit -Sn 128; exec "$@"', "sh", COMMAND)
    async with (
        serving() as upstream,
        process(upstream=upstream.url, command=command) as running,
    ):
        for client, _ in [await answered(running, upstream) for _ in range(80)]:
            await client.close()
        running.exporter.send(signal.SIGTERM)
        assert await running.exit_code() == 0
