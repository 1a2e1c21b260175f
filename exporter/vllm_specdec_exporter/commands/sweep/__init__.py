"""`sweep`: real requests at several temperatures, loads and prompts, and their acceptance.

For programs::

    plan = SweepPlan(prompts=load_prompts(["code", "chat"]), temperatures=(0.0, 0.8))
    outcome = asyncio.run(run_sweep(plan, endpoint("http://127.0.0.1:8000"), directory=Path("sweep")))
    for cell in outcome.record.cells:
        print(cell.temperature, cell.acceptance_ratio, cell.acceptance_interval)

* `grid`: zones of acceptance, prompts, cells and the plan.
* `endpoint`, `client`: the server: its identity and its API; requests and their streamed responses.
* `counters`: the server's counters around a cell.
* `cell`, `runner`: the measurement of one cell, and of all of them.
* `record`: `sweep.json`, which a later run continues.
* `report`, `page`: the results as text, CSV, JSON and HTML.
* `progress`: what the terminal shows meanwhile.
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
from ...config.values import duration, file, format_duration, header, mask_header
from ...publish import plots
from ...serve import configuration as config
from ...serve.option_table import OPTIONS as ALL_OPTIONS
from ..arguments import URL, add_flag, add_url, converter, fail, flags_of, number_between, whole_between
from . import page, report
from . import record as recordfile
from .endpoint import Endpoint, Unreachable, endpoint, without_api
from .grid import BUILTIN, SweepPlan, Zones
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
#: The defaults of the flags.
_PLAN = SweepPlan(prompts=())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `sweep` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} finished; {PROBLEM} cells failed or were disturbed, or the sweep ended early; "
        f"{USAGE} bad usage; {UNREACHABLE} the server cannot be reached, is no OpenAI endpoint, or has no "
        "vLLM metrics."
    )
    add_url(parser, "The server, with or without /v1.")
    group = parser.add_argument_group("what to measure")
    temperatures = _list(number_between(0.0, 2.0, "temperatures from 0 to 2, such as 0,0.4,0.8,1.0"))
    add_flag(group, "--temperature LIST", "Sampling temperatures.", "0,0.4,0.8,1.0", type=temperatures)
    loads = _list(whole_between(1, 4096))
    add_flag(group, "--concurrency LIST", "Requests at the same time.", "1", type=loads)
    add_flag(
        group,
        "--prompts SET",
        f"{', '.join(BUILTIN)}, all, or a file with one prompt a line or JSON lines; repeatable, each set "
        "has cells of its own. Default: chat.",
        action="append",
    )
    add_flag(group, "--requests N", "Requests per cell.", f"{_PLAN.requests}", whole_between(1, 100_000))
    add_flag(
        group,
        "--max-tokens N",
        "Most tokens of an answer.",
        f"{_PLAN.max_tokens}",
        whole_between(1, 1_000_000),
    )
    add_flag(group, "--model NAME", "Default: the only one that is served.", "")
    api = "Default: auto, which is chat unless the server has no chat template."
    group.add_argument("--api", choices=("auto", "chat", "completions"), default="auto", help=api)
    seed = "Seed of each cell's first request; the next has the next. It may change acceptance."
    add_flag(group, "--seed N", f"{seed} Default: no seeds.", parse=whole_between(0, 2**31 - 1))
    nucleus = number_between(math.ulp(0.0), 1.0, "a number above 0, at most 1")
    add_flag(group, "--top-p P", "Default: the server's.", parse=nucleus)
    add_flag(group, "--ignore-eos", "Go on to --max-tokens whatever the model says (vLLM).")

    group = parser.add_argument_group("how to measure")
    add_flag(group, "--allow-other-traffic", "Measure even if others use the server.")
    timeout = format_duration(_PLAN.request_timeout)
    add_flag(group, "--request-timeout DURATION", "Time that one answer may take.", timeout, duration(0.1))
    most = "Time that the sweep may take; it can be continued."
    add_flag(group, "--max-duration DURATION", most, format_duration(_PLAN.max_duration), duration(1))
    add_flag(group, "--pause DURATION", "Time between two cells.", format_duration(_PLAN.pause), duration(0))
    add_flag(group, "--api-key-file FILE", "File with the server's API key.", parse=file)
    further = "Further request header, 'Name: value'; repeatable. The same as --vllm.header."
    add_flag(group, "--header HEADER", further, type=_header, action="append", default=[])

    group = parser.add_argument_group("what to make of it")
    add_flag(
        group,
        "--out DIR",
        "Directory for sweep.json, sweep.csv and report.html; one that holds a part of the same sweep is "
        "continued. Default: ./sweep-DATE-TIME.",
        parse=Path,
    )
    add_flag(group, "--no-html", "No report.html, which needs matplotlib.")
    add_flag(group, "--json", "Print JSON instead of a table.")
    add_flag(group, "--quiet", "Tell nothing while measuring.")
    zone = "Acceptance below which drafting costs more than it gains."
    ratio = number_between(0.0, 1.0)
    add_flag(group, "--zone-disable-below RATIO", zone, _two_decimals(_PLAN.zones.disable_below), ratio)
    zone = "Acceptance above which drafting likely pays."
    add_flag(group, "--zone-benefit-above RATIO", zone, _two_decimals(_PLAN.zones.benefit_above), ratio)
    add_flags(parser, [option for option in OPTIONS if option is not URL])


def _two_decimals(value: float) -> str:
    """Return `value` with two decimals, or with as many as it needs: 0.50, 0.655."""
    text = f"{value:.2f}"
    return text if float(text) == value else f"{value:g}"


def read_plan(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of the command line; ConfigError if a flag is invalid."""
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
        zones=zones,
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
    )


def _sets(given: list[str]) -> list[str]:
    """Return the names of sets; built-in ones may be separated by commas."""
    found = []
    for word in given:
        parts = word.split(",")
        found += parts if {*BUILTIN, "all"}.issuperset(parts) else [word]
    return found


def read_endpoint(args: argparse.Namespace) -> Endpoint:
    """Return the server from flags and environment; ConfigError if a setting is invalid."""
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
        shown = show_progress(quiet=args.quiet)
        sweep = run_sweep(plan, server, directory=directory, progress=shown, begun=latest.append)
        outcome = asyncio.run(sweep)
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
