"""One cell: its requests, and from the counters whether its result is valid."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import asdict, replace

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
from ...per_request.records import DraftRecord
from .client import Client
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
    # A slot for each worker: its next request starts when its last response ends.
    slots = asyncio.Semaphore(concurrency)

    async def ask(number: int) -> StreamedAnswer:
        async with slots:
            return await client.ask(requests[number], number)

    started = time.monotonic()
    # Without waves, all requests wait for their slot together.
    size = concurrency if waves else max(1, len(requests))
    answers: list[StreamedAnswer] = []
    for first in range(0, len(requests), size):
        numbers = range(len(requests))[first : first + size]
        answers += await asyncio.gather(*map(ask, numbers))
    return tuple(answers), time.monotonic() - started


def cell_result(
    cell: Cell,
    answers: Sequence[StreamedAnswer],
    step: Delta,
    *,
    seconds: float,
    rested: bool,
    max_tokens: int,
    started: float,
) -> CellResult:
    """Return the result of a cell that began at the Unix time `started`. Pure.

    It took `seconds`, from the first request to the end of the last response. Meanwhile
    the counters increased by `step`; `rested` says whether they then stopped. A failed
    request may have generated as many as `max_tokens`.
    """
    complete: list[StreamedAnswer] = []
    errors: Counter[str] = Counter()
    tokens = 0
    drafts: list[DraftRecord] = []
    for answer in answers:
        # The usage of a response that is not complete is not known.
        if answer.error:
            errors[answer.error] += 1
            continue
        complete.append(answer)
        tokens += answer.completion_tokens
        if answer.drafts is not None:
            drafts.append(answer.drafts)
    failed = errors.total()
    # The sweep reads no count of first tokens: each answer has one.
    counters = acceptance(replace(step, first_tokens=float(len(complete))))
    recorded: Delta | None = None
    records: CellAcceptance | None = None
    interval = draft_interval(counters)
    # Records of some requests only would be another sample than the counters'.
    if drafts and len(drafts) == len(complete):
        recorded = pooled(drafts, tokens, step.span)
        records = acceptance(recorded)
        interval = acceptance_interval(complete)
    doubts = []
    if not rested:
        doubts.append("the counters did not come to rest after the last answer")
    doubts += _doubts(step, recorded, tokens, failed * max_tokens)
    status = Status.DISTURBED if doubts else Status.OK
    reasons = list(doubts)
    for error, number in errors.most_common(_MAX_ERRORS):
        reasons.append(f"{number} of {len(answers)} requests: {error}")
    source = records or counters
    tokens_per_second: float | None = None
    if not complete:
        status = Status.FAILED
        source = CellAcceptance()
    elif seconds > 0:
        tokens_per_second = tokens / seconds
    return CellResult(
        **asdict(cell),
        status=status,
        reasons=tuple(reasons),
        started=started,
        seconds=seconds,
        requests=len(answers),
        errors=failed,
        completion_tokens=tokens,
        generated_tokens=step.generation_tokens,
        tokens_per_second=tokens_per_second,
        ttft=distribution(answer.ttft_seconds for answer in complete),
        tpot=distribution(answer.tpot_seconds for answer in complete),
        latency=distribution(answer.seconds for answer in complete),
        acceptance_ratio=source.acceptance_ratio,
        acceptance_interval=interval,
        mean_acceptance_length=source.mean_acceptance_length,
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
    step: Delta, recorded: Delta | None, tokens: int, unknown: int
) -> list[str]:
    """Return why the counters include more than the requests of this cell.

    Failed requests may have generated `unknown` tokens beside the `tokens` of answers.
    """
    doubts = []
    generated = step.generation_tokens
    lowest = (1 - MAX_DIFFERENCE) * tokens
    highest = (1 + MAX_DIFFERENCE) * tokens + unknown
    if generated is None:
        doubts.append("the counters do not say how many tokens were generated")
    elif not lowest <= generated <= highest:
        doubts.append(
            f"the counters say {generated:g} generated tokens, the answers have "
            f"{tokens}"
        )
    # Failed requests have drafts without a record.
    if recorded is not None and not unknown and step.drafts is not None:
        drafts = recorded.drafts or 0.0
        if abs(step.drafts - drafts) > MAX_DIFFERENCE * drafts:
            doubts.append(
                f"the counters say {step.drafts:g} drafts, the requests' records "
                f"{drafts:g}"
            )
    return doubts


def pooled(
    records: Sequence[DraftRecord], generation_tokens: float, span: float
) -> Delta:
    """Return the sum of the requests' records, in the form of an increase."""
    drafts = 0
    draft_tokens = 0
    accepted_tokens = 0
    reaching: Counter[int] = Counter()  # drafts by position that was accepted
    for record in records:
        drafts += record.drafts
        draft_tokens += record.draft_tokens
        accepted_tokens += record.accepted_tokens
        for length, count in enumerate(record.histogram):
            # A draft with so many accepted tokens was accepted at each position before.
            reaching.update(dict.fromkeys(range(length), count))
    return Delta(
        span=span,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted_tokens,
        accepted_tokens_per_position=tuple(map(float, reaching.values())),
        generation_tokens=generation_tokens,
        # Each record is that of one answer, whose first token comes from prefill.
        first_tokens=len(records),
    )


def acceptance_interval(answers: Sequence[StreamedAnswer]) -> ClusterInterval | None:
    """Return the interval of the acceptance ratio from the requests' records.

    ``None`` with fewer than two units, or without drafts. If none or all tokens were
    accepted, clusters do not vary, although that is not certain: then it is Wilson's
    interval by drafts.
    """
    prompts = {answer.prompt for answer in answers}
    recur = 1 < len(prompts) < len(answers)
    accepted: Counter[int] = Counter()
    drafted: Counter[int] = Counter()
    drafts = 0
    for answer in answers:
        record = answer.drafts
        if record is None:
            continue
        drafts += record.drafts
        if record.draft_tokens:
            unit = answer.prompt if recur else answer.request
            accepted[unit] += record.accepted_tokens
            drafted[unit] += record.draft_tokens
    clusters = list(zip(accepted.values(), drafted.values(), strict=True))
    interval = cluster_interval(clusters, "prompt" if recur else "request")
    if interval is None or 0 < accepted.total() < drafted.total():
        return interval
    low, high = wilson(accepted.total() / drafted.total(), drafts)
    return replace(interval, low=low, high=high)


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
    # Here the position counters have no variance, although the ratio is not certain.
    if ratio in (0.0, 1.0):
        low, high = wilson(ratio, drafts / CLUSTERING)
        return ClusterInterval(low, high, "draft", round(drafts))
    interval = Acceptance(
        survival=counters.position_acceptance_ratio,
        drafts=drafts,
        ratio=ratio,
        length=None,
        drafted=counters.mean_draft_length,
    ).ratio_interval
    if interval is None or interval.low is None or interval.high is None:
        return None
    return ClusterInterval(interval.low, interval.high, "draft", round(drafts))
