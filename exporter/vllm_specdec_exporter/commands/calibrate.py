"""`calibrate`: measure the cost of speculation on this machine, and write a cost
profile for `--cost.file`.

It sends the same requests to two servers of one model on equal machines, one with
speculation and one without, in turn and several times; or, if drafts need no model, to
one server with a K schedule that has K=0. It does so at several batch sizes and
contexts, and fits the step times by `economics.calibration`. A step is the time per
output token as a client sees it, times the tokens that a request gets per step, by the
server's counters.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import chain, filterfalse
from operator import attrgetter
from pathlib import Path
from statistics import mean, median

import yaml
from msgspec.structs import asdict, replace

from ..config.options import ConfigError, add_flags, gather
from ..config.values import number, parse_target
from ..economics.calibration import CalibrationError, StepTime, calibrate, largest_error
from ..economics.cost import MAX_UNCERTAINTY, Basis, CostProfile
from ..economics.profiles import BUILTIN, meant_for
from ..economics.speculative_config import drafts_without_model
from ..settings.configuration import build_upstream
from . import arguments as cli
from .sweep import METRICS_TIMEOUT, SweepPlan, load_prompts, run_sweep
from .sweep.client import Endpoint, Unreachable, without_api
from .sweep.grid import Prompt, PromptSet
from .sweep.record import CellResult, ServerIdentity, Status
from .sweep.runner import OtherTraffic

# Exit codes.
FINE = 0
PROBLEM = 1
USAGE = 2
UNREACHABLE = 4

#: Requests of each worker in each repeat: the median leaves out what one of them was
#: delayed by.
_PER_WORKER = 2
#: Repeats of each measurement: the least that show how much it scatters.
_MIN_REPEATS = 3
_MAX_REPEATS = 100
#: Requests at a time: vLLM's largest default of --max-num-seqs.
_MAX_BATCH = 1024
#: Tokens of text: the longest contexts that servers offer.
_MAX_CONTEXT = 1_000_000

#: Characters of a profile's name, so that it fits into a line of a report.
_MAX_NAME = 80

#: Largest relative difference between the numbers of events and of steps, where each
#: step sends an event.
_MAX_STEP_DIFFERENCE = 0.1
#: Below this share of steps with drafts, a cell counts as without: at its end the batch
#: is smaller, so that a K schedule may draft.
_FEW_DRAFTS = 0.05

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `calibrate` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} written; {PROBLEM} the measurements give no profile, or "
        f"none within {MAX_UNCERTAINTY:.0%}, or others use a server; {USAGE} bad "
        f"usage; {UNREACHABLE} a server cannot be reached."
    )
    parser.add_argument("url", metavar="URL", help="The server with speculation.")
    cli.add_flag(
        parser,
        "--plain-url URL",
        "The same model without speculation, on an equal machine. Needed unless the "
        "server has a K schedule that has K=0 and --method is one without a draft "
        "model, such as ngram.",
        "",
    )
    cli.add_flag(
        parser,
        "--concurrency N,N,...",
        "Batch sizes to measure.",
        "1,2,4,8",
        parse=cli.values_of(cli.whole_between(1, _MAX_BATCH)),
    )
    cli.add_flag(
        parser,
        "--context N,N,...",
        "Tokens of text before the prompts, 0 for none. Only the first set of prompts "
        "is measured with text before it.",
        "0,2000",
        parse=cli.values_of(cli.whole_between(0, _MAX_CONTEXT)),
    )
    cli.add_flag(
        parser,
        "--repeats N",
        "Measurements of each batch size and context.",
        "3",
        parse=cli.whole_between(_MIN_REPEATS, _MAX_REPEATS),
    )
    cli.add_flag(
        parser,
        "--max-tokens N",
        "Tokens per response.",
        "128",
        parse=cli.whole_between(1, _MAX_CONTEXT),
    )
    cli.add_flag(
        parser,
        "--temperature T",
        "As in production: drafting costs a little less where more is rejected.",
        "0",
        parse=number(0.0, 2.0),
    )
    cli.add_flag(parser, "--prompts LIST", "As in sweep.", "code,chat")
    cli.add_flag(
        parser, "--model NAME", "Model to use, if the servers have several.", ""
    )
    cli.add_flag(
        parser,
        "--method NAME",
        "Speculative method, such as eagle3: the profile is chosen for it.",
        "",
    )
    cli.add_flag(
        parser, "--api", "API of the requests.", "chat", choices=("chat", "completions")
    )
    cli.add_flag(parser, "--api-key-file FILE", "File with the servers' API key.", "")
    cli.add_flag(parser, "--out FILE", "File to write.", "calibrated.yaml")
    cli.add_flag(parser, "--dry-run", "Print what would be sent, and exit.")
    cli.add_flag(
        parser, "--allow-other-traffic", "Measure even if others use a server."
    )
    cli.add_flag(parser, "--quiet", "Show no progress.")
    add_flags(parser, cli.CONNECTION_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Measure, write the profile, print what it means, and return the exit code."""
    _check_method(args.method, has_plain_server=bool(args.plain_url))
    prompts = _prompts(args.prompts, sorted(args.context))
    plans = [_plan(args, prompts, batch) for batch in sorted(args.concurrency)]
    requests = args.repeats * sum(plan.requests * len(prompts) for plan in plans)
    if args.dry_run:
        print(
            f"{requests} requests of {args.max_tokens} tokens to each of "
            f"{', '.join(_urls(args))}, at most {max(args.concurrency)} at a time"
        )
        return FINE
    cli.check_writable("--out", Path(args.out))  # before the requests, not after them
    servers = _servers(args)
    try:
        identity, cells = asyncio.run(_measure(args, plans, servers))
    except Unreachable as error:
        return cli.fail("calibrate", error, UNREACHABLE)
    except OtherTraffic as error:
        return cli.fail("calibrate", error, PROBLEM)
    except ConfigError as error:
        if "context" in str(error) and max(args.context) > 0:
            raise ConfigError(f"{error}; give shorter ones with --context") from error
        raise
    name = f"calibrated {identity.model.rpartition('/')[2]}"
    try:
        rows = list(map(step_time, cells))
        fitted = calibrate(rows, args.method, name[:_MAX_NAME])
    except CalibrationError as error:
        reason = str(error)
        if not args.plain_url:
            reason += "; give a server without speculation as --plain-url"
        return cli.fail("calibrate", reason, PROBLEM)
    profile = _described(fitted, rows, identity, plans, requests=requests)
    print(table(profile, rows))
    if profile.uncertainty > MAX_UNCERTAINTY:
        return cli.fail(
            "calibrate",
            f"costs are known within {profile.uncertainty:.0%} only; "
            f"{MAX_UNCERTAINTY:.0%} at most is of use, so nothing is written: measure "
            "more batch sizes (--concurrency) or more often (--repeats), on quiet "
            "machines",
            PROBLEM,
        )
    cli.write_file("--out", Path(args.out), document(profile).encode())
    if fitted.provenance:
        print(f"the interval is wide: {fitted.provenance}", file=sys.stderr)
    print(f"written to {args.out}: give it as --cost.file", file=sys.stderr)
    return FINE


