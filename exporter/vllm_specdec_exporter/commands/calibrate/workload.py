"""The requests of a calibration, and the servers that they go to in turn."""

import argparse
from collections.abc import Sequence

from .. import arguments as cli
from ..sweep.client import Endpoint
from ..sweep.grid import Message, PromptSet, SweepPlan, load_prompts
from ..sweep.record import CellResult, ServerIdentity
from ..sweep.runner import INTERRUPTED, OtherTraffic, run_sweep

#: Requests of each worker in each repeat: the median leaves out what one of them was
#: delayed by.
_PER_WORKER = 2
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
    return [_plan(args, prompts, batch) for batch in sorted(args.concurrency)]


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


async def measure(
    args: argparse.Namespace, plans: Sequence[SweepPlan], servers: Sequence[Endpoint]
) -> tuple[ServerIdentity, list[CellResult]]:
    """Return the server, and the cells of both servers, in turn so that a slow drift
    affects both.
    """
    say = cli.reporter(quiet=args.quiet)
    cells: list[CellResult] = []
    identity: ServerIdentity | None = None
    order = list(servers)
    for _ in range(args.repeats):
        for plan in plans:
            for server in order:
                outcome = await run_sweep(plan, server, say=say)
                if outcome.stopped == INTERRUPTED:
                    raise KeyboardInterrupt
                if outcome.stopped:
                    raise OtherTraffic(outcome.stopped)
                identity = identity or outcome.record.server
                cells += outcome.record.cells
        # Each goes first in turn, or a drift would always favour the same one.
        order.reverse()
    assert identity is not None
    return identity, cells
