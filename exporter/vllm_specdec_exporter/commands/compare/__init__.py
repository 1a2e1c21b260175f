"""`compare`: two servers, or recorded snapshots, side by side.

Each side is the snapshot of one server over a period: from `check --json`, from a
running exporter, or from `watch`.
"""

import argparse
import asyncio
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...config.files import read_regular
from ...config.options import ConfigError, add_flags, gather
from ...config.values import Target, format_duration, mask_url, number, parse_target
from ...observe.result import ExporterResult
from ...observe.settings import Settings
from ...publish import plots, snapshot
from ...settings.option_table import OPTIONS as ALL_OPTIONS
from ...upstream.connection import UpstreamConfig
from .. import arguments as cli
from .. import history
from ..check import observation, observe
from .comparison import compare
from .report import render, render_page
from .side import Side, SideError, side_of
from .verdict import SpeedComparison

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|unix:")
#: So that two columns of the table fit into a terminal of 100 characters.
_MAX_NAME = 24
#: A snapshot of a thousand engines has about 10 MiB.
_MAX_FILE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ResultSource:
    """The source of a side."""

    name: str
    target: Target | None = None  # the server to observe, ``None`` for a file
    path: str = ""  # the file
    server: str = ""  # the server in the file, by its address; empty for the only one

    @property
    def shown(self) -> str:
        """The address or the file, without secrets."""
        if self.target is not None:
            return self.target.name
        if self.server:
            return f"{self.path}#{self.server}"
        return self.path


def parse_sources(reference: str, side: str) -> tuple[ResultSource, ResultSource]:
    """Parse both sources:

    ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``; ConfigError if they are not valid.
    """
    sources = parse_source(reference, "A"), parse_source(side, "B")
    one, other = sources
    if one.name == other.name:
        raise ConfigError(
            f'both sides are called "{one.name}"; give them names of their own: '
            "NAME=URL-or-FILE"
        )
    if one.shown == other.shown:
        raise ConfigError(
            f"sides {one.name} and {other.name} are the same: {one.shown}"
        )
    return sources


def parse_source(text: str, name: str) -> ResultSource:
    """Parse ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``, by default named `name`, or
    raise ConfigError.
    """
    before, equals, behind = text.partition("=")
    if equals and not set(before) & set("/:?#"):
        if not 0 < len(before.strip()) <= _MAX_NAME or not before.isprintable():
            shown = json.dumps(mask_url(text), ensure_ascii=False)
            raise ConfigError(
                f"side {shown}: a name has 1 to {_MAX_NAME} characters: "
                "NAME=URL-or-FILE"
            )
        name = before.strip()
        text = behind
    if _ADDRESS.match(text):
        try:
            return ResultSource(name, target=parse_target(text))
        except ValueError as error:
            raise ConfigError(
                f'side {name}, URL "{mask_url(text)}": {error}'
            ) from error
    path, _, server = text.partition("#")
    return ResultSource(name, path=path, server=server)


