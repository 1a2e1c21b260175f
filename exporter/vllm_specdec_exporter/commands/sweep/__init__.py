"""`sweep`: real requests at several temperatures, loads and prompts, and their
acceptance.
"""

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import fields

from ...config.options import ConfigError, add_flags
from ...config.values import Target, duration, format_duration, number
from ...publish import plots
from ...settings import configuration as config
from .. import arguments as cli
from ..exit_codes import FINE, INTERRUPTED, PROBLEM, UNREACHABLE, USAGE
from . import record as recordfile
from . import report, runner
from .arguments import TrafficDefaults, add_traffic_flags
from .client import Endpoint, Unreachable, without_api
from .grid import SweepPlan, load_prompts
from .runner import OtherTraffic, run_sweep

_METRICS_TIMEOUT = 10.0  # seconds, unless it is given
#: The defaults of the flags.
_PLAN = SweepPlan(prompts=())
_PAGE = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `sweep` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} finished; {PROBLEM} cells failed or were disturbed, or "
        f"the sweep ended early; {USAGE} bad usage; {UNREACHABLE} the server cannot be "
        "reached, is no OpenAI endpoint, or has no vLLM metrics; "
        f"{INTERRUPTED} interrupted."
    )
    cli.add_url(parser, "The server, with or without /v1.")
    add_traffic_flags(
        parser,
        TrafficDefaults(
            concurrencies="1",
            prompts="chat",
            max_tokens=_PLAN.max_tokens,
            most_concurrent=4096,
        ),
    )
    add = partial(cli.add_flag, parser.add_argument_group("what to measure"))
    temperature = number(0.0, 2.0, "temperatures from 0 to 2, such as 0,0.4,0.8,1.0")
    add(
        "--temperature LIST",
        "Sampling temperatures.",
        "0,0.4,0.8,1.0",
        cli.values_of(temperature),
        dest="temperatures",
    )
    add(
        "--requests N",
        "Requests per cell.",
        f"{_PLAN.requests}",
        cli.whole_between(1, 100_000),
    )
    nucleus = number(math.ulp(0.0), 1.0, "a number above 0, at most 1")
    add("--top-p P", "Default: the server's.", parse=nucleus)
    add("--ignore-eos", "Go on to --max-tokens whatever the model says (vLLM).")

    add(
        "--request-timeout DURATION",
        "Time that one answer may take.",
        format_duration(_PLAN.request_timeout),
        duration(0.1),
    )

    add = partial(cli.add_flag, parser.add_argument_group("results"))
    out = (
        f"New directory for {recordfile.FILE} and {_PAGE}. Default: ./sweep-DATE-TIME."
    )
    add("--out DIR", out, parse=Path)
    add("--no-html", f"No {_PAGE}, which needs matplotlib.")
    add("--json", "Print JSON instead of a table.")
    add_flags(parser, cli.CONNECTION_OPTIONS)


def read_plan(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of the command line; ConfigError if a flag is invalid."""
    # The flags are called as the fields; some fields have no flag.
    values = {}
    for field in fields(_PLAN):
        if field.name in args:
            values[field.name] = getattr(args, field.name)
    values["prompts"] = load_prompts(map(str.strip, args.prompts.split(",")))
    return SweepPlan(**values)


def read_endpoint(args: argparse.Namespace) -> Endpoint:
    """Return the server from flags and environment; ConfigError if a setting is
    invalid.
    """
    values = cli.values_of_one_server(args, cli.SERVER_OPTIONS, "sweep measures")
    (target,) = values["vllm.url"]
    return endpoint_of(target, values, args.api_key_file or "")


def endpoint_of(
    target: Target, values: Mapping[str, Any], api_key_file: str
) -> Endpoint:
    """Return the server at an address, by the values of the options for connections;
    ConfigError if one is invalid.
    """
    upstream = config.build_upstream(
        {**values, "vllm.url": (without_api(target),)},
        values["poll.timeout"] or _METRICS_TIMEOUT,
    )
    return Endpoint(upstream, api_key_file)


def run(args: argparse.Namespace) -> int:
    """Measure, write the files, print the report and return the exit code."""
    plan = read_plan(args)
    server = read_endpoint(args)
    if not args.no_html:
        try:
            plots.require()  # before half an hour of measuring, not after
        except ConfigError as error:
            raise ConfigError(f"{error} (or give --no-html)") from error
    directory: Path = args.out or Path(time.strftime("sweep-%Y%m%d-%H%M%S"))
    say = cli.reporter(quiet=args.quiet)
    try:
        outcome = asyncio.run(run_sweep(plan, server, directory=directory, say=say))
    except Unreachable as error:
        return cli.fail("sweep", error, UNREACHABLE)
    except OtherTraffic as error:
        return cli.fail("sweep", error, PROBLEM)
    record = outcome.record
    files = recordfile.FILE
    if not args.no_html:
        page = report.render_page(record).encode("utf-8", "replace")
        cli.write_file("--out", directory / _PAGE, page)
        files += f", {_PAGE}"
    cli.show(args, report.document(record), lambda: report.render(record))
    if outcome.stopped:
        kept = f"{len(record.cells)} of {len(plan.cells())} cells are in {directory}"
        print(f"stopped: {outcome.stopped}; {kept}", file=sys.stderr)
    else:
        say(f"written to {directory}: {files}")
    if outcome.stopped == runner.INTERRUPTED:
        return INTERRUPTED
    return FINE if outcome.clean else PROBLEM
