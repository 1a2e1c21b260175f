"""What the polls of all servers share: turns, and memory for what is read and kept."""

import asyncio
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.rig import counted, vllm
from support.builders import counters
from support.copies import replace
from support.faulty_server import FaultyServer, answer
from vllm_specdec_exporter.config.values import parse_target
from vllm_specdec_exporter.engines.reading import (
    EngineKey,
    EngineReading,
    Latencies,
    Reading,
)
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.observe import pipeline
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.publish.events import Event
from vllm_specdec_exporter.runtime.memory_limit import memory_limit
from vllm_specdec_exporter.serve.kept_memory import BASE, MIB, KeptMemory, kept_bytes
from vllm_specdec_exporter.serve.poll_turns import MAX_LARGE, PollTurns
from vllm_specdec_exporter.serve.poller import Poller
from vllm_specdec_exporter.upstream.client import (
    PollError,
    Upstream,
    UpstreamResponse,
)
from vllm_specdec_exporter.upstream.connection import UpstreamConfig
from vllm_specdec_exporter.upstream.read_budget import (
    MAX_READ,
    SHARE,
    SHARES,
    ReadBudget,
)


async def takes(budget: ReadBudget, reader: str, size: int) -> bool:
    """Whether a reader gets so much without waiting."""
    taking = asyncio.ensure_future(budget.take(reader, size))
    await asyncio.sleep(0)
    if taking.done():
        return True
    taking.cancel()
    return False


