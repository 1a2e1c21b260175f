"""One cell: its requests, and from the counters whether its result is valid."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from ...economics.statistics import (
    CLUSTERING,
    Z_EXACT,
    ClusterInterval,
    cluster_interval,
    distribution,
    wilson,
)
from ...measures.history import Delta
from ...measures.measures import derive
from .counters import between
from .record import CellAcceptance, CellResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .client import Client, Sampling
    from .counters import CounterSample
    from .grid import Cell, Prompt
    from .stream import StreamedAnswer, StreamedDrafts

#: Relative difference between counters and responses from which a cell counts as disturbed.
TOLERANCE = 0.02


async def send(
    client: Client,
    sampling: Sampling,
    asked: Sequence[tuple[int, Prompt]],
    concurrency: int,
    answered: Callable[[StreamedAnswer], None] = lambda _: None,
    *,
    waves: bool = False,
) -> tuple[tuple[StreamedAnswer, ...], float]:
    """Send the requests in a closed loop; return all responses in order, and the elapsed seconds.

    Each of the `concurrency` workers sends its next request after its last response.

    Args:
        client: the endpoint.
        sampling: everything but the prompts.
        asked: the prompts, each with its index in the set.
        concurrency: number of workers.
        answered: called with each response.
        waves: whether all workers send their next requests together, so that no prompt is computed while
            another worker's response is generated.
    """
    answers: list[StreamedAnswer] = []
    numbered = list(enumerate(asked))

    async def work(left: Iterator[tuple[int, tuple[int, Prompt]]]) -> None:
        for number, (place, prompt) in left:
            answer = await client.ask(sampling, prompt, number, place)
            answers.append(answer)
            answered(answer)

    started = time.monotonic()
    for at in range(0, len(numbered), concurrency) if waves else (0,):
        left = iter(numbered[at : at + concurrency] if waves else numbered)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(asked))):
                group.create_task(work(left))
    return tuple(sorted(answers, key=lambda answer: answer.request)), time.monotonic() - started


def judge(
    cell: Cell,
    answers: Sequence[StreamedAnswer],
    seconds: float,
    before: CounterSample,
    after: CounterSample,
    *,
    rested: bool,
    max_tokens: int,
    started: float = 0.0,
) -> CellResult:
    """Return the result of a cell. Pure.

    Args:
        cell: the cell.
        answers: one per request.
        seconds: from the first request to the end of the last response.
        before: the counters before the first request.
        after: the counters after the last response, without a restart in between.
        rested: whether the counters stopped increasing afterwards.
        max_tokens: most tokens of a response: a failed request may have generated as many.
        started: Unix time of the start of the cell.
    """
    whole = [answer for answer in answers if not answer.error]
    failed = len(answers) - len(whole)
    tokens = sum(answer.completion_tokens for answer in whole)
    step = between(before, after)
    counters = acceptance(step)
    drafts = [answer.drafts for answer in whole if answer.drafts is not None]
    records: CellAcceptance | None = None
    own: Delta | None = None
    if drafts and len(drafts) == len(whole):
        own = pooled(drafts, tokens, step.span)
        records = acceptance(own)
    source = records or counters
    doubts = _doubts(step, own, tokens, failed * max_tokens, rested=rested)
    errors = _errors(answers)
    status = Status.FAILED if not whole else Status.DISTURBED if doubts else Status.OK
    return CellResult(
        prompts=cell.prompts,
        concurrency=cell.concurrency,
        temperature=cell.temperature,
        status=status,
        reasons=(*doubts, *errors),
        started=started,
        seconds=seconds,
        requests=len(answers),
        errors=failed,
        completion_tokens=tokens,
        generated_tokens=step.generation_tokens,
        tokens_per_second=tokens / seconds if seconds > 0 and whole else None,
        ttft=distribution(answer.ttft_seconds for answer in whole),
        tpot=distribution(answer.tpot_seconds for answer in whole),
        latency=distribution(answer.seconds for answer in whole),
        acceptance_ratio=source.acceptance_ratio if whole else None,
        acceptance_interval=acceptance_interval(whole) if records else draft_interval(step),
        mean_acceptance_length=source.mean_acceptance_length if whole else None,
        counters=counters,
        records=records,
        answers=tuple(answers),
    )


def acceptance(step: Delta) -> CellAcceptance:
    """Return the acceptance from an increase of the counters."""
    measures = derive("cell", step)
    return CellAcceptance(
        drafts=step.drafts,
        draft_tokens=step.draft_tokens,
        accepted_tokens=step.accepted_tokens,
        acceptance_ratio=measures.acceptance_ratio,
        mean_acceptance_length=measures.mean_acceptance_length,
        position_acceptance_ratio=measures.position_acceptance_ratio,
        mean_draft_length=measures.mean_draft_length,
        coverage_ratio=measures.coverage_ratio,
    )


def _doubts(step: Delta, own: Delta | None, tokens: int, unknown: int, *, rested: bool) -> tuple[str, ...]:
    """Return why the counters include more than the requests of this cell."""
    found = []
    if not rested:
        found.append("the counters did not come to rest after the last answer")
    generated = step.generation_tokens
    if generated is None:
        found.append("the counters do not tell how many tokens were generated")
    elif not (1 - TOLERANCE) * tokens <= generated <= (1 + TOLERANCE) * tokens + unknown:
        found.append(f"the counters say {generated:g} generated tokens, the answers have {tokens}")
    if own is not None and not unknown:
        slack = TOLERANCE * (own.draft_tokens or 0.0)
        for name, counted, recorded in (
            ("drafts", step.drafts, own.drafts),
            ("draft tokens", step.draft_tokens, own.draft_tokens),
            ("accepted tokens", step.accepted_tokens, own.accepted_tokens),
        ):
            if counted is not None and abs(counted - (recorded or 0.0)) > slack:
                found.append(f"the counters say {counted:g} {name}, the requests' records {recorded:g}")
                break
    return tuple(found)


def _errors(answers: Sequence[StreamedAnswer]) -> tuple[str, ...]:
    """Return the errors of the requests, each kind once with its number."""
    kinds = Counter(answer.error for answer in answers if answer.error)
    return tuple(f"{number} of {len(answers)} requests: {words}" for words, number in kinds.most_common(3))


def failed(cell: Cell, reason: str, started: float, attempts: int) -> CellResult:
    """Return the result of a cell that could not be measured."""
    return CellResult(
        prompts=cell.prompts,
        concurrency=cell.concurrency,
        temperature=cell.temperature,
        status=Status.FAILED,
        reasons=(reason,),
        started=started,
        attempts=attempts,
    )


def pooled(records: Sequence[StreamedDrafts], generation_tokens: float, span: float) -> Delta:
    """Return the sum of the requests' records, in the form of an increase."""
    histogram = list(map(sum, zip_longest(*(record.histogram for record in records), fillvalue=0)))
    return Delta(
        span=span,
        drafts=sum(record.drafts for record in records),
        draft_tokens=sum(record.draft_tokens for record in records),
        accepted_tokens=sum(record.accepted_tokens for record in records),
        accepted_tokens_per_position=tuple(float(sum(histogram[j:])) for j in range(1, len(histogram))),
        generation_tokens=generation_tokens,
    )


