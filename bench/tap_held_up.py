"""What holds up the tap: work of the exporter in the same thread, by the processor time that it takes."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import TYPE_CHECKING

from aiohttp.test_utils import make_mocked_request

from answers import BODIES, ONE_ENGINE, body, growing
from vllm_specdec_exporter import engines as dialects
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.observe import pipeline
from vllm_specdec_exporter.observe.result import ExporterResult, TargetResult
from vllm_specdec_exporter.requests.aggregation import RequestAggregator
from vllm_specdec_exporter.requests.observation import Observation, Source, parse_record
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.endpoints import make_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiohttp.typedefs import Handler

    from vllm_specdec_exporter.engines.reading import EngineKey

#: Requests in the window, and the types of request among them: each comes with six temperatures.
REQUESTS, TYPES = 20_000, (1, 4, 20)
_TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, None)
_WINDOW_SECONDS = 1800.0
_TIMES = 9


def held_up() -> Iterator[tuple[str, ...]]:
    """Yield what is done, for how many groups of requests, and how long it takes."""
    settings = pipeline.Settings()
    states: dict[EngineKey, pipeline.EngineState] = {}
    warm = 100
    answers = growing(body(BODIES[ONE_ENGINE]), warm + _TIMES)
    polls = []
    for n, answer in enumerate(answers):
        start = time.thread_time()
        states, engines = pipeline.process_reading(states, dialects.read(answer), n * 5.0, settings)
        polls.append(time.thread_time() - start)
    yield "a poll, every 5 s", "", _milliseconds(polls[warm:])
    for types in TYPES:
        book = _filled(types)
        now = [_WINDOW_SECONDS]

        def judge(book: RequestAggregator = book, now: list[float] = now) -> None:
            now[0] += 2.0  # a judgement is kept for a second
            book.result(now[0], {})

        judgements = _timed(judge)
        found = book.result(now[0], {})
        result = ExporterResult("0", 0.0, (TargetResult("t", up=True, engines=engines),), requests=found)

        def handler(result: ExporterResult = result) -> Handler:
            return make_handler(lambda: result, process_metrics=True)

        groups = str(len(found.groups))
        yield "a judgement, at most with each scrape", groups, _milliseconds(judgements)
        steps = [_steps(handler) for _ in range(_TIMES)]
        yield "a scrape, all of it", groups, _milliseconds([sum(each) for each in steps])
        yield "its longest piece without a pause", groups, _milliseconds([max(each) for each in steps])


def _filled(types: int) -> RequestAggregator:
    """Return a book whose window is full."""
    chance = random.Random(1)
    settings = config.load({"vllm.url": ["http://server"]}, {}).requests
    book = RequestAggregator(settings, Thresholds(), [Source.TAP])
    for n in range(REQUESTS):
        drafts = chance.randint(10, 200)
        accepted = [chance.randint(0, 4) for _ in range(drafts)]
        record = parse_record(
            {
                "num_spec_steps": drafts,
                "num_draft_tokens": 4 * drafts,
                "num_accepted_draft_tokens": sum(accepted),
                "per_step_drafted": [4] * drafts,
                "per_step_accepted": accepted,
            }
        )
        observation = Observation(
            time=float(n),
            model_name="tiny-llama",
            temperature=chance.choice(_TEMPERATURES),
            request_type=f"type-{n % types}",
            stream=True,
            completion_tokens=drafts + record.accepted_tokens,
            record=record,
            ttft_seconds=0.3,
            tpot_seconds=0.02,
        )
        book.add(observation, Source.TAP, n * _WINDOW_SECONDS / REQUESTS)
    return book


def _timed(function: Callable[[], object]) -> list[float]:
    seconds = []
    for _ in range(_TIMES):
        start = time.thread_time()
        function()
        seconds.append(time.thread_time() - start)
    return seconds


def _steps(handler: Callable[[], Handler]) -> list[float]:
    """Return the seconds of a scrape from each pause to the next, in which others have their turn."""

    async def scrape() -> list[float]:
        seconds = []
        # A new handler each time: one that has just encoded rests for as long.
        running = asyncio.ensure_future(handler()(make_mocked_request("GET", "/metrics")))
        while not running.done():
            start = time.thread_time()
            await asyncio.sleep(0)
            seconds.append(time.thread_time() - start)
        await running
        return seconds

    return asyncio.run(scrape())


def _milliseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} ms"