class TestReading:
    async def test_all_but_the_oldest_share_a_limit(self) -> None:
        budget = ReadBudget(100, share=0)
        assert await takes(budget, "oldest", 1000)
        assert await takes(budget, "second", 60)
        assert not await takes(budget, "third", 60)
        assert await takes(budget, "oldest", 1000)
        budget.release("oldest")
        # Now the second is the oldest, so that none waits for one that waits.
        assert await takes(budget, "third", 60)
        assert await takes(budget, "second", 1000)

    async def test_who_waits_goes_on_when_there_is_room(self) -> None:
        budget = ReadBudget(100, share=0)
        await budget.take("oldest", 1)
        await budget.take("second", 100)
        waiting = asyncio.ensure_future(budget.take("third", 1))
        await asyncio.sleep(0)
        budget.release("second")
        await asyncio.wait_for(waiting, 1)

    async def test_large_ones_do_not_hold_up_the_usual_ones(self) -> None:
        """Of which the oldest have a share; the next ones wait until one is read."""
        budget = ReadBudget()
        assert await takes(budget, "oldest", MAX_READ)
        assert await takes(budget, "large", MAX_READ)
        assert await takes(budget, "large", SHARE)
        assert not await takes(budget, "large", 1)
        usual = [f"usual {number}" for number in range(SHARES - 2)]
        for _ in range(2):
            for reader in usual:
                assert await takes(budget, reader, SHARE // 2)
        assert not await takes(budget, usual[0], SHARE)
        assert not await takes(budget, "next", 1)
        budget.release(usual[0])
        assert await takes(budget, "next", SHARE)

    async def test_its_wait_is_no_timeout_of_the_server(self) -> None:
        """The exporter is late; and the poll holds nothing any more."""
        budget = ReadBudget(1, share=0)
        await budget.take("oldest", 1)
        config = UpstreamConfig(timeout=0.3)
        with FaultyServer(answer(vllm())) as server:
            client = Upstream(parse_target(server.url), config, budget)
            with pytest.raises(PollError) as caught:
                await client.read()
        assert caught.value.reason == "stale"
        assert await takes(budget, "next", 1)


class TestTurns:
    async def test_one_poll_is_judged_in_a_turn_of_the_loop(self) -> None:
        """In order; others of the loop come in between."""
        turns = PollTurns(lambda: 0.0)
        order: list[str] = []

        async def judge(name: str) -> None:
            await turns.take()
            order.append(name)

        async def scrape() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                order.append("-")

        await asyncio.gather(*map(judge, "abc"), scrape())
        assert "".join(order).replace("-", "") == "abc"
        assert "".join(order).index("-") < 2

    async def test_a_poll_that_was_cancelled_does_not_keep_its_turn(self) -> None:
        turns = PollTurns(lambda: 0.0)
        await turns.take()
        waiting = [asyncio.ensure_future(turns.take()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.wait_for(turns.take(), 1)

    async def test_one_poll_begins_in_a_turn_of_the_loop(self) -> None:
        """In the order in which they are due; one of them stands before what was
        received, and the others behind it.
        """
        turns = PollTurns(lambda: 0.0)
        order: list[str] = []

        async def begin(name: str) -> None:
            await turns.begin()
            order.append(name)

        async def judge(name: str) -> None:
            await turns.take()
            order.append(name)

        async def scrape() -> None:
            for _ in range(20):
                await asyncio.sleep(0)
                order.append("-")

        await asyncio.gather(*map(begin, "abcde"), *map(judge, "xy"), scrape())
        polls = [each for each in "".join(order).split("-") if each]
        assert polls == list("abxycde")

    async def test_polls_wait_for_large_responses(self) -> None:
        """With too many of them another one would only grow the heap."""
        turns = PollTurns(lambda: 0.0)
        go_on = threading.Event()
        waiting = [
            asyncio.ensure_future(turns.large(go_on.wait)) for _ in range(MAX_LARGE)
        ]
        await asyncio.sleep(0)
        polls = [asyncio.ensure_future(turns.begin()) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert not any(poll.done() for poll in polls)
        go_on.set()
        await asyncio.gather(*waiting, *polls)


class _Answered:
    """A client whose server has answered."""

    identity = ()
    timeout = 1.0

    def __init__(self, body: bytes) -> None:
        self.body = body

    def release(self) -> None:
        pass

    async def fetch(self) -> UpstreamResponse:
        return UpstreamResponse(self.body, "text/plain")

    async def version(self, _seconds: float) -> str:
        return ""

    def mask(self, text: str) -> str:
        return text

    async def close(self) -> None:
        pass


def poller(
    upstream: _Answered, clock: Callable[[], float] = lambda: 0.0, **shared: Any
) -> Poller:
    return Poller(
        "t",
        upstream,  # type: ignore[arg-type]
        Settings(),
        5.0,
        patience=math.inf,
        clock=clock,
        wall=lambda: 0.0,
        **shared,
    )


@pytest.mark.parametrize(
    ("late", "left_out"),
    [
        pytest.param(4.9, 0, id="within its interval"),
        pytest.param(11.0, 2, id="beyond two more"),
    ],
)
async def test_a_poll_that_begins_late_counts_those_left_out(
    late: float, left_out: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As the exporter's own lateness, which is logged; the poll itself succeeds."""
    polled = poller(_Answered(vllm()))
    polling = asyncio.ensure_future(polled.run(-late))
    for _ in range(20):
        await asyncio.sleep(0)
    polling.cancel()
    assert polled.latest.up
    assert polled.latest.poll_errors_total["stale"] == left_out
    lines = [line for line in caplog.records if "left out" in line.getMessage()]
    assert [vars(line)["fields"]["polls"] for line in lines] == [left_out] * len(lines)
    assert bool(lines) == bool(left_out)


class _Failing(_Answered):
    """A client with a bug, whose text quotes a credential."""

    async def fetch(self) -> UpstreamResponse:
        raise ValueError("no address: [hidden]")

    def mask(self, text: str) -> str:
        return text.replace("hidden", "<secret>")


async def test_a_traceback_has_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    await poller(_Failing(b"")).poll()
    record = caplog.records[0]
    assert record.getMessage() == "poll failed unexpectedly"
    fields = vars(record)["fields"]
    assert fields["traceback"].startswith("Traceback")
    assert fields["traceback"].endswith("ValueError: no address: [<secret>]")


class TestReasons:
    """Reasons and findings, which are made for who reads them."""

    async def polled(self, log: list[Event]) -> Poller:
        """A poller that has seen an engine draft for a minute."""
        times = [0.0, 60.0]
        upstream = _Answered(b"")
        polled = poller(upstream, clock=lambda: times[0], log=log.extend)
        for _ in range(2):
            upstream.body = vllm(counted(int(times[0]) + 1))
            await polled.poll()
            times.reverse()
        return polled

    async def test_a_log_line_and_a_page_have_them(self) -> None:
        events: list[Event] = []
        polled = await self.polled(events)
        why = {event.message: event.fields.get("why") for event in events}
        [bare] = polled.latest.engines
        assert bare.quality.reasons == ()
        [engine] = polled.explained(polled.latest)().engines
        assert engine.quality.reasons
        assert why["quality"] == "; ".join(engine.quality.reasons)

    async def test_a_bug_in_them_leaves_the_numbers(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object) -> None:
            raise KeyError("reason")

        monkeypatch.setattr(pipeline, "explained", fail)
        events: list[Event] = []
        polled = await self.polled(events)
        assert polled.latest.up
        assert "quality" in [event.message for event in events]
        assert polled.explained(polled.latest)() == polled.latest
        assert "reasons could not be written" in caplog.text


def reading(engines: int = 1, latencies: Latencies | None = None) -> Reading:
    engine = EngineReading(EngineKey("m", "0"), counters(9, [3] * 5))
    return Reading("vllm-v1", (replace(engine, latencies=latencies),) * engines)


class TestMemory:
    def test_what_an_engine_takes(self) -> None:
        """As measured with 61 samples: 55 kB, and 201 kB with latencies."""
        histogram = Histogram((1.0,) * 20, (1.0,) * 20, 1.0, 1.0)
        timed = Latencies(histogram, histogram, histogram)
        assert kept_bytes(reading(), 61) / 55e3 == pytest.approx(1, abs=0.15)
        assert kept_bytes(reading(2, timed), 61) / 402e3 == pytest.approx(1, abs=0.15)

    def test_servers_share_a_limit(self) -> None:
        memory = KeptMemory(BASE + 100 * MIB)
        assert memory.keep("a", 60 * MIB)
        assert not memory.keep("b", 60 * MIB)
        assert memory.keep("a", 40 * MIB)
        assert memory.keep("b", 60 * MIB)
        assert not memory.keep("b", 61 * MIB)
        memory.forget("a")
        assert memory.keep("b", 100 * MIB)

    @pytest.mark.parametrize(
        ("groups", "files", "limit"),
        [
            ("", {"memory.max": "134217728\n"}, 128 * MIB),
            ("0::/a/b\n", {"memory.max": "max", "a/b/memory.max": "9"}, 9),
            (
                "7:x:/\n4:memory:/a\n",
                {
                    "memory/memory.limit_in_bytes": "9223372036854771712",
                    "memory/a/memory.limit_in_bytes": "8",
                },
                8,
            ),
        ],
        ids=["container", "host", "version 1"],
    )
    def test_the_limit_of_the_container(
        self, tmp_path: Path, groups: str, files: dict[str, str], limit: int
    ) -> None:
        (tmp_path / "groups").write_text(groups)
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        assert memory_limit(tmp_path / "groups", tmp_path) == limit

    def test_without_a_limit_it_is_that_of_the_machine(self, tmp_path: Path) -> None:
        assert memory_limit(tmp_path / "none", tmp_path) > 128 * MIB


async def test_a_poll_beyond_it_is_refused() -> None:
    """With the reason; what is kept of other servers stays."""
    memory = KeptMemory(0)
    assert memory.keep("other", 15 * MIB)
    upstream = _Answered(vllm(engines=20))
    refused = poller(upstream, memory=memory)
    await refused.poll()
    assert refused.latest.failure is not None
    assert refused.latest.failure.reason == "too_large"
    assert "20 engines" in refused.latest.failure.message
    memory.forget("other")
    await refused.poll()
    assert refused.latest.up
