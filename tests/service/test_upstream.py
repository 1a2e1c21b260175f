"""The client for the servers: limits, credentials, TLS, and what it never does."""

import asyncio
import contextlib
import itertools
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.builders import upstream as recorded_answer
from support.certificates import Authority, server_side
from support.faulty_server import (
    CLASSIC,
    Behaviour,
    FaultyServer,
    Peer,
    answer,
    capture,
    chunked,
    hang,
    head,
    raw,
    status,
)
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.values import parse_target
from vllm_specdec_exporter.engines import MAX_SERVER_INFO
from vllm_specdec_exporter.observe.result import TargetResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.runtime.daemon_threads import SharedThreads
from vllm_specdec_exporter.serve.poller import Poller
from vllm_specdec_exporter.upstream.client import MAX_BODY, PollError, Upstream
from vllm_specdec_exporter.upstream.connection import UpstreamConfig, UpstreamTLS

BODY = capture()
CLOCKS = {"patience": 60.0, "clock": time.monotonic, "wall": time.time}
HEALTHY = answer(BODY)
#: The same, with the connection left open.
HEALTHY_KEPT = Behaviour(
    lambda peer: peer.send(head(Content_Type=CLASSIC, Content_Length=len(BODY)) + BODY)
)
MOVED = "307 Temporary Redirect"
#: Of the server, which no log and no result may hold.
KEY = "sk-0123456789abcdef"


@contextlib.asynccontextmanager
async def upstream(
    url: str, deadline: float = 10.0, **config: Any
) -> AsyncIterator[Upstream]:
    client = Upstream(parse_target(url), UpstreamConfig(timeout=deadline, **config))
    try:
        yield client
    finally:
        await client.close()


async def fetch(url: str, deadline: float = 10.0, **config: Any) -> bytes:
    async with upstream(url, deadline, **config) as client:
        return (await client.fetch()).body


async def failure(url: str, deadline: float = 10.0, **config: Any) -> PollError:
    """Return the error of a poll that must fail."""
    with pytest.raises(PollError) as caught:
        await fetch(url, deadline, **config)
    return caught.value


async def poll_once(url: str, deadline: float = 10.0, **config: Any) -> TargetResult:
    async with upstream(url, deadline, **config) as client:
        poller = Poller(url, client, Settings(), 15.0, **CLOCKS)
        await poller.poll()
        return poller.latest


async def polled(
    server: FaultyServer, behaviours: Iterable[Behaviour], **settings: Any
) -> list[TargetResult]:
    """Poll the server once with each behaviour; return the result of each poll."""
    async with upstream(server.url, 1.0) as client:
        poller = Poller("t", client, Settings(**settings), 15.0, **CLOCKS)
        results = []
        for server.behaviour in behaviours:
            await poller.poll()
            results.append(poller.latest)
        assert KEY not in repr(vars(poller)) + repr(vars(client))
    return results