def _check_method(method: str, *, has_plain_server: bool) -> None:
    """Raise ConfigError for an unknown method, or one that needs a second server."""
    if method and meant_for(method) is BUILTIN["unknown"]:
        methods = chain.from_iterable(map(attrgetter("methods"), BUILTIN.values()))
        raise ConfigError(
            f"--method {json.dumps(method)}: allowed: {', '.join(sorted(methods))}, "
            "*_mtp"
        )
    if not has_plain_server and not drafts_without_model(method):
        raise ConfigError(
            "--plain-url is missing: with a draft model, steps with K=0 still cost "
            "its first pass. Without one, give --method ngram or suffix"
        )


def _described(
    profile: CostProfile,
    rows: Sequence[StepTime],
    identity: ServerIdentity,
    plans: Sequence[SweepPlan],
    *,
    requests: int,
) -> CostProfile:
    """Return the profile with how it was measured."""
    concurrencies = sorted(chain.from_iterable(plan.concurrencies for plan in plans))
    smallest = concurrencies[0]
    largest = concurrencies[-1]
    contexts = list(map(attrgetter("context"), rows))
    date = time.strftime("%Y-%m-%d", time.gmtime())
    provenance = (
        f"vllm-specdec-exporter calibrate, {date}: {identity.model}, "
        f"{identity.dialect} {identity.version}, {requests} requests to each server, "
        f"{smallest} to {largest} at a time; largest error "
        f"{largest_error(profile, rows):.0%}"
    )
    return replace(
        profile,
        basis=Basis.CALIBRATED,
        batches=profile.batches or (float(smallest), float(largest)),
        contexts=(min(contexts), max(contexts)),
        provenance="; ".join(filter(None, (provenance, profile.provenance))),
    )


