"""One cell: its requests, and from the counters whether its result is valid."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from ...economics.statistics import (
    CLUSTERING,
    Acceptance,
    ClusterInterval,
    cluster_interval,
    distribution,
    wilson,
)
from ...measures.history import Delta
from ...measures.measures import derive
from ...per_request.observation import DraftRecord
from .client import Client, CounterSample, between
from .grid import Cell, Request
from .record import CellAcceptance, CellResult, Status
from .stream import StreamedAnswer

#: Relative difference between counters and responses above which a cell counts as
#: disturbed. Drafts of others of this share change the acceptance ratio by at most as
#: much.
MAX_DIFFERENCE = 0.02
#: Kinds of errors that a cell lists: the others are in its answers.
_MAX_ERRORS = 3


async def send(
    client: Client,
    requests: Sequence[Request],
    concurrency: int,
    *,
    waves: bool = False,
) -> tuple[tuple[StreamedAnswer, ...], float]:
    """Send the requests in a closed loop; return all responses in order, and the
    elapsed seconds.

    Each of the `concurrency` workers sends its next request after its last response;
    with `waves` all do so together, so that no prompt is computed while another
    worker's response is generated.
    """
    slots = asyncio.Semaphore(concurrency)

    async def ask(number: int, request: Request) -> StreamedAnswer:
        async with slots:
            return await client.ask(request, number)

    started = time.monotonic()
    numbered = list(enumerate(requests))
    size = concurrency if waves else len(numbered)
    answers: list[StreamedAnswer] = []
    for at in range(0, len(numbered), size):
        answers += await asyncio.gather(
            *(ask(*each) for each in numbered[at : at + size])
        )
    return tuple(answers), time.monotonic() - started


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
    """Return the result of a cell that began at the Unix time `started`. Pure.

    It took `seconds`, from the first request to the end of the last response. Between
    `before` and `after` the server did not restart; `rested` says whether its counters
    then stopped increasing. A failed request may have generated as many as
    `max_tokens`.
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
    kinds = Counter(answer.error for answer in answers if answer.error)
    errors = [
        f"{number} of {len(answers)} requests: {words}"
        for words, number in kinds.most_common(_MAX_ERRORS)
    ]
    if not whole:
        status = Status.FAILED
    elif doubts:
        status = Status.DISTURBED
    else:
        status = Status.OK
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
        acceptance_interval=acceptance_interval(whole)
        if records
        else draft_interval(counters),
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
    )


def _doubts(
    step: Delta, own: Delta | None, tokens: int, unknown: int, *, rested: bool
) -> tuple[str, ...]:
    """Return why the counters include more than the requests of this cell."""
    doubts = []
    if not rested:
        doubts.append("the counters did not come to rest after the last answer")
    generated = step.generation_tokens
    if generated is None:
        doubts.append("the counters do not say how many tokens were generated")
    elif (
        not (1 - MAX_DIFFERENCE) * tokens
        <= generated
        <= (1 + MAX_DIFFERENCE) * tokens + unknown
    ):
        doubts.append(
            f"the counters say {generated:g} generated tokens, the answers have "
            f"{tokens}"
        )
    if own is not None and not unknown and step.drafts is not None:
        recorded = own.drafts or 0.0
        if abs(step.drafts - recorded) > MAX_DIFFERENCE * recorded:
            doubts.append(
                f"the counters say {step.drafts:g} drafts, the requests' records "
                f"{recorded:g}"
            )
    return tuple(doubts)


def pooled(
    records: Sequence[DraftRecord], generation_tokens: float, span: float
) -> Delta:
    """Return the sum of the requests' records, in the form of an increase."""
    histogram = list(
        map(sum, zip_longest(*(record.histogram for record in records), fillvalue=0))
    )
    return Delta(
        span=span,
        drafts=sum(record.drafts for record in records),
        draft_tokens=sum(record.draft_tokens for record in records),
        accepted_tokens=sum(record.accepted_tokens for record in records),
        accepted_tokens_per_position=tuple(
            float(sum(histogram[j:])) for j in range(1, len(histogram))
        ),
        generation_tokens=generation_tokens,
    )


def acceptance_interval(answers: Sequence[StreamedAnswer]) -> ClusterInterval | None:
    """Return the interval of the acceptance ratio from the requests' records.

    ``None`` with fewer than two units, or without drafts. If none or all tokens were
    accepted, clusters do not vary, although that is not certain: then it is Wilson's
    interval by drafts.
    """
    prompts = {answer.prompt for answer in answers}
    recur = 1 < len(prompts) < len(answers)
    clusters: dict[int, tuple[int, int]] = {}
    for answer in answers:
        if answer.drafts is not None and answer.drafts.draft_tokens:
            unit = answer.prompt if recur else answer.request
            accepted, drafted = clusters.get(unit, (0, 0))
            clusters[unit] = (
                accepted + answer.drafts.accepted_tokens,
                drafted + answer.drafts.draft_tokens,
            )
    interval = cluster_interval(
        list(clusters.values()), "prompt" if recur else "request"
    )
    accepted, drafted = (sum(counts[i] for counts in clusters.values()) for i in (0, 1))
    if interval is not None and accepted in (0, drafted):
        drafts = sum(
            answer.drafts.drafts for answer in answers if answer.drafts is not None
        )
        low, high = wilson(accepted / drafted, drafts)
        return ClusterInterval(low, high, interval.unit, interval.units)
    return interval


def draft_interval(counters: CellAcceptance) -> ClusterInterval | None:
    """Return the interval of the acceptance ratio from the counters alone; ``None``
    without positions.

    The position counters give the variance of the accepted tokens of a draft;
    `CLUSTERING` allows for the correlation of drafts of one request.
    """
    drafts = counters.drafts or 0.0
    ratio = counters.acceptance_ratio
    if drafts < 2 or ratio is None or not counters.position_acceptance_ratio:
        return None
    if ratio in (0.0, 1.0):
        return ClusterInterval(
            *wilson(ratio, drafts / CLUSTERING), "draft", round(drafts)
        )
    interval = Acceptance(
        counters.position_acceptance_ratio,
        drafts,
        ratio,
        None,
        counters.mean_draft_length,
    ).ratio_interval
    if interval is None or interval.low is None or interval.high is None:
        return None
    return ClusterInterval(interval.low, interval.high, "draft", round(drafts))
