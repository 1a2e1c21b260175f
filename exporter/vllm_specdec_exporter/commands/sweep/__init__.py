"""`sweep`: real requests at several temperatures, loads and prompts, and their acceptance.

For programs::

    plan = SweepPlan(prompts=load_prompts(["code", "chat"]), temperatures=(0.0, 0.8))
    outcome = asyncio.run(run_sweep(plan, endpoint("http://127.0.0.1:8000"), directory=Path("sweep")))
    for cell in outcome.record.cells:
        print(cell.temperature, cell.acceptance_ratio, cell.acceptance_interval)

`grid` has the plan, its prompts and cells, `client` and `stream` the requests, `counters` the metrics of the
server, `cell` one measurement, `runner` all of them, `record` the file, `report` and `page` the output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...config.options import ConfigError, add_flags, gather
from ...config.values import duration, file, header, mask_header
from ...publish import plots
from ...serve import configuration as config
from ...serve.option_table import OPTIONS as ALL_OPTIONS
from ..arguments import URL, add_url, converter, fail, flags_of, number_between, whole_between
from . import page, report
from . import record as recordfile
from .endpoint import Endpoint, Unreachable, endpoint, without_api
from .grid import BUILTIN, TEMPERATURES, SweepPlan, Zones
from .grid import load as load_prompts
from .progress import show_progress
from .runner import OtherTraffic, run_sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from .record import SweepRecord

__all__ = ["SweepPlan", "endpoint", "load_prompts", "run_sweep"]

# Exit codes.
FINE, PROBLEM, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 4, 130

#: The options of `serve` that mean the same here.
OPTIONS = tuple(option for option in ALL_OPTIONS if option.name.startswith("vllm."))
_METRICS_TIMEOUT = 10.0
_DEFAULTS = SweepPlan(prompts=())
_ZONES = Zones()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `sweep` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} finished; {PROBLEM} cells failed or were disturbed, or the sweep ended early; "
        f"{USAGE} bad usage; {UNREACHABLE} the server cannot be reached, is no OpenAI endpoint, or has no "
        "vLLM metrics."
    )
    add_url(parser, "The server, with or without /v1.")
    grid = parser.add_argument_group("what to measure")
    grid.add_argument(
        "--temperature",
        type=_list(number_between(0.0, 2.0, "temperatures from 0 to 2, such as 0,0.4,0.8,1.0")),
        default=TEMPERATURES,
        metavar="LIST",
        help="Sampling temperatures. Default: 0,0.4,0.8,1.0.",
    )
    grid.add_argument(
        "--concurrency",
        type=_list(whole_between(1, 4096)),
        default=(1,),
        metavar="LIST",
        help="Requests at the same time. Default: 1.",
    )
    grid.add_argument(
        "--prompts",
        action="append",
        metavar="SET",
        help=f"{', '.join(BUILTIN)}, all, or a file with one prompt a line or JSON lines; "
        "repeatable, each set has cells of its own. Default: chat.",
    )
    grid.add_argument(
        "--requests",
        type=converter(whole_between(1, 100_000)),
        default=16,
        metavar="N",
        help="Requests per cell. Default: 16.",
    )
    grid.add_argument(
        "--max-tokens",
        type=converter(whole_between(1, 1_000_000)),
        default=128,
        metavar="N",
        help="Most tokens of an answer. Default: 128.",
    )
    grid.add_argument("--model", default="", metavar="NAME", help="Default: the only one that is served.")
    grid.add_argument(
        "--api",
        choices=("auto", "chat", "completions"),
        default="auto",
        help="Default: auto, which is chat unless the server has no chat template.",
    )
    grid.add_argument(
        "--seed",
        type=converter(whole_between(0, 2**31 - 1)),
        metavar="N",
        help="Seed of each cell's first request; the next has the next. It may change acceptance. "
        "Default: no seeds.",
    )
    grid.add_argument(
        "--top-p",
        type=converter(number_between(math.ulp(0.0), 1.0, "a number above 0, at most 1")),
        metavar="P",
        help="Default: the server's.",
    )
    grid.add_argument(
        "--ignore-eos", action="store_true", help="Go on to --max-tokens whatever the model says (vLLM)."
    )
    _add_conduct(parser)
    add_flags(parser, [option for option in OPTIONS if option is not URL])


def _add_conduct(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to measure")
    group.add_argument(
        "--allow-other-traffic", action="store_true", help="Measure even if others use the server."
    )
    group.add_argument(
        "--request-timeout",
        type=converter(duration(0.1)),
        default=_DEFAULTS.request_timeout,
        metavar="DURATION",
        help="Time that one answer may take. Default: 2m.",
    )
    group.add_argument(
        "--max-duration",
        type=converter(duration(1)),
        default=_DEFAULTS.max_duration,
        metavar="DURATION",
        help="Time that the sweep may take; it can be continued. Default: 30m.",
    )
    group.add_argument(
        "--pause",
        type=converter(duration(0)),
        default=0.0,
        metavar="DURATION",
        help="Time between two cells. Default: 0s.",
    )
    group.add_argument(
        "--api-key-file", type=converter(file), metavar="FILE", help="File with the server's API key."
    )
    group.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="HEADER",
        help="Further request header, 'Name: value'; repeatable. The same as --vllm.header.",
    )
    group = parser.add_argument_group("what to make of it")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="Directory for sweep.json, sweep.csv and report.html; one that holds a part of the same "
        "sweep is continued. Default: ./sweep-DATE-TIME.",
    )
    group.add_argument("--no-html", action="store_true", help="No report.html, which needs matplotlib.")
    group.add_argument("--json", action="store_true", help="Print JSON instead of a table.")
    group.add_argument("--quiet", action="store_true", help="Tell nothing while measuring.")
    group.add_argument(
        "--zone-disable-below",
        type=converter(number_between(0.0, 1.0)),
        default=_ZONES.disable_below,
        metavar="RATIO",
        help="Acceptance below which drafting costs more than it gains. "
        f"Default: {_ZONES.disable_below:.2f}.",
    )
    group.add_argument(
        "--zone-benefit-above",
        type=converter(number_between(0.0, 1.0)),
        default=_ZONES.benefit_above,
        metavar="RATIO",
        help=f"Acceptance above which drafting likely pays. Default: {_ZONES.benefit_above:.2f}.",
    )


def read_plan(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of the command line.

    Raises:
        ConfigError: a flag is invalid.
    """
    try:
        zones = Zones(args.zone_disable_below, args.zone_benefit_above)
    except ValueError as error:
        raise ConfigError(
            f"--zone-disable-below {args.zone_disable_below:g} and --zone-benefit-above "
            f"{args.zone_benefit_above:g}: {error}"
        ) from error
    return SweepPlan(
        prompts=load_prompts(_sets(args.prompts or ["chat"])),
        temperatures=args.temperature,
        concurrencies=args.concurrency,
        requests=args.requests,
        max_tokens=args.max_tokens,
        model=args.model,
        api=args.api,
        seed=args.seed,
        top_p=args.top_p,
        ignore_eos=args.ignore_eos,
        allow_other_traffic=args.allow_other_traffic,
        request_timeout=args.request_timeout,
        max_duration=args.max_duration,
        pause=args.pause,
        zones=zones,
    )