def _urls(args: argparse.Namespace) -> tuple[str, ...]:
    if args.plain_url:
        return (args.url, args.plain_url)
    return (args.url,)


def _servers(args: argparse.Namespace) -> list[Endpoint]:
    """Return the servers; ConfigError if an address or a setting is invalid."""
    values, _ = gather(cli.CONNECTION_OPTIONS, vars(args), os.environ, None)
    servers = []
    for url in _urls(args):
        target = without_api(cli.parsed("URL", url, parse_target))
        config = build_upstream(
            values | {"vllm.url": (target,)}, values["poll.timeout"] or METRICS_TIMEOUT
        )
        servers.append(Endpoint(config, args.api_key_file))
    return servers


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
        first, *others = prompt.messages
        first = replace(first, content=f"{text}\n{first.content}")
        lengthened.append(Prompt((first, *others)))
    return PromptSet(f"{prompts.name}+{tokens}", tuple(lengthened))


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


async def _measure(
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
                if outcome.stopped:
                    raise OtherTraffic(outcome.stopped)
                identity = identity or outcome.record.server
                cells += outcome.record.cells
        # Each goes first in turn, or a drift would always favour the same one.
        order.reverse()
    assert identity is not None
    return identity, cells


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
    k = 0.0
    if drafts >= _FEW_DRAFTS * steps:
        k = drafted / steps
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


def document(profile: CostProfile) -> str:
    """Return the file for `--cost.file`."""
    draft = asdict(profile.draft)
    entry = {
        "provenance": profile.provenance,
        "unit": "seconds",
        "basis": profile.basis.value,
        "batches": [round(requests, 1) for requests in profile.batches or ()],
        "contexts": [round(tokens, 1) for tokens in profile.contexts or ()],
        "methods": list(profile.methods),
        "cheap": profile.cheap,
        "typical_k": profile.typical_k,
        "uncertainty": round(profile.uncertainty, 4),
        "context_tokens": round(profile.context_tokens, 1),
        "target": asdict(profile.target),
        # What was fitted: the others belong to profiles of other origin.
        "draft": {name: draft[name] for name in ("fixed", "per_position", "per_token")},
    }
    return yaml.safe_dump(
        {"profiles": {profile.name: entry}}, sort_keys=False, allow_unicode=True
    )


_TABLE_TITLE = (
    "mean acceptance length at which speculation breaks even, by K and requests in the "
    "batch"
)


def table(profile: CostProfile, rows: Sequence[StepTime]) -> str:
    """Return the measured and fitted step costs, and the tokens per draft to break
    even, by K and batch.
    """
    measured_k = round(max(map(attrgetter("k"), rows)))
    batches = sorted(set(map(round, map(attrgetter("batch"), rows))))
    lines = [
        _TABLE_TITLE,
        "",
        "     K" + "".join(f"{batch:>8}" for batch in batches),
    ]
    for k in sorted({1, 2, 3, 5, 8, measured_k} - {0}):
        costs = [f"{profile.step_cost(k, batch):>8.2f}" for batch in batches]
        lines.append(f"{k:>6}" + "".join(costs))
    lines.append("")
    lines.append(
        f"largest error {largest_error(profile, rows):.0%}; a step's cost is known "
        f"within {profile.uncertainty:.0%}"
    )
    return "\n".join(lines)
