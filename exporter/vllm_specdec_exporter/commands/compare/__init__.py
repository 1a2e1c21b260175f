"""`compare`: two servers, or recorded snapshots, side by side.

Each side is the snapshot of one server over a period: from `check --json`, from a
running exporter, or from `watch`.
"""

import argparse
import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from ...config.options import ConfigError, Parser, add_flags
from ...config.values import duration, format_duration, number
from ...observe.result import ExporterResult
from ...publish import plots
from ...settings.option_table import OPTIONS as ALL_OPTIONS
from .. import arguments as cli
from ..check import observation, observation_settings
from ..exit_codes import FINE, PROBLEM, UNREACHABLE, USAGE
from ..history.session import compare_ranges
from .comparison import compare
from .report import render, render_page
from .side import Side, SideError, side_of
from .sources import ResultSource, parse_sources, read_file, watch
from .verdict import SpeedComparison

#: The options of `serve` with the same meaning here, for every side. The servers are
#: positional arguments.
_COSTS = ("cost.profile", "cost.file", "cost.hardware", "cost.model", "threshold")
OPTIONS = (
    *cli.CONNECTION_OPTIONS,
    *(option for option in ALL_OPTIONS if option.name in _COSTS),
)
_CLAIM = number(math.ulp(0.0), allowed="a speedup above 0, such as 1.5")
_RANGE = (
    "A time in it: a duration before now, or such as 2026-11-01T12:00Z; without TO, "
    "until now."
)

#: What is known of each source.
_Results = Mapping[ResultSource, ExporterResult]


def add_arguments(parser: Parser) -> None:
    """Add the flags of `compare` to `parser`."""
    parser.show_first(
        "--for",
        "--model",
        "--claim",
        "--json",
        "--html",
        "--prometheus.url",
        "--a",
        "--b",
        "--match",
        "--cost.hardware",
    )
    parser.epilog = (
        f"Exit codes: {FINE} compared; {PROBLEM} compared, but nothing can "
        f"be said of the speed; {USAGE} bad usage; {UNREACHABLE} a side cannot be "
        "reached or read."
    )
    parser.add_argument(
        "reference",
        nargs="?",
        metavar="REFERENCE",
        help="[NAME=]URL of a server to watch, or [NAME=]FILE with its saved metrics, "
        "for its whole life, or with a snapshot as check --json and /api/v1/snapshot "
        "give it; FILE#ADDRESS picks one of several servers in that.",
    )
    parser.add_argument(
        "side", nargs="?", metavar="SIDE", help="What to compare with it, likewise."
    )
    add = partial(cli.add_flag, parser)
    add(
        "--for DURATION",
        "How long to watch.",
        "30s",
        duration(1.0, 3600.0),
        dest="duration",
    )
    add("--model NAME", "Compare this model, where a side has several.", "")
    add(
        "--claim SPEEDUP",
        "Check a claimed speedup, such as 1.5: of speculation where one side has "
        "none, else of SIDE over REFERENCE.",
    )
    cli.add_output_flags(parser, "the comparison")
    add("--html FILE", "Write a report with plots as well.")
    add(
        "--prometheus.url URL",
        "Compare two times in this Prometheus instead, as history does. Of the flags "
        "below, --vllm.* go with it, and their environment variables do not.",
    )
    add("--a FROM/TO", _RANGE)
    add("--b FROM/TO", "The time to compare with it, likewise.")
    add(
        "--match MATCHERS",
        "Only such series of it, in PromQL: 'namespace=\"chat\"'.",
        "",
    )
    add("--timeout DURATION", "Deadline of a query of it.", "1m", duration(1.0))
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Compare the sides and return the exit code."""
    if args.prometheus_url is not None:
        for flag, value in (
            ("REFERENCE", args.reference),
            ("--claim", args.claim),
            ("--html", args.html),
        ):
            if value is not None:
                raise ConfigError(f"{flag} does not go with --prometheus.url")
        return compare_ranges(args)
    if args.reference is None or args.side is None:
        raise ConfigError(
            "two servers or files are needed: REFERENCE and SIDE, or --prometheus.url"
        )
    sources = parse_sources(args.reference, args.side)
    claim: float | None = None
    if args.claim is not None:
        claim = cli.parsed(
            "--claim", args.claim, lambda text: _CLAIM(text.removesuffix("x"))
        )
    if args.html is not None:  # before the observation, not after it
        cli.check_writable("--html", Path(args.html))
        plots.require()
    try:
        results = _results(sources, args.duration, args)
        reference, side = _sides(results, sources, args.model)
    except SideError as error:
        return cli.fail("compare", error, UNREACHABLE)
    comparison = compare(reference, side, claim)
    if args.html:
        cli.write_file("--html", Path(args.html), render_page(comparison).encode())
    colour = cli.wants_color(args)
    cli.show(args, comparison, lambda: render(comparison, colour=colour))
    if comparison.speed.outcome is SpeedComparison.UNKNOWN:
        return PROBLEM
    return FINE


def _results(
    sources: Sequence[ResultSource], duration: float, args: argparse.Namespace
) -> _Results:
    """Return the results of all sources; errors come before a long observation."""
    servers = list(filter(attrgetter("target"), sources))
    values = cli.option_values(OPTIONS, vars(args))
    values["vllm.url"] = tuple(map(attrgetter("target"), servers))
    settings = observation_settings(values, duration)
    results = {
        source: read_file(source, settings)
        for source in sources
        if source.target is None
    }
    # For its errors: all of them come before the observation, which may take an hour.
    list(_sides(results, sources, args.model))
    if not servers:
        return results
    upstream, _ = observation(values, duration)
    polled_once = asyncio.run(watch(servers, upstream, settings, 0.0))
    list(_sides(polled_once, servers, args.model))
    names = " and ".join(map(attrgetter("name"), servers))
    cli.show_progress(f"watching {names} for {format_duration(duration)} ...")
    return results | asyncio.run(watch(servers, upstream, settings, duration))


def _sides(
    results: _Results, sources: Sequence[ResultSource], model: str
) -> Iterator[Side]:
    """Yield the sides of the sources that have results; SideError for one without."""
    for source in sources:
        if source not in results:
            continue
        try:
            yield side_of(
                results[source],
                source.name,
                source=source.shown,
                live=source.target is not None,
                model=model,
            )
        except SideError as error:
            raise SideError(f"side {source.name} ({source.shown}): {error}") from error