def _is_established(port: int) -> bool:
    """Whether this machine has a connection to a port of its own."""
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return [f"0100007F:{port:04X}", "01"] in [line.split()[2:4] for line in lines]


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server that answers as vLLM does."""
    with FaultyServer(HEALTHY) as server:
        yield server


async def test_a_queue_that_every_request_empties_is_requested_once(
    server: FaultyServer,
) -> None:
    """TensorRT-LLM's JSON list is; a JSON object may be the error of a proxy, so it is
    polled again.
    """
    refused = answer(b'{"error": "starting"}', content_type="application/json")
    assert (await polled(server, [refused, HEALTHY]))[-1].up
    server.requests.clear()
    queue = answer(
        b'[{"iter": 7, "iterLatencyMS": 12.5}]', content_type="application/json"
    )
    results = await polled(server, [queue] * 3)
    assert [result.failure.reason for result in results] == ["unrecognized"] * 3
    assert "/prometheus/metrics has the metrics" in results[-1].failure.message
    assert len(server.requests) == 1


async def test_a_changed_start_header_is_a_restart_though_no_counter_fell(
    server: FaultyServer,
) -> None:
    """As llama.cpp sends it: its process may exceed all old values by the next poll."""
    body = recorded_answer("llamacpp-ngram.txt")
    behaviours = [answer(body, Process_Start_Time_Unix=start) for start in (17, 17, 18)]
    _, result, last_result = await polled(server, behaviours)
    (earlier,) = result.engines
    (restarted,) = last_result.engines
    assert earlier.engine_resets_total == 0
    assert len(earlier.windows) == 2
    assert restarted.engine_resets_total == 1
    assert restarted.windows == ()


class TestRequest:
    async def test_what_is_sent(
        self, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A poll is one plain GET for the text format, uncompressed, without a password
        of .netrc.
        """
        netrc = tmp_path / "netrc"
        # which some HTTP clients send unasked
        netrc.write_text("machine 127.0.0.1 login eve password secret\n")
        monkeypatch.setenv("NETRC", str(netrc))
        assert await fetch(server.url) == BODY
        request = server.requests[0]
        assert request.method == "GET"
        assert request.path == "/metrics"
        assert {
            "host": f"127.0.0.1:{server.port}",
            "user-agent": f"vllm-specdec-exporter/{__version__}",
            "accept": "text/plain; version=0.0.4",
            "accept-encoding": "identity",
        } == request.headers

    async def test_path(self, server: FaultyServer) -> None:
        """The path is the one given, or /metrics."""
        query = "/metrics?model=a%20b&autoload=false"
        paths = {
            "": "/metrics",
            "/": "/metrics",
            "/metrics/": "/metrics/",
            "/v1/stats": "/v1/stats",
            query: query,
            # without autoload=false, llama.cpp's router would load the model
            "/metrics?model=b": "/metrics?model=b&autoload=false",
        }
        for address in paths:
            await fetch(server.url + address)
        assert [request.path for request in server.requests] == [*paths.values()]

    @pytest.mark.parametrize("location", ["/metrics/", "{url}/metrics/"])
    async def test_a_redirect_to_the_same_path_with_a_slash_is_followed(
        self, server: FaultyServer, location: str
    ) -> None:
        """As of applications that are mounted at /metrics."""
        moved = status(MOVED, Location=location.format(url=server.url))
        answers = {"/metrics": moved, "/metrics/": HEALTHY}

        def follow(peer: Peer) -> Awaitable[None]:
            return answers[server.requests[-1].path].run(peer)

        server.behaviour = Behaviour(follow)
        assert await fetch(server.url) == BODY

    async def test_no_other_redirect_is_followed(self, server: FaultyServer) -> None:
        server.behaviour = status(MOVED, Location="https://127.0.0.1/metrics/")
        error = await failure(server.url)
        assert "redirected to 'https://127.0.0.1/metrics/'" in str(error)

    async def test_a_redirect_that_is_no_address(self, server: FaultyServer) -> None:
        """Which quotes what was sent."""
        server.behaviour = status(MOVED, Location=f"http://[{KEY}]/")
        error = await failure(server.url, headers=(("X-Api-Key", KEY),))
        assert error.reason == "redirect"
        assert "redirected to 'http://[<secret>]/'" in str(error)

    @pytest.mark.parametrize("ends", [raw, hang], ids=["cut", "hanging"])
    async def test_a_refusal_without_its_body(
        self, server: FaultyServer, ends: Any
    ) -> None:
        server.behaviour = ends(
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\n"
        )
        error = await failure(server.url, 2.0)
        assert (error.reason, str(error)) == ("http_status", "HTTP 400 Bad Request")

    async def test_redirects_that_never_end(self, server: FaultyServer) -> None:
        """The slash is added once."""

        def further(peer: Peer) -> Awaitable[None]:
            return status(MOVED, Location=f"{server.requests[-1].path}/").run(peer)

        server.behaviour = Behaviour(further)
        assert (await failure(server.url)).reason == "redirect"
        asked = [request.path for request in server.requests]
        assert asked == ["/metrics", "/metrics/"]

    async def test_a_wrong_path_or_port_is_named(self, server: FaultyServer) -> None:
        """The API's path, and a port with TLS or without."""
        over_tls = server.url.replace("http:", "https:")
        server.behaviour = status("404 Not Found")
        error = await failure(f"{server.url}/v1")
        assert "at /v1: the metrics of most servers are at /metrics" in str(error)
        assert (await failure(over_tls, 1.0)).reason in ("tls", "timeout")
        server.behaviour = raw(b"HTTP/1.1 400 Bad Request\r\n\r\n", reads_request=False)
        error = await failure(over_tls)
        assert str(error).endswith("give http:// in place of https://")
        server.behaviour = answer(
            b"Client sent an HTTP request to an HTTPS server.\n", "400 Bad Request"
        )
        error = await failure(server.url)
        assert str(error).endswith("give https:// in place of http://")

    async def test_a_router_is_asked_for_one_model(self, server: FaultyServer) -> None:
        """llama.cpp's, which answers for a model that its address names."""
        server.behaviour = answer(
            b'{"error":{"code":400,"message":"model name is missing from the request",'
            b'"type":"invalid_request_error"}}',
            "400 Bad Request",
        )
        error = await failure(server.url)
        assert str(error).endswith("name one in the address, /metrics?model=NAME")

    async def test_headers(self, server: FaultyServer) -> None:
        """Headers of the configuration are sent, all of a name in order, and replace
        the client's own.
        """
        replaced = (("X-Tenant", "blue"), ("User-Agent", "curl"), ("Host", "vllm"))
        await fetch(
            server.url,
            headers=(
                *replaced,
                ("accept", "a"),
                ("x-tenant", "green"),
                ("Accept", "b"),
            ),
        )

        sent = server.requests[0].headers
        assert sent["x-tenant"] == "blue, green"
        assert sent["user-agent"] == "curl"
        assert sent["host"] == "vllm"
        assert sent["accept"] == "a, b"

    async def test_credentials_and_cookies(self, server: FaultyServer) -> None:
        """User and password of the address become basic authentication; cookies are not
        sent back.
        """
        server.behaviour = answer(BODY, Set_Cookie="session=1; Path=/")
        url = server.url.replace("//127.0.0.1", "//us%40er:pa%3Ass@localhost")
        async with upstream(url) as client:
            await client.fetch()
            await client.fetch()

        _, request = server.requests
        assert request.path == "/metrics"
        assert "cookie" not in request.headers
        assert request.headers["authorization"] == "Basic dXNAZXI6cGE6c3M="

    @pytest.mark.parametrize("unix", [False, True])
    async def test_the_connection_is_kept_for_the_next_poll(
        self, tmp_path: Path, unix: bool
    ) -> None:
        """Closed before an answer, it is replaced once; a second time that is a
        failure.
        """
        closes = []

        async def run(peer: Peer) -> None:
            while not (closes and closes.pop(0)):
                await HEALTHY_KEPT.run(peer)
                await peer.read_request()
            peer.close()

        path = tmp_path / "vllm.sock" if unix else None
        with FaultyServer(Behaviour(run), unix=path) as server:
            async with upstream(server.url) as client:
                assert [(await client.fetch()).body for _ in range(3)] == [BODY] * 3
                assert server.connections == 1
                # the request on the kept connection; not that on the next one
                closes += [True]
                assert (await client.fetch()).body == BODY
                assert server.connections == 2
                closes += [True, True]
                with pytest.raises(PollError, match="closed before"):
                    await client.fetch()
                assert (await client.fetch()).body == BODY

    async def test_ipv6(self) -> None:
        with FaultyServer(HEALTHY, host="::1") as server:
            assert await fetch(server.url) == BODY


