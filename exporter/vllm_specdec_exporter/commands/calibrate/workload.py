"""The requests of a calibration, and the servers that they go to in turn."""

import argparse
import time
from collections.abc import Callable, Sequence

from ...config.values import format_duration
from ...economics.calibration import CalibrationError, expected_uncertainty
from ...economics.cost import MAX_UNCERTAINTY
from .. import arguments as cli
from ..sweep.client import Endpoint
from ..sweep.grid import Message, PromptSet, SweepPlan, load_prompts
from ..sweep.record import CellResult, ServerIdentity
from ..sweep.runner import INTERRUPTED, OtherTraffic, run_sweep
from .steps import scatter, step_time

#: Requests of each worker in each repeat: the median leaves out what one of them was
#: delayed by.
_PER_WORKER = 2
#: Factor of the largest uncertainty of use from which an expected one ends the command:
#: it is a rough one, by a tenth of the measurements.
_HOPELESS = 2.0
#: Words that are one token of most tokenizers; a prime number of them, so that texts
#: differ.
_WORDS = [
    "time",
    "people",
    "water",
    "house",
    "world",
    "light",
    "paper",
    "music",
    "river",
    "table",
    "money",
]


def plans_of(args: argparse.Namespace) -> list[SweepPlan]:
    """Return a plan for each batch size, the smallest first."""
    prompts = _prompts(args.prompts, sorted(args.context))
    return [_plan(args, prompts, batch) for batch in sorted(args.concurrencies)]


def _plan(
    args: argparse.Namespace, prompts: tuple[PromptSet, ...], batch: int
) -> SweepPlan:
    return SweepPlan(
        prompts=prompts,
        temperatures=(args.temperature,),
        concurrencies=(batch,),
        waves=True,
        requests=_PER_WORKER * max(2, batch),
        max_tokens=args.max_tokens,
        model=args.model,
        api=args.api,
        ignore_eos=True,
        allow_other_traffic=args.allow_other_traffic,
        watch=1.0,
    )


def _prompts(names: str, contexts: Sequence[int]) -> tuple[PromptSet, ...]:
    """Return the sets, and the first again for each longer context; the longest is
    first.

    A server that does not take it then says so before anything is measured.
    """
    sets = load_prompts(names.split(","))
    lengthened = tuple(
        _lengthened(sets[0], tokens) for tokens in reversed(contexts) if tokens
    )
    if 0 in contexts:
        return lengthened + sets
    return lengthened


def _lengthened(prompts: PromptSet, tokens: int) -> PromptSet:
    """Return the prompts with about so many tokens before each.

    They differ from the first one, or the server would read the cache of the common
    text once for all.
    """
    lengthened = []
    for index, prompt in enumerate(prompts.prompts):
        text = " ".join(
            _WORDS[(index + i * (index + 3)) % len(_WORDS)] for i in range(tokens)
        )
        first, *others = prompt
        first = Message(first.role, f"{text}\n{first.content}")
        lengthened.append((first, *others))
    return PromptSet(f"{prompts.name}+{tokens}", tuple(lengthened))


def _share_of_first(plans: Sequence[SweepPlan], repeats: int) -> float:
    """Return the share of all time that the first repeat of the first plan takes, about
    a tenth by default: by requests in a row, as a step takes about as long in each
    batch.
    """
    in_a_row = [
        plan.requests / plan.concurrencies[0] * len(plan.prompts) for plan in plans
    ]
    return in_a_row[0] / (repeats * sum(in_a_row))


def _check_kinds(cells: Sequence[CellResult]) -> None:
    """Raise CalibrationError unless one of two servers drafts and the other does not:
    now instead of at the end.
    """
    drafting = {bool(step_time(cell).k) for cell in cells}
    if drafting == {True}:
        raise CalibrationError(
            "both servers draft: --plain-url is to be one without speculation"
        )
    if drafting == {False}:
        raise CalibrationError(
            "no server drafts: URL is to be the one with speculation"
        )


def _look_ahead(
    cells: Sequence[CellResult],
    seconds: float,
    plans: Sequence[SweepPlan],
    repeats: int,
    *,
    say: Callable[[str], None],
) -> None:
    """Say whether the servers are quiet enough and how long the rest takes, by the
    cells of the first plan, which took so many seconds.

    Raises CalibrationError where the result could hardly be of use: a refusal now
    instead of at the end.
    """
    share = _share_of_first(plans, repeats)
    left = format_duration(float(round(seconds / share - seconds)))
    scattered = scatter(cells)
    if scattered is None:
        say(f"about {left} left; the servers' answers do not show how quiet they are")
        return
    expected = expected_uncertainty(scattered, len(cells) * len(plans) * repeats)
    found = (
        f"steps of like requests differ by {scattered:.0%}, so costs will be known "
        f"within about {expected:.0%}"
    )
    if expected > _HOPELESS * MAX_UNCERTAINTY:
        raise CalibrationError(
            f"{found}, and {MAX_UNCERTAINTY:.0%} is of use: the servers are not quiet "
            f"enough, and {left} more would hardly change that. Measure on quiet "
            "machines or more often (--repeats), or run compare on both servers under "
            "their usual traffic"
        )
    judged = "the servers are quiet enough"
    if expected > MAX_UNCERTAINTY:
        judged = "the servers may not be quiet enough"
    say(f"{judged}: {found} ({MAX_UNCERTAINTY:.0%} at most is of use); {left} left")


async def measure(
    args: argparse.Namespace, plans: Sequence[SweepPlan], servers: Sequence[Endpoint]
) -> tuple[ServerIdentity, list[CellResult]]:
    """Return the server, and the cells of both servers, in turn so that a slow drift
    affects both.
    """
    say = cli.reporter(quiet=args.quiet)
    started = time.monotonic()
    cells: list[CellResult] = []
    identity: ServerIdentity | None = None
    order = list(servers)
    for repeat in range(args.repeats):
        for plan in plans:
            for server in order:
                outcome = await run_sweep(plan, server, say=say)
                if outcome.stopped == INTERRUPTED:
                    raise KeyboardInterrupt
                if outcome.stopped:
                    raise OtherTraffic(outcome.stopped)
                identity = identity or outcome.record.server
                cells += outcome.record.cells
            if repeat == 0 and plan is plans[0] and cells:
                if len(servers) > 1:
                    _check_kinds(cells)
                _look_ahead(
                    cells, time.monotonic() - started, plans, args.repeats, say=say
                )
        # Each goes first in turn, or a drift would always favour the same one.
        order.reverse()
    assert identity is not None
    return identity, cells
