"""Traffic in which everything goes wrong now and then, planned beforehand: the same each time.

Of each request it is known what the client sends and when it leaves, what the server answers and where it
breaks off, and so what the tap has to make of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tap.ends import PATIENCE, End, connect
from tap.streams import (
    ASKED,
    DONE,
    RECORD,
    STREAMED,
    answer,
    chat_answer,
    chat_documents,
    chat_request,
    chat_stream,
    chunk,
    chunks,
    cut_at,
    dump,
    events,
    request,
    split,
    stream_head,
    streamed,
    unchunk,
    usage_chunk,
)

if TYPE_CHECKING:
    from random import Random

#: What a tap keeps of a body or an event while this traffic passes.
MOST = 50_000

_WRONG = {**RECORD, "num_draft_tokens": 1}
_BODY = chat_request()
_PLAIN = chat_request(stream=True)


@dataclass(frozen=True)
class Kind:
    """One kind of request and what is answered.

    Attributes:
        outcome: what the tap makes of it, where nothing goes wrong: the state of the record, the reason why
            it was not observed, or nothing for what is no request for text.
        request: the whole request.
        answer: the whole answer.
        asked: the answer where the tap asked for usage, which the client gets without its extra event.
        closes: whether the server closes after it.
        simple: whether connections may break while it is answered: it ends as ``aborted`` then.
    """

    outcome: str
    request: bytes
    answer: bytes
    asked: bytes = b""
    closes: bool = False
    simple: bool = False


def _until_the_end(documents: list[Any]) -> bytes:
    return stream_head(**{"transfer-encoding": None}) + b"".join(events(documents))


_IN_CHUNKS = request(b"", Content_Type="application/json", Transfer_Encoding="chunked") + chunks(
    cut_at(dump(_BODY).encode(), (10, 50)), trailers=b"X-T: 1\r\n"
)
_DOCUMENTS = chat_documents()
_USAGE = usage_chunk(record=RECORD)
_HUGE = chunk({"content": "x" * (MOST + 1)})
_BEFORE, _BEHIND = events(_DOCUMENTS), events([DONE])
_REFUSAL = answer({"error": {}}, "429 Too Many")

KINDS: tuple[Kind, ...] = (
    Kind("detailed", request(_BODY), answer(chat_answer()), simple=True),
    Kind("detailed", request(_BODY), answer(chat_answer(), Connection="close"), closes=True, simple=True),
    Kind("detailed", _IN_CHUNKS, answer(chat_answer(), Content_Length=None), closes=True),
    Kind("malformed record", request(_BODY), answer(chat_answer(_WRONG))),
    Kind("malformed", request(b'{"model": '), answer({"error": {}}, "400 Bad Request")),
    Kind("encoded", request(_BODY), answer(b"\x1f\x8b\x00\xff", Content_Encoding="gzip")),
    Kind("too_large", request(chat_request(padding="x" * MOST)), answer(chat_answer())),
    Kind("connection", request(_BODY) * 2, answer(chat_answer()) * 2, closes=True),
    Kind("aborted", ASKED, _until_the_end([*_DOCUMENTS, _USAGE]), closes=True),
    Kind("detailed", ASKED, STREAMED),
    Kind("detailed", ASKED, stream_head() + chunks(cut_at(chat_stream(), range(0, 2000, 13)))),
    Kind("too_large", ASKED, streamed(events([*_DOCUMENTS, _HUGE, _USAGE, DONE]))),
    Kind("none", request(_PLAIN), streamed([*_BEFORE, *_BEHIND]), STREAMED, simple=True),
    Kind(
        "none",
        request(_PLAIN),
        _until_the_end([*_DOCUMENTS, DONE]),
        _until_the_end([*_DOCUMENTS, _USAGE, DONE]),
        closes=True,
    ),
    Kind("refused", request(_PLAIN), _REFUSAL, _REFUSAL),
    Kind("", request(method="HEAD", path="/v1/models"), split(answer(b"", Content_Length="99"))[0]),
    Kind("", request({"input": "x" * 20_000}, "/v1/embeddings"), answer({"data": [0.1] * 3000}), simple=True),
)


@dataclass(frozen=True)
class Step:
    """One request, and what becomes of it.

    Attributes:
        number: which it is; both heads tell it.
        kind: what is asked and answered.
        fate: ``whole``; ``leaves in request`` and ``leaves in answer``: the client does, after `place` bytes
            of it; ``closed`` and ``reset``: by the server, after `place` bytes of the answer.
        place: see there.
        broken: whether a client that leaves resets the connection.
        cuts: where what is sent is cut into pieces, on either side.
    """

    number: int
    kind: Kind
    fate: str = "whole"
    place: int = 0
    broken: bool = False
    cuts: tuple[int, ...] = ()

    @property
    def request(self) -> bytes:
        """What the client sends, if it sends all."""
        return _numbered(self.kind.request, self.number)

    def answer(self, *, asked: bool) -> bytes:
        """What the server sends, if it sends all."""
        return _numbered(self.kind.asked if asked and self.kind.asked else self.kind.answer, self.number)


def _numbered(data: bytes, number: int) -> bytes:
    return data.replace(b"\r\n", b"\r\nX-Number: %d\r\n" % number, 1)


def plan(random: Random, count: int, *, first: int = 0) -> list[Step]:
    """Return so many requests."""
    steps = []
    for number in range(first, first + count):
        kind = random.choice(KINDS)
        fate, place = "whole", 0
        chance = random.random()
        if chance < 0.04:
            fate, place = "leaves in request", random.randrange(1, len(_numbered(kind.request, number)))
        elif chance < 0.12 and kind.simple:
            fate = random.choice(["leaves in answer", "closed", "reset"])
            whole = _numbered(kind.answer, number)
            # A client gets a head whole from a tap that asked, and of events only whole ones.
            head = len(split(whole)[0])
            place = head if kind.asked else random.randrange(len(whole))
        cuts = tuple(random.randrange(100_000) for _ in range(random.choice((0, 0, 1, 3))))
        steps.append(Step(number, kind, fate, place, random.random() < 0.5, cuts))
    return steps


def expected(steps: list[Step], *, ask: bool) -> tuple[int, Counter[str]]:
    """Return how many requests a tap has to count, and what it has to make of those for text."""
    requests, outcomes = 0, Counter[str]()
    for step in steps:
        outcome = step.kind.outcome
        count = step.kind.request.count(b" HTTP/1.1\r\n")
        if step.fate == "leaves in request":
            # The number makes heads longer; what counts is whether a head was whole.
            whole = _numbered(step.kind.request, step.number)
            count = whole[: step.place].count(b"\r\n\r\n")
            if count == 2:
                outcome = "connection"  # the second was sent before the first was answered
            else:
                outcome = "aborted" if outcome and count else ""
                if step.kind.outcome == "too_large" and len(split(whole[: step.place])[1]) > MOST:
                    outcome = "too_large"
        elif step.fate != "whole":
            outcome = "aborted" if outcome else ""
        elif ask and step.kind.asked and outcome == "none":
            outcome = "detailed"
        requests += count
        if outcome:
            outcomes[outcome] += count
    return requests, outcomes


@dataclass
class Server:
    """Answers what is planned.

    Attributes:
        wrong: what was not as planned.
    """

    steps: dict[int, Step] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        end = End(reader, writer)
        try:
            while await self._answer(end):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        except Exception as error:  # noqa: BLE001 - it is to be seen in the test
            self.wrong.append(f"the server: {error!r}")
        finally:
            await end.close()

    async def _answer(self, end: End) -> bool:
        head = await end.reader.readuntil(b"\r\n\r\n")
        step = self.steps[_field(head, b"x-number")]
        if b"chunked" in head:
            body = await end.reader.readuntil(b"\r\n\r\n")  # behind the trailer
        else:
            body = await end.reader.readexactly(_field(head, b"content-length"))
        if step.kind.request.count(b" HTTP/1.1\r\n") > 1:
            _, body = await end.reader.readuntil(b"\r\n\r\n"), await end.reader.readexactly(len(body))
        asked = b'{"stream_options":{"include_usage":true},' in body
        whole = split(step.request)[1]
        if body.replace(b'"stream_options":{"include_usage":true},', b"", asked) not in (
            whole,
            whole[: len(body)],
        ):
            self.wrong.append(f"request {step.number} did not arrive as it was sent")
        sent = step.answer(asked=asked)
        if step.fate in ("closed", "reset", "leaves in answer"):
            sent = sent[: step.place]
        for part in cut_at(sent, step.cuts):
            await end.send(part)
        if step.fate == "leaves in answer":
            await end.reader.read()
        elif step.fate == "reset":
            end.reset()
        return step.fate == "whole" and not step.kind.closes


class Client:
    """A client that makes its requests one after the other, and connects anew where it has to."""

    def __init__(self, port: int, steps: list[Step], *, ask: bool) -> None:
        self._port, self._steps, self._ask = port, steps, ask
        self._end: End | None = None
        self.wrong: list[str] = []
        self.answered = 0

    async def run(self) -> None:
        """Make all requests."""
        for step in self._steps:
            try:
                if not await self._make(step):
                    await self._leave(broken=False)
            except (OSError, TimeoutError, ValueError, AssertionError) as error:
                self.wrong.append(f"request {step.number} ({step.fate}, {step.kind.outcome}): {error!r}")
                await self._leave(broken=True)
        await self._leave(broken=False)

    async def _leave(self, *, broken: bool) -> None:
        end, self._end = self._end, None
        if end is not None:
            if broken:
                end.reset()
            await end.close()

    async def _make(self, step: Step) -> bool:
        """Make one request; tell whether the connection goes on."""
        if self._end is None:
            self._end = await connect(self._port)
        end = self._end
        sent = step.request
        if step.fate == "leaves in request":
            sent = sent[: step.place]
        for part in cut_at(sent, step.cuts):
            await end.send(part)
        if step.fate == "leaves in request":
            await self._leave(broken=False)
            return False
        answered = step.answer(asked=False)
        if step.fate == "leaves in answer":
            got = await end.read(step.place)
            assert got == answered[: step.place], "the answer is another one"
            await self._leave(broken=step.broken)
            return False
        if step.fate in ("closed", "reset"):
            got, how = await end.rest()
            assert answered.startswith(got), "the answer is another one"
            assert len(got) == step.place or step.fate == "reset", "something is missing"
            assert how == ("reset" if step.fate == "reset" else "end"), f"it ended by {how}"
            return False
        if self._ask and step.kind.asked:
            await self._compare(end, answered)
        else:
            got = await end.read(len(answered))
            assert got == answered, "the answer is another one"
        if step.kind.closes:
            assert (await end.rest())[0] == b"", "there is more than the answer"
        self.answered += 1
        return not step.kind.closes

    @staticmethod
    async def _compare(end: End, answered: bytes) -> None:
        """Compare an answer whose chunks may be other ones."""
        head, body = split(answered)
        assert await end.read_head() == head, "the head is another one"
        if b"chunked" not in head:
            assert await end.read(len(body)) == body, "the body is another one"
            return
        got = b""
        async with asyncio.timeout(PATIENCE):
            while not got.endswith(b"0\r\n\r\n"):
                got += await end.reader.readuntil(b"\r\n")
        assert unchunk(got) == unchunk(body), "the stream is another one"


def _field(head: bytes, name: bytes) -> int:
    found = head.lower().partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]
    return int(found or b"0")
