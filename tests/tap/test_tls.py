"""TLS of the tap towards its server: trust, and certificates that are replaced."""

import asyncio
import logging
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from support.certificates import Authority, server_side
from support.ports import free_port
from tap.ends import HOST, Server, connect, eventually, passes, reaches, serving
from tap.streams import ANSWERED_PLAIN, ASKED, ASKED_PLAIN, STREAMED
from vllm_specdec_exporter.config.values import parse_target
from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.serve.tap.tap import Tap
from vllm_specdec_exporter.settings.request_options import TapConfig
from vllm_specdec_exporter.upstream.connection import UpstreamConfig


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "trusted")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@asynccontextmanager
async def _service(
    url: str, upstream: UpstreamConfig | None = None, **more: Any
) -> AsyncIterator[tuple[Tap, int, list[Observation]]]:
    """Run a tap as the process has it; return it, its port, and what it observes."""
    port = free_port()
    config = TapConfig((HOST, port), parse_target(url), drain_seconds=0.0, **more)
    service = Tap(config, upstream or UpstreamConfig())
    observed = []
    service.use(Classification(), observed.append)
    await service.open()
    try:
        yield service, port, observed
    finally:
        await service.stop()
        assert service.result().connections == 0


async def _is_answered(port: int, upstream: Server) -> None:
    client = await connect(port)
    await client.send(ASKED_PLAIN)
    await passes(await upstream.connection(), client, ANSWERED_PLAIN)
    await client.close()