def _sets(given: list[str]) -> list[str]:
    """Return the names of sets; built-in ones may be separated by commas."""
    found = []
    for word in given:
        parts = word.split(",")
        known = all(part in (*BUILTIN, "all") for part in parts)
        found += parts if known else [word]
    return found


def read_endpoint(args: argparse.Namespace) -> Endpoint:
    """Return the server from flags and environment.

    Raises:
        ConfigError: a setting is invalid.
    """
    flags = flags_of(args)
    if args.header:
        flags["vllm.header"] = [*(flags["vllm.header"] or []), *args.header]
    values, _ = gather(OPTIONS, flags, os.environ, None)
    if len(values["vllm.url"]) > 1:
        raise ConfigError("sweep measures one server; give one URL")
    values["vllm.url"] = tuple(map(without_api, values["vllm.url"]))
    return Endpoint(config.build_upstream(values, _METRICS_TIMEOUT), args.api_key_file or "")


def _list(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of values separated by commas, without duplicates; errors quote the value."""

    def parse_list(text: str) -> tuple[Any, ...]:
        found = tuple(converter(parse)(part.strip()) for part in text.split(","))
        if len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(
                f"{json.dumps(text, ensure_ascii=False)}: allowed: each value once"
            )
        return found

    return parse_list


def _header(text: str) -> str:
    """Validate a header; errors do not show its value, which may be secret."""
    try:
        header(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{mask_header(text)}: {error}") from error
    return text


def run(args: argparse.Namespace) -> int:
    """Measure, write the files, print the report and return the exit code."""
    plan, server = read_plan(args), read_endpoint(args)
    if not args.no_html:
        try:
            plots.require()  # before half an hour of measuring, not after
        except ConfigError as error:
            raise ConfigError(f"{error} (or give --no-html)") from error
    directory: Path = args.out or Path(time.strftime("sweep-%Y%m%d-%H%M%S"))
    latest: list[SweepRecord] = []
    total = len(plan.cells())
    try:
        outcome = asyncio.run(
            run_sweep(
                plan,
                server,
                directory=directory,
                progress=show_progress(quiet=args.quiet),
                begun=latest.append,
            )
        )
    except (Unreachable, OtherTraffic) as error:
        return fail("sweep", error, UNREACHABLE if isinstance(error, Unreachable) else PROBLEM)
    except KeyboardInterrupt:
        if latest:
            _write(directory, latest[-1], plan.zones, html=not args.no_html)
            _tell_how_to_go_on("interrupted", directory, len(latest[-1].cells), total)
        return INTERRUPTED
    _write(directory, outcome.record, plan.zones, html=not args.no_html)
    if args.json:
        found = report.document(outcome.record, plan.zones)
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(report.render(outcome.record, plan.zones))
    sys.stdout.flush()
    if outcome.stopped:
        _tell_how_to_go_on(f"stopped: {outcome.stopped}", directory, total - outcome.left, total)
    elif not args.quiet:
        files = [recordfile.FILE, "sweep.csv", *([] if args.no_html else ["report.html"])]
        print(f"written to {directory}: {', '.join(files)}", file=sys.stderr)
    return FINE if outcome.clean else PROBLEM


def _write(directory: Path, found: SweepRecord, zones: Zones, *, html: bool) -> None:
    recordfile.save(directory / "sweep.csv", report.to_csv(found, zones).encode("utf-8", "replace"))
    if html:
        recordfile.save(directory / "report.html", page.render(found, zones).encode("utf-8", "replace"))


def _tell_how_to_go_on(why: str, directory: Path, done: int, total: int) -> None:
    print(
        f"{why}; {done} of {total} cells are kept in {directory}; the same command with --out {directory} "
        "goes on from there",
        file=sys.stderr,
    )