def acceptance_interval(answers: Sequence[StreamedAnswer]) -> ClusterInterval | None:
    """Return the interval of the acceptance ratio from the requests' records.

    ``None`` with fewer than two units, or without drafts. If none or all tokens were accepted, clusters do
    not vary, although that is not certain: then it is Wilson's interval by drafts.
    """
    prompts = {answer.prompt for answer in answers}
    recur = 1 < len(prompts) < len(answers)
    clusters: dict[int, list[int]] = {}
    for answer in answers:
        if answer.drafts is not None and answer.drafts.draft_tokens:
            cluster = clusters.setdefault(answer.prompt if recur else answer.request, [0, 0])
            cluster[0] += answer.drafts.accepted_tokens
            cluster[1] += answer.drafts.draft_tokens
    found = cluster_interval([(a, d) for a, d in clusters.values()], "prompt" if recur else "request")
    drafts = sum(answer.drafts.drafts for answer in answers if answer.drafts is not None)
    accepted, drafted = (
        (sum(column) for column in zip(*clusters.values(), strict=True)) if clusters else (0, 0)
    )
    if found is not None and accepted in (0, drafted):
        low, high = wilson(accepted / drafted, drafts)
        return ClusterInterval(low, high, found.unit, found.units)
    return found


def draft_interval(delta: Delta) -> ClusterInterval | None:
    """Return the interval of the acceptance ratio from the counters alone.

    The position counters give the distribution of accepted tokens per draft, and so their variance, which
    `CLUSTERING` widens because drafts of one request are correlated.
    """
    drafts, drafted = delta.drafts or 0.0, delta.draft_tokens or 0.0
    positions = delta.accepted_tokens_per_position
    if drafts < 2 or drafted <= 0 or not positions:
        return None
    exactly = [max(0.0, here - deeper) for here, deeper in pairwise((drafts, *positions, 0.0))]
    mean = math.fsum(j * n for j, n in enumerate(exactly)) / drafts
    variance = math.fsum(n * (j - mean) ** 2 for j, n in enumerate(exactly)) / (drafts - 1)
    length = drafted / drafts
    ratio = min(1.0, mean / length)
    if ratio in (0.0, 1.0):
        return ClusterInterval(*wilson(ratio, drafts / CLUSTERING), "draft", round(drafts))
    reach = Z_EXACT * math.sqrt(CLUSTERING * variance / drafts) / length
    return ClusterInterval(max(0.0, ratio - reach), min(1.0, ratio + reach), "draft", round(drafts))