@pytest.mark.parametrize(("scheme", "limit"), [("http", 4096), ("https", 256)])
def test_connections_are_limited(
    scheme: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those to a server with TLS take more memory."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (2**20, 2**20))
    tap = Tap(TapConfig((HOST, 1), parse_target(f"{scheme}://server")))
    tap._clients.update(Mock() for _ in range(limit - 1))
    assert not tap.is_full()
    tap._clients.add(Mock())
    assert tap.is_full()


async def test_an_address_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, with one error in the log; the tap listens once it is free."""
    monkeypatch.setattr("vllm_specdec_exporter.serve.tap.tap.RETRY_SECONDS", 0.01)
    with socket.create_server((HOST, 0)) as holder:
        service = Tap(
            TapConfig(holder.getsockname()[:2], parse_target("http://127.0.0.1:1")),
            UpstreamConfig(),
        )
        service.keep_trying()
        # some twenty attempts, of which one is logged
        await asyncio.sleep(0.2)
        assert not service.result().listening
    await eventually(lambda: service.result().listening)
    [error] = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert error.getMessage() == "tap cannot listen"
    await service.stop()


# --- towards the server


async def test_the_exporters_certificate_and_breaks(authority: Authority) -> None:
    """The server gets the exporter's own certificate; ends and breaks pass."""
    cert_file, key_file = authority.issue(HOST)
    upstream_tls = UpstreamConfig(
        ca_file=str(authority.file), cert_file=cert_file, key_file=key_file
    )
    tls = server_side((cert_file, key_file), clients=authority)
    async with (
        serving(tls=tls) as upstream,
        _service(upstream.url, upstream_tls) as (service, port, observed),
    ):
        client = await connect(port)
        server = await reaches(client, upstream, b"\r\n")
        await passes(client, server, ASKED)
        await passes(server, client, STREAMED)
        await server.close()
        assert (await client.rest())[0] == b""
        await client.close()

        client = await connect(port)
        server = await reaches(client, upstream, ASKED)
        await passes(server, client, STREAMED[:300])
        client.writer.transport.abort()
        assert (await server.rest())[0] == b""
        await client.close()
        await eventually(lambda: service.result().connections == 0)
        assert len(observed) == service.result().unobserved_total["aborted"] == 1


async def test_which_servers_are_trusted(
    authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """By their authority, name and time, unless no check is wanted; clients of others
    get the reason, and the log has the cause.
    """
    trusting = UpstreamConfig(ca_file=str(authority.file))
    stranger_tls = server_side(stranger.issue(HOST))
    for tls, config, name in (
        (server_side(authority.issue("vllm.test")), trusting, "vllm.test"),
        (stranger_tls, UpstreamConfig(insecure_skip_verify=True), ""),
    ):
        async with (
            serving(tls=tls) as upstream,
            _service(upstream.url, config, server_name=name) as (_, port, _),
        ):
            await _is_answered(port, upstream)
    here = server_side(authority.issue(HOST))
    elsewhere = server_side(authority.issue("elsewhere.test"))
    expired = server_side(authority.issue(HOST, expired=True))
    refused = {
        "unable to get local issuer": (stranger_tls, ""),
        "IP address mismatch": (elsewhere, ""),
        "Hostname mismatch": (here, "vllm.test"),
        "certificate has expired": (expired, ""),
        "the server does not speak TLS at this port": (None, ""),
    }
    for cause, (tls, name) in refused.items():
        caplog.clear()
        async with serving(tls=tls) as upstream:
            url = upstream.url.replace("http://", "https://")
            async with _service(url, trusting, server_name=name) as (service, port, _):
                client = await connect(port)
                await client.send(ASKED)
                if tls is None:
                    server = await upstream.connection()
                    await server.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    await server.close()
                answer, _ = await client.rest()
                assert answer.startswith(b"HTTP/1.1 502 "), cause
                assert b"the TLS handshake failed" in answer, cause
                await client.close()
                assert service.result().upstream_errors_total["tls"] == 1, cause
                assert cause in _logged_error(caplog), cause


def _logged_error(caplog: pytest.LogCaptureFixture) -> str:
    """The field `error` of the only warning."""
    [record] = [line for line in caplog.records if line.levelno >= logging.WARNING]
    return str(record.fields["error"])


async def test_a_server_that_closes_within_the_handshake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is a failed handshake: the address was reached."""
    async with serving() as upstream:
        url = upstream.url.replace("http://", "https://")
        async with _service(url) as (service, port, _):
            client = await connect(port)
            await client.send(ASKED)
            server = await upstream.connection()
            await server.close()
            assert b"the TLS handshake failed" in (await client.rest())[0]
            await client.close()
            assert service.result().upstream_errors_total["tls"] == 1
    assert "the server closed the connection" in _logged_error(caplog)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_a_server_that_wants_a_certificate(
    authority: Authority, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    """Clients get a 502 that says what failed, also with TLS 1.3, where the server
    rejects the tap only after the tap's side of the handshake.
    """
    tls = server_side(authority.issue(HOST), clients=authority)
    tls.maximum_version = ssl.TLSVersion[version]
    with socket.create_server((HOST, 0)) as listener:

        def reject() -> None:
            # In a thread: asyncio closes the connection before it sends the alert.
            accepted, _ = listener.accept()
            with accepted.dup() as connection:
                with pytest.raises(ssl.SSLError):
                    tls.wrap_socket(accepted, server_side=True)
                # Closed with unread bytes it would be reset, and the alert be lost.
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass

        rejecting = asyncio.create_task(asyncio.to_thread(reject))
        url = f"https://{HOST}:{listener.getsockname()[1]}"
        trusting = UpstreamConfig(ca_file=str(authority.file))
        async with _service(url, trusting) as (service, port, observed):
            client = await connect(port)
            await client.send(ASKED)
            answer, how = await client.rest()
            await rejecting
            await client.close()
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert b"the TLS handshake failed" in answer
            assert how == "end"
            assert service.result().upstream_errors_total["tls"] == 1
            assert not observed
    assert "ALERT" in _logged_error(caplog)


async def test_trust_that_is_replaced(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """The next connection uses the new file."""
    file = tmp_path / "ca.pem"
    shutil.copy(stranger.file, file)
    async with (
        serving(tls=server_side(authority.issue(HOST))) as upstream,
        _service(upstream.url, UpstreamConfig(ca_file=str(file))) as (_, port, _),
    ):
        client = await connect(port)
        await client.send(ASKED)
        assert (await client.rest())[0].startswith(b"HTTP/1.1 502 ")
        await client.close()
        _replace(file, Path(authority.file))
        await _is_answered(port, upstream)


def _replace(file: Path, by: Path) -> None:
    """Replace a file as tools do that leave no moment without one."""
    staged = file.with_suffix(".new")
    shutil.copy(by, staged)
    staged.replace(file)
