"""`compare`: two servers, or recorded snapshots, side by side.

Each side is the snapshot of one server over a period: from `check --json`, from a running exporter, or from
`watch`.

* `sources`: servers to watch and files to read, and what `watch` saw.
* `side`: the measures of one server over its period, all its engines together.
* `verdict`: whether two sides had the same load; which is faster, and what speculation gains.
* `comparison`: a side against the reference.
* `rows`, `report`: the comparison as a table, as text and as an HTML page.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ...config.options import ConfigError, add_flags, gather
from ...config.values import format_duration
from ...economics.statistics import MAX_BLOCKS
from ...measures.history import Window
from ...observe.result import ExporterResult
from ...publish import plots
from ...publish.wording import escape_controls
from ...serve import configuration as config
from ...serve.option_table import OPTIONS as ALL_OPTIONS
from .. import history
from ..arguments import (
    SERVER_OPTIONS,
    URL,
    add_flag,
    add_output_flags,
    check_writable,
    fail,
    number_between,
    parsed,
    seconds_of,
    wants_color,
    write_file,
)
from .comparison import compare
from .report import render, render_page
from .side import Side, SideError, side_of
from .sources import ResultSource, parse_sources, read, watch

__all__ = ["compare", "render", "side_of", "watch"]

# Exit codes.
COMPARED, INCONCLUSIVE, USAGE, UNREACHABLE = 0, 1, 2, 4

#: The options of `serve` with the same meaning here, for every side. The servers are positional arguments.
_COSTS = ("cost.profile", "cost.file", "cost.hardware", "cost.model", "threshold")
OPTIONS = tuple(
    option
    for option in (*SERVER_OPTIONS, *(own for own in ALL_OPTIONS if own.name in _COSTS))
    if option is not URL
)
_CLAIM = number_between(math.ulp(0.0), sys.float_info.max, "a speedup above 0, such as 1.5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compare` to `parser`."""
    parser.epilog = (
        f"Exit codes: {COMPARED} compared; {INCONCLUSIVE} compared, but nothing can be said of the speed; "
        f"{USAGE} bad usage; {UNREACHABLE} a side cannot be reached or read."
    )
    parser.add_argument(
        "reference",
        nargs="?",
        metavar="REFERENCE",
        help="[NAME=]URL of a server to watch, or [NAME=]FILE with a snapshot as check --json and "
        "/api/v1/snapshot give it; FILE#ADDRESS picks one of several servers in it.",
    )
    parser.add_argument("side", nargs="?", metavar="SIDE", help="What to compare with it, likewise.")
    add_flag(parser, "--for DURATION", "How long to watch.", "30s", dest="duration")
    add_flag(parser, "--model NAME", "Compare this model, where a side has several.", "")
    add_flag(
        parser,
        "--claim SPEEDUP",
        "Check a claimed speedup, such as 1.5: of speculation where one side has none, else of SIDE over "
        "REFERENCE.",
    )
    add_output_flags(parser, "the comparison")
    add_flag(parser, "--html FILE", "Write a report with plots as well.")
    add_flag(parser, "--prometheus.url URL", "Compare two times in this Prometheus instead, as history does.")
    times = "A time in it: a duration before now, or such as 2026-11-01T12:00Z; without TO, until now."
    add_flag(parser, "--a FROM/TO", times)
    add_flag(parser, "--b FROM/TO", "The time to compare with it, likewise.")
    add_flag(parser, "--match MATCHERS", "Only such series of it, in PromQL: 'namespace=\"chat\"'.", "")
    add_flag(parser, "--timeout DURATION", "Deadline of a query of it.", "1m")
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Compare the sides and return the exit code."""
    if args.prometheus_url is not None:
        for flag, value in (("REFERENCE", args.reference), ("--claim", args.claim), ("--html", args.html)):
            if value is not None:
                raise ConfigError(f"{flag} does not go with --prometheus.url")
        return history.compare_ranges(args)
    if args.reference is None or args.side is None:
        raise ConfigError("two servers or files are needed: REFERENCE and SIDE, or --prometheus.url")
    sources = parse_sources(args.reference, args.side)
    duration = seconds_of("--for", args.duration, 1.0, 3600.0)
    claim = None
    if args.claim is not None:
        claim = parsed("--claim", args.claim, lambda text: _CLAIM(text.removesuffix("x")))
    live = [source for source in sources if source.target is not None]
    if args.html is not None:  # before the observation, not after it
        check_writable("--html", Path(args.html))
        plots.require()
    try:
        results = {source: read(source) for source in sources if source.target is None}
        _sides(results, sources, args.model)  # before a long observation, not after it
        if live:
            results |= _watch(live, duration, args)
        reference, side = _sides(results, sources, args.model)
    except SideError as error:
        return fail("compare", error, UNREACHABLE)
    comparison = compare(reference, side, claim)
    if args.html:
        write_file("--html", Path(args.html), render_page(comparison).encode())
    if args.json:
        print(escape_controls(msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode()))
    else:
        print(render(comparison, colour=wants_color(args)))
    sys.stdout.flush()
    return COMPARED if comparison.conclusive else INCONCLUSIVE


def _watch(
    live: Sequence[ResultSource], duration: float, args: argparse.Namespace
) -> dict[ResultSource, ExporterResult]:
    values, _ = gather(OPTIONS, vars(args), os.environ, None)
    # Options of `serve` that do not exist here have their defaults.
    values = {option.name: None for option in ALL_OPTIONS} | values
    values["vllm.url"] = tuple(source.target for source in live)
    timeout = values["poll.timeout"] or max(4.0, duration / MAX_BLOCKS)
    upstream = config.build_upstream(values, timeout)
    window = Window(duration)
    settings = config.build_settings(values, (window,), judged=window, slack=duration + timeout)
    settings = replace(settings, latencies=True)
    # Poll once first, to detect errors now.
    _sides(asyncio.run(watch(live, upstream, settings, 0.0)), live, args.model)
    if sys.stderr.isatty():
        names = " and ".join(source.name for source in live)
        print(f"watching {names} for {format_duration(duration)} ...", file=sys.stderr)
    return asyncio.run(watch(live, upstream, settings, duration))


def _sides(
    results: Mapping[ResultSource, ExporterResult], sources: Sequence[ResultSource], model: str
) -> list[Side]:
    """Return the sides of the sources that were read."""
    sides = []
    for source in sources:
        if source not in results:
            continue
        try:
            live = source.target is not None
            sides.append(side_of(results[source], source.name, source=source.shown, live=live, model=model))
        except SideError as error:
            raise SideError(f"side {source.name} ({source.shown}): {error}") from error
    return sides