def read(source: ResultSource) -> ExporterResult:
    """Return the snapshot in a file; SideError if it holds none, ConfigError if not of
    the server.
    """
    what = f"side {source.name} ({json.dumps(source.path, ensure_ascii=False)})"
    body, problem = read_regular(source.path, _MAX_FILE)
    if body is None:
        raise SideError(
            f"{what}: {problem}; an address would begin with http://, https:// or unix:"
        )
    try:
        result = snapshot.decode(body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise SideError(
            f"{what}: not a snapshot as check --json writes it: {reason}"
        ) from error
    if not source.server:
        return result
    chosen = tuple(
        target for target in result.targets if target.target == source.server
    )
    if len(chosen) != 1:
        known = ", ".join(target.target for target in result.targets) or "none"
        server = json.dumps(source.server)
        raise ConfigError(
            f"side {source.name}: {source.path} has no server {server}; it has {known}"
        )
    return replace(result, targets=chosen)


async def watch(
    sources: Iterable[ResultSource],
    upstream: UpstreamConfig,
    settings: Settings,
    seconds: float,
) -> dict[ResultSource, ExporterResult]:
    """Observe the sources that are servers for some seconds, at the same time; with 0,
    poll each once.
    """
    upstreams = {
        s: replace(upstream, targets=(s.target,))
        for s in sources
        if s.target is not None
    }
    results = await asyncio.gather(
        *(observe(one, settings, seconds) for one in upstreams.values())
    )
    return dict(zip(upstreams, results, strict=True))


__all__ = ["compare", "render", "side_of", "watch"]

# Exit codes.
COMPARED = 0
INCONCLUSIVE = 1
USAGE = 2
UNREACHABLE = 4

#: The options of `serve` with the same meaning here, for every side. The servers are
#: positional arguments.
_COSTS = ("cost.profile", "cost.file", "cost.hardware", "cost.model", "threshold")
OPTIONS = (*cli.CONNECTION_OPTIONS, *(own for own in ALL_OPTIONS if own.name in _COSTS))
_CLAIM = number(math.ulp(0.0), allowed="a speedup above 0, such as 1.5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compare` to `parser`."""
    parser.epilog = (
        f"Exit codes: {COMPARED} compared; {INCONCLUSIVE} compared, but nothing can "
        "be said of the speed; "
        f"{USAGE} bad usage; {UNREACHABLE} a side cannot be reached or read."
    )
    parser.add_argument(
        "reference",
        nargs="?",
        metavar="REFERENCE",
        help="[NAME=]URL of a server to watch, or [NAME=]FILE with a snapshot as "
        "check --json and "
        "/api/v1/snapshot give it; FILE#ADDRESS picks one of several servers in it.",
    )
    parser.add_argument(
        "side", nargs="?", metavar="SIDE", help="What to compare with it, likewise."
    )
    cli.add_flag(parser, "--for DURATION", "How long to watch.", "30s", dest="duration")
    cli.add_flag(
        parser, "--model NAME", "Compare this model, where a side has several.", ""
    )
    cli.add_flag(
        parser,
        "--claim SPEEDUP",
        "Check a claimed speedup, such as 1.5: of speculation where one side has "
        "none, else of SIDE over "
        "REFERENCE.",
    )
    cli.add_output_flags(parser, "the comparison")
    cli.add_flag(parser, "--html FILE", "Write a report with plots as well.")
    cli.add_flag(
        parser,
        "--prometheus.url URL",
        "Compare two times in this Prometheus instead, as history does. Of the flags "
        "below, --vllm.* go with "
        "it, and their environment variables do not.",
    )
    times = (
        "A time in it: a duration before now, or such as 2026-11-01T12:00Z; without "
        "TO, until now."
    )
    cli.add_flag(parser, "--a FROM/TO", times)
    cli.add_flag(parser, "--b FROM/TO", "The time to compare with it, likewise.")
    cli.add_flag(
        parser,
        "--match MATCHERS",
        "Only such series of it, in PromQL: 'namespace=\"chat\"'.",
        "",
    )
    cli.add_flag(parser, "--timeout DURATION", "Deadline of a query of it.", "1m")
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
        return history.compare_ranges(args)
    if args.reference is None or args.side is None:
        raise ConfigError(
            "two servers or files are needed: REFERENCE and SIDE, or --prometheus.url"
        )
    sources = parse_sources(args.reference, args.side)
    duration = cli.seconds_of("--for", args.duration, 1.0, 3600.0)
    claim = None
    if args.claim is not None:
        claim = cli.parsed(
            "--claim", args.claim, lambda text: _CLAIM(text.removesuffix("x"))
        )
    live = [source for source in sources if source.target is not None]
    if args.html is not None:  # before the observation, not after it
        cli.check_writable("--html", Path(args.html))
        plots.require()
    try:
        results = {source: read(source) for source in sources if source.target is None}
        _sides(results, sources, args.model)  # before a long observation, not after it
        if live:
            results |= _watch(live, duration, args)
        reference, side = _sides(results, sources, args.model)
    except SideError as error:
        return cli.fail("compare", error, UNREACHABLE)
    comparison = compare(reference, side, claim)
    if args.html:
        cli.write_file("--html", Path(args.html), render_page(comparison).encode())
    if args.json:
        cli.print_json(comparison)
    else:
        print(render(comparison, colour=cli.wants_color(args)))
    sys.stdout.flush()
    if comparison.speed.outcome is SpeedComparison.UNKNOWN:
        return INCONCLUSIVE
    return COMPARED


def _watch(
    live: Sequence[ResultSource], duration: float, args: argparse.Namespace
) -> dict[ResultSource, ExporterResult]:
    values, _ = gather(OPTIONS, vars(args), os.environ, None)
    # Options of `serve` that do not exist here have their defaults.
    values = {option.name: None for option in ALL_OPTIONS} | values
    values["vllm.url"] = tuple(source.target for source in live)
    upstream, settings = observation(values, duration)
    # Poll once first, to detect errors now.
    _sides(asyncio.run(watch(live, upstream, settings, 0.0)), live, args.model)
    names = " and ".join(source.name for source in live)
    cli.show_progress(f"watching {names} for {format_duration(duration)} ...")
    return asyncio.run(watch(live, upstream, settings, duration))


def _sides(
    results: Mapping[ResultSource, ExporterResult],
    sources: Sequence[ResultSource],
    model: str,
) -> list[Side]:
    sides = []
    for source in sources:
        if source not in results:
            continue
        try:
            live = source.target is not None
            sides.append(
                side_of(
                    results[source],
                    source.name,
                    source=source.shown,
                    live=live,
                    model=model,
                )
            )
        except SideError as error:
            raise SideError(f"side {source.name} ({source.shown}): {error}") from error
    return sides
