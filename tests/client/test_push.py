"""`push_request()`: the request of a push, and an error for whatever else than its
acceptance.
"""

import ssl
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from client.collector import Collector, Push, Reply, accepted
from support.certificates import Authority, server_side
from support.commands import Outcome, run
from support.fake_vllm import RECORD
from vllm_specdec_exporter.client import PushedRequest, PushFailedError, push_request
from vllm_specdec_exporter.per_request.records import parse_record
from vllm_specdec_exporter.per_request.routes import PUSH_PATH

ONE = PushedRequest(
    model="llama", temperature=0.7, request_type="code", speculative_decoding=RECORD
)
NOBODY = "http://127.0.0.1:1"
#: The response to a redirect would be a success, at another address.
ELSEWHERE = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "pushed_to"),
    [
        ("", PUSH_PATH),
        ("/", PUSH_PATH),
        (PUSH_PATH, PUSH_PATH),
        ("/specdec", f"/specdec{PUSH_PATH}"),
        ("/specdec/", f"/specdec{PUSH_PATH}"),
        (f"/specdec{PUSH_PATH}", f"/specdec{PUSH_PATH}"),
    ],
)
def test_one_push(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, path: str, pushed_to: str
) -> None:
    """The exporter reads all fields; an address may have a path.

    The environment's proxy is not used.
    """
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, NOBODY)
    assert push_request(ONE, collector.url + path, token="a-token") == ()
    [push] = collector.pushes
    assert push.request.path == pushed_to
    assert push.request.headers["authorization"] == "Bearer a-token"
    assert push.request.headers["content-type"] == "application/json"
    [observation] = push.observations
    assert observation.model_name == "llama"
    assert observation.temperature == 0.7
    assert observation.request_type == "code"
    assert observation.record == parse_record(RECORD)


def test_warnings(collector: Collector) -> None:
    """Those of the exporter are returned."""
    warning = "requests[0]: model is missing"
    collector.reply = lambda _: (
        200,
        {"accepted": 1, "rejected": 0, "errors": [], "warnings": [warning]},
    )
    assert push_request(PushedRequest(), collector.url, token="a-token") == (warning,)


def test_the_token_file_is_read_for_every_push(
    collector: Collector, tmp_path: Path
) -> None:
    """So a token can be rotated. Without a valid one nothing is sent."""
    file = tmp_path / "token"
    for content in (None, b"", b"two\nlines", "ümlaut".encode(), b"\xff"):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(PushFailedError, match="token"):
            push_request(ONE, collector.url, token_file=file)
    with pytest.raises(PushFailedError, match="the token is not valid"):
        push_request(ONE, collector.url, token="two words")
    assert collector.pushes == []
    for token in ("old", "new"):
        file.write_text(f"{token}\n")
        push_request(ONE, collector.url, token_file=file)
        assert (
            collector.pushes[-1].request.headers["authorization"] == f"Bearer {token}"
        ), token


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (
            (400, {"accepted": 0, "rejected": 1, "errors": ["requests[0]: x"]}),
            "answered 400: requests[0]: x",
        ),
        (
            (401, {"error": "a valid bearer\ntoken"}),
            "answered 401: a valid bearer token",
        ),
        ((404, {}), "answered 404: pushes are not enabled there"),
        ((413, []), "answered 413: no reason given"),
        ((503, {"error": "e" * 1000}), f"answered 503: {'e' * 200}"),
        (ELSEWHERE, "answered 302: "),
        (
            (200, {"hello": "I am no exporter"}),
            "answered 200: not the response of an exporter",
        ),
        ((200, []), "answered 200: not the response of an exporter"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{",
            "answered 200: not the response of an exporter",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "cannot be reached: SSH-2.0"),
        (None, "cannot be reached: Remote end closed connection"),
    ],
    ids=str,
)
def test_whatever_else_is_an_error(
    collector: Collector, reply: Reply, says: str
) -> None:
    """It names the address and the reason in one line.

    Nothing is sent twice, nor elsewhere.
    """
    collector.reply = lambda _: reply
    with pytest.raises(PushFailedError) as caught:
        push_request(ONE, collector.url, token="CANARY-KEY")
    assert str(caught.value).startswith(f"{collector.url} {says}")
    assert str(caught.value).count("\n") == 0
    assert "CANARY-KEY" not in str(caught.value)
    assert len(collector.pushes) == 1


def test_no_exporter_and_a_slow_one(collector: Collector) -> None:
    """The time-out bounds the wait."""
    with pytest.raises(
        PushFailedError, match=r"http://127\.0\.0\.1:1 cannot be reached: .*refused"
    ):
        push_request(ONE, NOBODY, token="a-token")
    # An event, not a pause: the test ends as soon as the client has given up.
    go_on = threading.Event()

    def slow(push: Push) -> Reply:
        go_on.wait(10)
        return accepted(push)

    collector.reply = slow
    with pytest.raises(
        PushFailedError, match=r"sent no complete response within 0\.5 s"
    ):
        push_request(ONE, collector.url, token="a-token", timeout=0.5)
    go_on.set()


def test_tls(tmp_path: Path) -> None:
    """Over https only an exporter whose certificate is trusted gets the token."""
    authority = Authority(tmp_path, "authority")
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with Collector(tls=server_side(authority.issue("localhost"))) as collector:
        url = collector.url.replace("127.0.0.1", "localhost")
        push_request(ONE, url, token="a-token", tls=trusting)
        with pytest.raises(PushFailedError, match="certificate verify failed"):
            push_request(ONE, url, token="a-token")
        assert len(collector.pushes) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "unix:/run/x.sock"}, "url: allowed"),
        ({"url": "http://[::1"}, "url: allowed"),
        ({"url": "http://h:99999"}, "url: allowed"),
        ({"url": "http://h/?a=b"}, "url: allowed"),
        ({"url": "http://me:secret@h"}, "url: must not have a user"),
        ({"token": ""}, "token or token_file is needed"),
        ({"token_file": "x"}, "either token or token_file"),
        ({"request": PushedRequest(model="\udcff")}, "request: "),
        ({"request": object()}, "request: "),
    ],
)
def test_invalid_arguments(
    collector: Collector, options: dict[str, Any], says: str
) -> None:
    """Each is an error that names it, without secrets; nothing is sent."""
    valid = {"request": ONE, "url": collector.url, "token": "a-token"}
    with pytest.raises(ValueError, match=says) as caught:
        push_request(**(valid | options))
    assert "secret" not in str(caught.value)
    assert collector.pushes == []


def test_it_needs_msgspec_alone() -> None:
    """Of the exporter's dependencies, the library imports only msgspec."""
    code = (
        "import sys\n"
        "for name in ('aiohttp', 'bcrypt', 'httptools', 'prometheus_client', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "from vllm_specdec_exporter import get_metrics\n"
        "import vllm_specdec_exporter.client\n"
    )
    assert run("-c", code, command=(sys.executable,)) == Outcome(0, "")
