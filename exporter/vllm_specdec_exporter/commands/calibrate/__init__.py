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
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from ...config.options import ConfigError, add_flags
from ...config.values import number, parse_target
from ...economics.calibration import (
    CalibrationError,
    StepTime,
    calibrate,
    largest_error,
)
from ...economics.cost import MAX_UNCERTAINTY, Basis, CostProfile
from ...economics.profiles import BUILTIN, meant_for
from ...economics.speculative_config import drafts_without_model
from .. import arguments as cli
from ..exit_codes import FINE, PROBLEM, UNREACHABLE, USAGE
from ..measuring import LOOKUPS, NOT_PLAIN, ExporterFile
from ..sweep import endpoint_of
from ..sweep.arguments import TrafficDefaults, add_traffic_flags
from ..sweep.client import Endpoint, Unreachable
from ..sweep.grid import SweepPlan
from ..sweep.record import ServerIdentity
from ..sweep.runner import OtherTraffic
from .report import document, table
from .steps import step_time
from .workload import measure, plans_of

#: Repeats of each measurement: the least that show how much it scatters.
_MIN_REPEATS = 3
_MAX_REPEATS = 100
#: Requests at a time: vLLM's largest default of --max-num-seqs.
_MAX_BATCH = 1024
#: Tokens of text: the longest contexts that servers offer.
_MAX_CONTEXT = 1_000_000

#: Characters of a profile's name, so that it fits into a line of a report.
_MAX_NAME = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `calibrate` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} written; {PROBLEM} the measurements give no profile, or "
        f"none within {MAX_UNCERTAINTY:.0%}, or others use a server; {USAGE} bad "
        f"usage; {UNREACHABLE} a server cannot be reached."
    )
    parser.add_argument("url", metavar="URL", help="The server with speculation.")
    add = partial(cli.add_flag, parser)
    add(
        "--plain-url URL",
        "The same model without speculation, on an equal machine. Needed unless the "
        "server has a K schedule that has K=0 and --method is one without a draft "
        "model, such as ngram.",
        "",
    )
    add(
        "--context LIST",
        "Tokens of text before the prompts, 0 for none. Only the first set of prompts "
        "is measured with text before it.",
        "0,2000",
        cli.values_of(cli.whole_between(0, _MAX_CONTEXT)),
    )
    add(
        "--repeats N",
        "Measurements of each batch size and context.",
        "3",
        cli.whole_between(_MIN_REPEATS, _MAX_REPEATS),
    )
    add(
        "--temperature T",
        "As in production: drafting costs a little less where more is rejected.",
        "0",
        number(0.0, 2.0),
    )
    add(
        "--method NAME",
        "Speculative method, such as eagle3: the profile is chosen for it.",
        "",
    )
    add("--out FILE", "File to write.", "calibrated.yaml")
    add("--dry-run", "Print what would be sent, and exit.")
    add_traffic_flags(
        parser,
        TrafficDefaults(
            concurrencies="1,2,4,8",
            prompts="code,chat",
            max_tokens=128,
            most_concurrent=_MAX_BATCH,
        ),
    )
    add_flags(parser, cli.CONNECTION_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Measure, write the profile, print what it means, and return the exit code."""
    _check_method(args.method, has_plain_server=bool(args.plain_url))
    plans = plans_of(args)
    requests = args.repeats * sum(plan.requests * len(plan.prompts) for plan in plans)
    if args.dry_run:
        print(
            f"{requests} requests of {args.max_tokens} tokens to each of "
            f"{', '.join(_urls(args))}, at most {max(args.concurrencies)} at a time"
        )
        return FINE
    file = ExporterFile(Path(args.out), "--cost.file")
    file.check()
    servers = _servers(args)
    try:
        identity, cells = asyncio.run(measure(args, plans, servers))
    except Unreachable as error:
        return cli.fail("calibrate", error, UNREACHABLE)
    except (OtherTraffic, CalibrationError) as error:
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
    file.write(document(profile).encode())
    if fitted.provenance:
        print(f"the interval is wide: {fitted.provenance}", file=sys.stderr)
    print(file.written, file=sys.stderr)
    return FINE


def _check_method(method: str, *, has_plain_server: bool) -> None:
    """Raise ConfigError for an unknown method, or one that needs a second server."""
    if method and meant_for(method) is BUILTIN["unknown"]:
        methods = chain.from_iterable(profile.methods for profile in BUILTIN.values())
        raise ConfigError(
            f"--method {json.dumps(method)}: allowed: {', '.join(sorted(methods))}, "
            "*_mtp"
        )
    if not has_plain_server and not drafts_without_model(method):
        raise ConfigError(
            f"--plain-url is missing: {NOT_PLAIN}. Without one, give --method with "
            f"one of {LOOKUPS}"
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
    contexts = [row.context for row in rows]
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
    values = cli.option_values(cli.CONNECTION_OPTIONS, vars(args))
    return [
        endpoint_of(
            cli.parsed("URL", url, parse_target), values, args.api_key_file or ""
        )
        for url in _urls(args)
    ]
