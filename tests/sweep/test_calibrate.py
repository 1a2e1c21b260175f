"""`calibrate`: what it sends and refuses. Its numbers are held against a real vLLM in tests/vllm."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.commands import Outcome, run_here
from sweep.fake import refusal

if TYPE_CHECKING:
    from aiohttp import web

    from sweep.fake import FakeServer


async def calibrate(*words: str) -> Outcome:
    """Run the command beside the loop that the fake server lives in."""
    return await asyncio.to_thread(run_here, "calibrate", *words, "--quiet")


async def test_a_dry_run_says_how_much_would_be_sent_and_sends_nothing(server: FakeServer) -> None:
    """Three requests per worker, at least six, of each set: code, chat, and code behind 2,000 tokens."""
    outcome = await calibrate(server.url, "--plain-url", server.url, "--concurrency", "1,4", "--dry-run")
    assert outcome.code == 0
    assert outcome.out.startswith("54 requests of 128 tokens to each of ")
    assert server.paths == []


async def test_a_context_that_the_server_does_not_take_ends_it_at_once(server: FakeServer) -> None:
    async def long(_number: int, body: dict[str, Any]) -> web.Response | None:
        words = len(str(body["messages"]).split())
        return refusal("This model's maximum context length is 1024 tokens") if words > 1024 else None

    server.on_request = long
    outcome = await calibrate(server.url, "--plain-url", server.url)
    assert outcome.code == 2
    assert "maximum context length is 1024 tokens" in outcome.err
    assert "give shorter ones with --context" in outcome.err
    assert server.measured == []


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--context", "0,x"), "--context"),
        (("--context", "-1"), "--context"),
        (("--concurrency", "0"), "--concurrency"),
    ],
)
async def test_bad_numbers_are_refused(flags: tuple[str, ...], reason: str) -> None:
    outcome = await calibrate("http://127.0.0.1:9", *flags)
    assert outcome.code == 2
    assert f"{reason} " in outcome.err
    assert "allowed: whole numbers" in outcome.err
