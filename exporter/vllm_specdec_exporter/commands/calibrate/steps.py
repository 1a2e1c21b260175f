"""The step time that a measured cell shows. Pure."""

from collections.abc import Iterable
from itertools import filterfalse
from math import log, sqrt
from operator import attrgetter
from statistics import mean, median, variance

from ...economics.calibration import CalibrationError, StepTime
from ..sweep.record import CellResult, Status

#: Largest relative difference between the numbers of events and of steps, where each
#: step sends an event.
_MAX_STEP_DIFFERENCE = 0.1
#: Below this share of steps with drafts, a cell counts as without: at its end the batch
#: is smaller, so that a K schedule may draft.
_FEW_DRAFTS = 0.05


def scatter(cells: Iterable[CellResult]) -> float | None:
    """Return the standard deviation of the logarithms of step times within cells, in
    which they should be alike; ``None`` where no cell shows it.
    """
    squares = 0.0
    freedom = 0
    for cell in cells:
        logarithms = [
            log(answer.event_seconds)
            for answer in cell.answers
            if answer.event_seconds and not answer.error
        ]
        if len(logarithms) > 1:
            squares += variance(logarithms) * (len(logarithms) - 1)
            freedom += len(logarithms) - 1
    if not freedom:
        return None
    return sqrt(squares / freedom)


def step_time(cell: CellResult) -> StepTime:
    """Return the step time of a cell; CalibrationError if it was not measured.

    Each step emits one token beside the accepted ones, with or without a draft, and the
    first step of a request has none. vLLM sends one event for each step, so the time
    between events is the step time; its median leaves out the steps that computed
    prompts of other requests. For servers that send other events it follows from the
    time per output token.
    """
    if (
        cell.status is not Status.OK
        or cell.tpot.mean is None
        or not cell.generated_tokens
    ):
        reasons = "; ".join(cell.reasons) or "no time per output token"
        raise CalibrationError(f"{cell.name}: {reasons}")
    answers = list(filterfalse(attrgetter("error"), cell.answers))
    decoded = cell.generated_tokens - len(answers)  # without the first tokens
    accepted = 0.0
    drafted = 0.0
    drafts = 0.0
    if cell.counters:
        accepted = cell.counters.accepted_tokens or 0.0
        drafted = cell.counters.draft_tokens or 0.0
        drafts = cell.counters.drafts or 0.0
    # Tokens accepted beyond the end of a request count as accepted and not as
    # generated.
    steps = max(decoded - accepted, drafts)
    k = drafted / steps if drafts >= _FEW_DRAFTS * steps else 0.0
    seconds = cell.tpot.mean * decoded / steps
    between_events = []
    events = 0
    contexts = []
    for answer in answers:
        events += answer.events - 1
        if answer.event_seconds is not None:
            between_events.append(answer.event_seconds)
        # Half of an answer is there on average.
        contexts.append(answer.prompt_tokens + answer.completion_tokens / 2)
    if between_events and abs(events / steps - 1) <= _MAX_STEP_DIFFERENCE:
        seconds = median(between_events)
    seconds_in_server = sum(map(attrgetter("seconds"), cell.answers))
    return StepTime(
        batch=max(1.0, seconds_in_server / cell.seconds),
        k=k,
        seconds=seconds,
        context=mean(contexts),
        cell=cell.name,
    )