async def test_a_body_over_16_mib_is_refused(server: FaultyServer) -> None:
    """16 MiB pass, plain and in chunks; one byte more does not."""
    body = BODY + b"#" * (MAX_BODY - len(BODY) - 1) + b"\n"

    def in_chunks(body: bytes) -> Behaviour:
        return chunked(body[:1_000_000], body[1_000_000:])

    for make in (answer, in_chunks):
        server.behaviour = make(body)
        assert await fetch(server.url) == body, make
        server.behaviour = make(b"#" + body)
        assert (await failure(server.url)).reason == "too_large", make


class TestDeadline:
    async def test_spans_the_handshake(self) -> None:
        """A server that never answers the TLS handshake; tests/faults has all other
        silences.
        """
        with FaultyServer(hang(reads_request=False)) as server:
            error = await failure(server.url.replace("http:", "https:"), deadline=0.4)
        assert error.reason == "timeout"
        assert str(error) == "no complete response within 0.4 s"

    @pytest.mark.parametrize(
        "turns",
        [
            pytest.param([(0.0, 0.35)], id="one long turn before its end"),
            pytest.param([(0.1 * n, 0.095) for n in range(4)], id="only long turns"),
            pytest.param([(0.25, 1.0)], id="a turn beyond its end"),
        ],
    )
    @pytest.mark.parametrize(
        "behaviour", [hang(), raw(0.3, reset=True)], ids=["no answer", "reset"]
    )
    async def test_of_a_loop_that_is_late_itself(
        self,
        server: FaultyServer,
        turns: list[tuple[float, float]],
        behaviour: Behaviour,
    ) -> None:
        """It knows nothing of a server that has not answered by then."""
        server.behaviour = behaviour
        loop = asyncio.get_running_loop()
        for begin, seconds in turns:
            loop.call_later(begin, time.sleep, seconds)
        error = await failure(server.url, deadline=0.4)
        assert error.reason == "stale"
        assert "the exporter was blocked" in str(error)

    async def test_of_a_late_loop_at_the_first_poll(self, server: FaultyServer) -> None:
        """`check` and `compare` poll once, and say why they know nothing."""
        server.behaviour = hang()
        asyncio.get_running_loop().call_later(0.1, time.sleep, 0.5)
        result = await poll_once(server.url, deadline=0.4)
        assert not result.up
        assert result.failure is not None
        assert result.failure.reason == "stale"

    async def test_of_a_late_loop_whose_server_is_another_process_now(
        self, server: FaultyServer
    ) -> None:
        """Its counters may exceed the old ones: no window spans the two."""
        loop = asyncio.get_running_loop()
        async with upstream(server.url, 0.4) as client:
            poller = Poller("t", client, Settings(), 15.0, **CLOCKS)
            await poller.poll()
            server.behaviour = raw(0.3, reset=True)
            loop.call_later(0.1, time.sleep, 0.5)
            await poller.poll()
            (state,) = poller._states.values()
        assert state.history.interrupted

    async def test_version(self, server: FaultyServer) -> None:
        """It spans the question for the version, which is part of the first poll."""
        server.behaviour = raw(0.3, head(Content_Length=len(BODY)) + BODY)
        server.version = hang()
        result = await poll_once(server.url, deadline=2.0)

        assert result.up
        assert result.poll_duration_seconds < 2.2


