"""A scripted server for the benchmark of the tap: streams events as vLLM does, at a set
pace.

What to answer is in the request's field `script`: how many `events`, the `rate` a
second, and whether all streams have them at the same moments (`step`). Each event has
the moment at which it was sent in it, on the machine's monotonic clock, so that whoever
reads it can compute how long it was under way.
"""

import asyncio
import contextlib
import json
import math
import sys
import time

#: What is in front of the moment of sending in an event, and its digits.
MARK = b'"sent":"'
DIGITS = 20
_STEPS = 60
_PART = {
    "id": "chatcmpl-" + "0123456789abcdef" * 2,
    "object": "chat.completion.chunk",
    "model": "tiny-llama",
}
_RECORD = {
    "num_spec_steps": _STEPS,
    "num_draft_tokens": 4 * _STEPS,
    "num_accepted_draft_tokens": 2 * _STEPS,
    "acceptance_histogram": [0, 0, _STEPS, 0, 0],
    "mean_acceptance_length": 3.0,
    "draft_acceptance_rate": 0.5,
    "per_step_drafted": [4] * _STEPS,
    "per_step_accepted": [2] * _STEPS,
}
_USAGE = {"prompt_tokens": 500, "total_tokens": 680, "completion_tokens": 3 * _STEPS}
_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; "
    b"charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _chunk(text: str) -> bytes:
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def _choice(finish: str | None, **delta: str) -> list[dict[str, object]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]


_TOKEN = {**_PART, "choices": _choice(None, content=" token"), "sent": "0" * DIGITS}
_BEFORE, _AFTER = _chunk(json.dumps(_TOKEN, separators=(",", ":"))).split(b"0" * DIGITS)
_USED = {
    **_PART,
    "choices": [],
    "usage": _USAGE,
    "metrics": {"speculative_decoding": _RECORD},
}
_ENDING = (
    _chunk(json.dumps({**_PART, "choices": _choice("stop")}))
    + _chunk(json.dumps(_USED))
    + _chunk("[DONE]")
    + b"0\r\n\r\n"
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection until its other end closes it."""
    with contextlib.suppress(OSError, EOFError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            # a proxy that has just started is asked for anything
            if head.startswith(b"get "):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                continue
            length = int(head.partition(b"content-length:")[2].split(None, 1)[0])
            script = json.loads(await reader.readexactly(length))["script"]
            writer.write(_HEAD)
            pace = 1 / script["rate"]
            due = time.monotonic()
            if script["step"]:
                due = math.ceil(due / pace) * pace
            for number in range(script["events"]):
                await asyncio.sleep(due + number * pace - time.monotonic())
                writer.write(_BEFORE + b"%020d" % time.monotonic_ns() + _AFTER)
                await writer.drain()  # fails where the client has left
            writer.write(_ENDING)
    writer.close()


async def main() -> None:
    """Serve on a free port, which is printed."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
