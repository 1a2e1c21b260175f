"""Thousands of requests that end in every way: responses stay complete, counts add up,
memory is freed.
"""

import asyncio
import gc
import sys
from collections import Counter
from random import Random

import pytest

from support.closing import stop_accepting
from tap.ends import HOST, End, connect, eventually, tapping
from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    DONE,
    RECORD,
    STREAMED,
    answer,
    chat_answer,
    chat_documents,
    chat_request,
    cut_at,
    events,
    header_of,
    request,
    split,
    streamed,
)
from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.per_request.observation import Observation, RecordState

pytestmark = pytest.mark.full

_CLIENTS = 100
_REQUESTS = 4000

#: Outcome, request and response. The outcome is the state of the record, the reason why
#: a request is not observed, or empty for other routes. The first ones may also end in
#: the middle.
_KINDS = [
    ("detailed", ASKED_PLAIN, ANSWERED_PLAIN),
    ("detailed", ASKED, STREAMED),
    (
        "none",
        request(chat_request(stream=True)),
        streamed(events([*chat_documents(), DONE])),
    ),
    ("", request({"input": "x" * 20_000}, "/v1/embeddings"), answer([0.1] * 3000)),
    (
        "malformed record",
        ASKED_PLAIN,
        answer(chat_answer({**RECORD, "num_draft_tokens": 1})),
    ),
    ("malformed", request(b'{"model": '), answer(chat_answer())),
    ("encoded", ASKED_PLAIN, answer(b"\x1f\x8b\x00\xff", Content_Encoding="gzip")),
    ("refused", ASKED_PLAIN, answer({"error": {}}, "429 Too Many Requests")),
    (
        "",
        request(method="HEAD", path="/v1/models"),
        split(answer(b"", Content_Length="99"))[0],
    ),
]
_MAY_BREAK = 4


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests as their header says: kind, how the answer ends, and after how
    many bytes.
    """
    end = End(reader, writer)
    try:
        while True:
            head = (await end.reader.readuntil(b"\r\n\r\n")).lower()
            kind, fate, cut = header_of(head, b"x-plan").split()
            await end.reader.readexactly(int(header_of(head, b"content-length") or 0))
            response = _KINDS[int(kind)][2]
            if fate == b"whole":
                for part in cut_at(response, [int(cut), 2 * int(cut)]):
                    await end.send(part)
                continue
            await end.send(response[: int(cut)])
            if fate == b"leaves":
                await end.reader.read()  # until the client has left
            elif fate == b"reset":
                end.reset()
            return
    except (OSError, asyncio.IncompleteReadError):
        pass  # the client has left
    finally:
        await end.close()


async def _run(port: int, random: Random, count: int, outcomes: Counter[str]) -> None:
    """Make requests on one connection, and on a new one after each that broke."""
    client = None
    for _ in range(count):
        client = client or await connect(port)
        kind = random.randrange(len(_KINDS))
        outcome, asked, answered = _KINDS[kind]
        fate = "whole"
        cut = random.randrange(len(answered))
        if kind < _MAY_BREAK and random.random() < 0.15:
            fate = random.choice(["leaves", "closed", "reset"])
            # A stream counts as observed from its [DONE] on.
            cut = random.randrange(len(answered.partition(b"[DONE]")[0]))
            outcome = outcome and "aborted"
        outcomes[outcome] += 1
        sent = asked.replace(
            b"\r\n", f"\r\nX-Plan: {kind} {fate} {cut}\r\n".encode(), 1
        )
        for part in cut_at(sent, [random.randrange(len(sent))]):
            await client.send(part)
        row = (kind, fate, cut)
        if fate == "whole":
            assert await client.read(len(answered)) == answered, row
        elif fate == "leaves":
            assert await client.read(cut) == answered[:cut], row
        elif fate == "closed":
            assert await client.rest() == (answered[:cut], "end"), row
        else:
            received, how = await client.rest()
            assert how == "reset", row
            # A reset may overtake bytes that are still on their way.
            assert answered[:cut].startswith(received), row
        if fate != "whole":
            if random.random() < 0.5:
                client.reset()
            await client.close()
            client = None
    if client is not None:
        await client.close()


def _name(observation: Observation) -> str:
    if observation.state is RecordState.MALFORMED:
        return "malformed record"
    return observation.state.value


async def test_chaos() -> None:
    """Clients get what the server sent, each request has its outcome, and memory does
    not grow.
    """
    # A seed, so that a failure can be repeated.
    random = Random(20)
    observed = Counter[str]()
    outcomes = Counter[str]()
    listening = await asyncio.start_server(_serve, HOST, 0, backlog=1024)
    left = []
    async with tapping(
        f"http://{HOST}:{listening.sockets[0].getsockname()[1]}"
    ) as relay:
        relay.tap.use(
            Classification(), lambda observation: observed.update([_name(observation)])
        )
        tasks = asyncio.all_tasks()
        for _ in range(4):
            share = _REQUESTS // 4 // _CLIENTS
            await asyncio.gather(
                *(_run(relay.port, random, share, outcomes) for _ in range(_CLIENTS))
            )
            await relay.becomes_quiet()
            await eventually(lambda: asyncio.all_tasks() <= tasks)
            # What waits for the collector is no leak.
            gc.collect()
            left.append((len(gc.get_objects()), sys.getallocatedblocks()))
        assert relay.result.requests_total == outcomes.total() == _REQUESTS
        del outcomes[""]
        assert observed + Counter(relay.unobserved) == outcomes
        assert relay.errors == {}
    await stop_accepting(listening.sockets)
    listening.close()
    # Without the first round, which fills caches. A leak of one object for each request
    # would be 1,000 a round.
    assert left[3][0] - left[1][0] < 100
    assert left[3][1] - left[1][1] < 1000