class TestVersion:
    @pytest.mark.parametrize(
        ("behaviour", "version"),
        [
            (answer(b'{"version": "0.32.0"}'), "0.32.0"),
            (answer(b'{"version": "0.33.0", "rust_frontend_version": "0"}'), "0.33.0"),
            (answer(b'{"version": 7}'), ""),
            (answer(b'{"version": "a\\nb"}'), ""),
            (answer(b"[]"), ""),
            (answer(b"\xff\xfe"), ""),
            (answer(b'{"version": "%s"}' % (b"9" * 100)), "9" * 64),
            (answer(b"[" * 100_000), ""),
            (status("404 Not Found"), ""),
            (status("302 Found", Location="/"), ""),
            (raw(reset=True), ""),
        ],
        ids=itertools.count(),
    )
    async def test_whatever_the_server_answers(
        self, server: FaultyServer, behaviour: Behaviour, version: str
    ) -> None:
        """The version is used if it is a short text; no poll fails without it."""
        server.version = behaviour
        result = await poll_once(server.url)
        assert result.up is True
        assert result.failure is None
        (engine,) = result.engines
        assert engine.deployment.upstream_version == version

    async def test_is_asked_once(self, server: FaultyServer) -> None:
        """The version is asked for with the first successful poll, and again after a
        failure.
        """
        server.version = answer(b'{"version": "0.32.0"}')
        healthy = [HEALTHY, HEALTHY]
        await polled(server, [*healthy, status("500 Oh"), *healthy])
        asked = " ".join(request.path for request in server.requests)
        healthy_polls = "/metrics /version /metrics"
        assert asked == f"{healthy_polls} /metrics {healthy_polls}"

    async def test_is_asked_once_after_a_restart(self, server: FaultyServer) -> None:
        """A restart that counters show is one, however often the server cannot be read
        later.
        """
        server.version = answer(b'{"version": "0.32.0"}')
        unreadable = answer(b"<html>")
        restarted = answer(re.sub(rb"(_total{[^}]*}) .*", rb"\1 0.0", BODY))
        behaviours = [HEALTHY, restarted, restarted, *[unreadable, restarted] * 4]
        *_, last = await polled(server, behaviours)

        assert [engine.engine_resets_total for engine in last.engines] == [1]
        assert sum(request.path == "/version" for request in server.requests) == 2


