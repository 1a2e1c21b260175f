"""Defects of the observer: traffic passes byte for byte, and the defect is counted."""

import traceback
from typing import NoReturn

import httptools
import pytest

from tap.ends import Road, leaves, passes
from tap.streams import ANSWERED_PLAIN, ASKED, ASKED_PLAIN, STREAMED
from tap.watching import Watched
from vllm_specdec_exporter.per_request import exchange
from vllm_specdec_exporter.per_request.exchange import EventSplitter, Exchange
from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.serve.tap.observer import Observer


def _fails(*_: object, **__: object) -> NoReturn:
    msg = "SECRET of the client"
    raise RuntimeError(msg)


class _NoParser:
    feed_data = staticmethod(_fails)


#: What fails, by what it is there for.
_PLACES = {
    "the request": [(exchange, "read_request", _fails)],
    "the answer": [(exchange, "read_response", _fails)],
    "an event": [(exchange, "data_of", _fails)],
    "splitting events": [(EventSplitter, "feed", _fails)],
    "an exchange": [(Exchange, "__init__", _fails)],
    "bytes of a request": [(Exchange, "request_data", _fails)],
    "the head of an answer": [(Exchange, "response_head", _fails)],
    "bytes of an answer": [(Exchange, "response_data", _fails)],
    "the end of an answer": [(Exchange, "finish", _fails)],
    "an observation": [(exchange, "Observation", _fails)],
    "what is held": [(Exchange, "held", property(_fails))],
    "classification": [(Classification, "type_of", _fails)],
    "the tenant": [(Classification, "tenant_of", _fails)],
    "a parser of answers": [(httptools, "HttpResponseParser", lambda _: _NoParser())],
    "the client's bytes": [(Observer, "from_client", _fails)],
    "the server's bytes": [(Observer, "from_server", _fails)],
    "the end": [(Observer, "closed", _fails)],
    "taking note of defects": [
        (exchange, "read_request", _fails),
        (traceback, "extract_tb", _fails),
    ],
}
#: Those that are met where no request for text is being looked at.
_UNCOUNTED = {"an exchange", "the client's bytes", "the end"}


@pytest.mark.parametrize("component", _PLACES)
async def test_traffic_passes_whatever_fails(
    built: Road, component: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams and other requests, on one connection and the next; connections end as
    usual.
    """
    for target, name, value in _PLACES[component]:
        monkeypatch.setattr(target, name, value)
    for asked, answered in ((ASKED, STREAMED), (ASKED_PLAIN, ANSWERED_PLAIN)):
        client, server = await built.both(asked)
        for byte in range(0, len(answered), 97):
            await passes(server, client, answered[byte : byte + 97])
        await passes(client, server, ASKED_PLAIN)
        await passes(server, client, ANSWERED_PLAIN)
        await leaves(client, server)
    await built.relay.becomes_quiet()
    unobserved = built.relay.unobserved
    if component in _UNCOUNTED:
        assert len(built.relay.observed) + sum(unobserved.values()) <= 4
    else:
        assert unobserved.get("internal", 0) >= 1
        assert set(unobserved) <= {"internal"}


async def test_a_defect_of_the_receiver_of_observations(
    built: Road, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in the receiver of observations does not affect clients."""
    built.relay.tap.use(Classification(), _fails)
    client, server = await built.both(ASKED_PLAIN)
    await passes(server, client, ANSWERED_PLAIN)
    await leaves(client, server)
    await built.relay.becomes_quiet()
    assert built.relay.unobserved == {"internal": 1}
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("component", ["the request", "an event"])
def test_a_defect_is_logged_once(
    component: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each place, which is in the log; the text of the exception is not."""
    for target, name, value in _PLACES[component]:
        monkeypatch.setattr(target, name, value)
    pair = Watched(), Watched()
    pair[1].watch.logged = pair[0].watch.logged
    for watched in pair:
        watched.client(ASKED)
        watched.server(STREAMED)
        assert watched.observed == [], watched
        assert watched.unobserved == {"internal": 1}, watched
        assert watched.observer.blind, watched
        watched.close()
    (record,) = caplog.records
    where = record.fields["error"]
    assert "RuntimeError at " in where
    assert "observer.py:" in where
    assert "SECRET" not in caplog.text + repr(vars(record))