class TestBearerToken:
    @pytest.mark.parametrize(
        "content",
        [
            None,
            b"",
            b" \n",
            b"se\xff\xfecret",
            b"sec\nret",
            b"sec\rret",
            b"sec\x00ret",
        ],
    )
    async def test_that_cannot_be_used(
        self, server: FaultyServer, tmp_path: Path, content: bytes | None
    ) -> None:
        """Without a usable token nothing is sent; the error names the file, not the
        token.
        """
        file = tmp_path / "token"
        if content is not None:
            file.write_bytes(content)
        result = await poll_once(server.url, bearer_token_file=str(file))

        assert result.failure.reason == "credentials"
        assert str(file) in result.failure.message
        assert "ret" not in result.failure.message.replace(str(file), "")
        assert server.connections == 0

    @pytest.mark.parametrize(
        ("blocked", "reason"), [(0.0, "credentials"), (0.2, "stale")]
    )
    async def test_that_is_not_read_in_time(
        self,
        server: FaultyServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        blocked: float,
        reason: str,
    ) -> None:
        """The file hangs, or the exporter had no time to read it."""
        monkeypatch.setitem(SharedThreads.read.__kwdefaults__, "seconds", 0.25)
        pipe = tmp_path / "token"
        os.mkfifo(pipe)  # opening it hangs until there is a writer
        asyncio.get_running_loop().call_soon(time.sleep, blocked)
        error = await failure(server.url, deadline=1.0, bearer_token_file=str(pipe))
        assert error.reason == reason
        pipe.write_text("")  # ends the thread

    async def test_is_read_for_each_poll(
        self, server: FaultyServer, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        async with upstream(server.url, bearer_token_file=str(file)) as client:
            for token in ("first", "second"):
                file.write_text(f"{token}\n")
                await client.fetch()
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer first", "Bearer second"]

    @pytest.mark.parametrize(
        "behaviour",
        [
            status("401 Unauthorized"),
            raw(b"garbage\r\n\r\n"),
            raw(reset=True),
            answer(b""),
        ],
        ids=["401", "garbage", "reset", "empty"],
    )
    async def test_is_never_shown(
        self,
        server: FaultyServer,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        behaviour: Behaviour,
    ) -> None:
        """Whatever goes wrong, neither errors nor log lines hold a token, password or
        header.
        """
        caplog.set_level(logging.DEBUG)
        file = tmp_path / "token"
        file.write_text("hunter2")
        url = server.url.replace("//", "//user:hunter3@")
        server.behaviour = behaviour
        with_token = await poll_once(url, bearer_token_file=str(file))
        with_header = await poll_once(url, headers=(("X-Key", "hunter4"),))
        assert "hunter" not in with_token.failure.message
        assert "hunter" not in with_header.failure.message
        assert "hunter" not in caplog.text


class TestAddresses:
    async def test_refused_everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name with several addresses, none of which listens, is refused like a
        single address.
        """
        with FaultyServer(HEALTHY) as server:
            port = server.port
            # A name is reached at whichever of its addresses listens.
            assert await fetch(f"http://localhost:{port}") == BODY
        addresses = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: addresses)
        error = await failure(f"http://vllm.internal:{port}")

        assert error.reason == "refused"

    @pytest.mark.parametrize(
        "host",
        [
            "no-such-host.invalid",
            f"{'a' * 64}.invalid",
            "a..invalid",
            "xn--a.invalid",
            "[fe80::1%25nowhere]",
        ],
    )
    async def test_unreachable(self, host: str) -> None:
        """An unknown name, a label too long or empty, bad punycode, no such network."""
        error = await failure(f"http://{host}:1", deadline=30)
        assert error.reason == "unreachable"

    async def test_reset_at_once(self, server: FaultyServer) -> None:
        """A connection that is reset at once was reset, not out of reach."""
        server.behaviour = raw(reads_request=False, reset=True)

        # Often: the reset may come before the connection is made, or after.
        assert {"reset"} == {(await failure(server.url)).reason for _ in range(20)}


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other-ca"), "theirs")


class TestTls:
    async def test_whom_it_trusts(self, ca: Authority, other_ca: Authority) -> None:
        """Certificates of the authority for the expected name; or all, if configured
        so.
        """
        right = {"ca_file": str(ca.file), "server_name": "vllm.internal"}
        tls = server_side(ca.issue("vllm.internal"))
        with FaultyServer(HEALTHY, tls=tls) as server:
            for wrong, cause in (
                ({"ca_file": ""}, "certificate verify failed"),
                ({"ca_file": str(other_ca.file)}, "certificate verify failed"),
                ({"server_name": ""}, "127.0.0.1"),
                ({"server_name": "other.internal"}, "other.internal"),
            ):
                error = await failure(server.url, **(right | wrong))
                assert error.reason == "tls", wrong
                assert cause in str(error), wrong
            assert server.requests == []

            assert await fetch(server.url, **right) == BODY
            assert await fetch(server.url, insecure_skip_verify=True) == BODY
            # Plain HTTP to a TLS server is no answer, or a reset one.
            error = await failure(server.url.replace("https:", "http:"))
            assert error.reason in ("reset", "malformed")

    async def test_a_server_that_stalls_holds_no_connection(
        self, ca: Authority
    ) -> None:
        """A poll that is given up ends its connection at once, without the server's
        farewell.
        """

        async def stall(_: Peer) -> None:
            time.sleep(2)  # noqa: ASYNC251 - nothing of the server's loop shall run

        tls = server_side(ca.issue("127.0.0.1"))
        with FaultyServer(Behaviour(stall), tls=tls) as server:
            error = await failure(server.url, 1.0, ca_file=str(ca.file))

            assert error.reason == "timeout"
            assert len(server.requests) == 1
            await asyncio.sleep(0.1)  # the loop closes it in its next turn
            assert not _is_established(server.port)

    async def test_client_certificate(self, ca: Authority, other_ca: Authority) -> None:
        """A server that asks for a certificate gets the one given, and answers nobody
        without it.
        """
        certificate, key = other_ca.issue("client")
        tls = server_side(ca.issue("127.0.0.1"), clients=other_ca)
        with FaultyServer(HEALTHY, tls=tls) as server:
            files = {"ca_file": str(ca.file), "cert_file": certificate, "key_file": key}
            assert await fetch(server.url, **files) == BODY

            # Behind a handshake of TLS 1.3, a server may hang up without saying why.
            error = await failure(server.url, ca_file=str(ca.file))
            assert error.reason in ("reset", "tls")
            certificate, key = ca.issue("stranger")
            files |= {"cert_file": certificate, "key_file": key}
            assert (await failure(server.url, **files)).reason in ("reset", "tls")
            assert len(server.requests) == 1

    async def test_replaced_client_certificate(
        self, tmp_path: Path, ca: Authority
    ) -> None:
        """It is taken over through the links by which Kubernetes exchanges a Secret."""
        for folder, issued in (("first", "a"), ("second", "b")):
            (tmp_path / folder).mkdir()
            for name, path in zip(
                ("tls.crt", "tls.key"), ca.issue(issued), strict=True
            ):
                shutil.copy(path, tmp_path / folder / name)
        link = tmp_path / "data"
        link.symlink_to("first")
        files = {"cert_file": str(link / "tls.crt"), "key_file": str(link / "tls.key")}
        tls = UpstreamTLS(UpstreamConfig(ca_file=str(ca.file), **files))
        first = await tls.context()
        link.unlink()
        link.symlink_to("second")

        second = await tls.context()
        assert first is not second
        assert second is await tls.context()

    async def test_a_replacement_that_cannot_be_used(
        self,
        tmp_path: Path,
        ca: Authority,
        other_ca: Authority,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Each version of the files that cannot be used is a warning, once; what was in
        force stays.
        """
        trusted = tmp_path / "trusted.pem"
        trusted.write_bytes(ca.file.read_bytes())
        tls = UpstreamTLS(UpstreamConfig(ca_file=str(trusted)))
        first = await tls.context()
        for content in (b"-----BEGIN CERTIFICATE-----", b"nothing", None):
            caplog.clear()
            trusted.unlink()
            if content is not None:
                trusted.write_bytes(content)
            assert [await tls.context() for _ in range(3)] == [first] * 3, content
            [line] = caplog.records
            assert line.levelno == logging.WARNING, content
            error = vars(line)["fields"]["error"]
            assert f'--vllm.ca-file "{trusted}": no certificates in it' in error, (
                content
            )
        trusted.write_bytes(other_ca.file.read_bytes())
        assert await tls.context() is not first

    def test_files_that_cannot_be_used(self, tmp_path: Path, ca: Authority) -> None:
        """Files that hold no certificates are refused before the first poll, by their
        flags' names.
        """
        empty = tmp_path / "empty.pem"
        empty.write_text("nothing\n")
        certificate = ca.issue("a")[0]
        key = ca.issue("b")[1]
        for config, flag in (
            (UpstreamConfig(ca_file=str(empty)), "--vllm.ca-file"),
            (UpstreamConfig(cert_file=certificate, key_file=key), "--vllm.key-file"),
        ):
            with pytest.raises(ConfigError, match=flag):
                Upstream(parse_target("https://127.0.0.1:1"), config)


LAUNCH = f'"api_key": "{KEY}", "launch_command": "--api-key {KEY} {"x" * 5_000_000}"'


class TestServerInfo:
    """SGLang's /server_info, which has keys and the launch command; it may be large."""

    @pytest.fixture
    def server(self) -> Iterator[FaultyServer]:
        with FaultyServer(answer(recorded_answer("sglang-k3.txt"))) as server:
            picked = (
                '"speculative_algorithm": "EAGLE3", "speculative_eagle_topk": 4, '
                '"version": "0.5.23"'
            )
            server.version = answer(f'{{{LAUNCH}, {picked}, "key": "{KEY}"}}'.encode())
            yield server

    async def test_three_fields_are_picked_once_and_the_rest_is_kept_nowhere(
        self, server: FaultyServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        *_, last = await polled(server, [server.behaviour] * 3, server_info=True)
        (engine,) = last.engines
        assert engine.deployment.method == "eagle3"
        assert engine.deployment.upstream_version == "0.5.23"
        asked = [request.path for request in server.requests]
        assert asked.count("/server_info") == 1
        assert engine.counters.draft_tokens is None  # of a tree
        assert KEY not in caplog.text + repr(last)

    async def test_without_the_option_it_is_not_requested(
        self, server: FaultyServer
    ) -> None:
        await poll_once(server.url)
        assert {request.path for request in server.requests} == {"/metrics"}

    @pytest.mark.parametrize(
        ("behaviour", "reason"),
        [
            (status("401 Unauthorized"), "http_status"),
            (answer(b"{" + b"[" * 100_000), "malformed"),
            (answer(b'{"speculative_eagle_topk": "%s"}' % KEY.encode()), "malformed"),
            (answer(b" " * (MAX_SERVER_INFO + 1)), "too_large"),
            (hang(), "timeout"),
        ],
    )
    async def test_what_cannot_be_read_costs_neither_the_poll_nor_a_request_each_time(
        self,
        server: FaultyServer,
        behaviour: Behaviour,
        reason: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """One line of the log has the reason."""
        server.version = behaviour
        results = await polled(server, [server.behaviour] * 5, server_info=True)
        assert all(result.up for result in results)
        (engine,) = results[-1].engines
        assert engine.deployment.method == ""
        asked = [request.path for request in server.requests]
        assert asked.count("/server_info") == 3
        [line] = [line for line in caplog.records if "server_info" in line.message]
        assert vars(line)["fields"] == {"target": "t", "reason": reason}
        assert KEY not in caplog.text
