"""`compare`: two or more servers, or recorded snapshots, side by side.

Each side is the snapshot of one server over a period: from `check --json`, from a running exporter, or from
`watch`. `compare` compares any number of sides with the first::

    from vllm_specdec_exporter.commands import compare

    plain, drafting = (compare.side_of(snapshot, name) for name, snapshot in snapshots.items())
    comparison = compare.compare([plain, drafting], claim=1.5)
    print(comparison.pairs[0].speed.text)

* `sources`: servers to watch and files to read, and what `watch` saw.
* `side`: the measures of one server over its period, all its engines together.
* `verdict`: whether two sides had the same load; which is faster, and what speculation gains.
* `comparison`: all sides against the first.
* `rows`, `report`: the comparison as a table, as text and as an HTML page.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...config.options import ConfigError, add_flags, gather
from ...config.values import format_duration
from ...measures.history import Window
from ...publish import plots, snapshot
from ...serve import configuration as config
from ...serve.option_table import OPTIONS as ALL_OPTIONS
from ..arguments import (
    add_flag,
    add_output_flags,
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
from .sources import parse_sources, read, watch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from ...observe.result import ExporterResult
    from .sources import ResultSource

__all__ = ["compare", "render", "side_of", "watch"]

# Exit codes.
COMPARED, INCONCLUSIVE, USAGE, UNREACHABLE = 0, 1, 2, 4

#: The options of `serve` with the same meaning here, for every side. The servers are positional arguments.
OPTIONS = tuple(
    option
    for option in ALL_OPTIONS
    if option.name in ("cost.profile", "cost.file", "cost.hardware", "cost.model", "threshold")
    or (option.name.startswith("vllm.") and option.name != "vllm.url")
)
_SAMPLES = 6
_CLAIM = number_between(math.ulp(0.0), sys.float_info.max, "a speedup above 0, such as 1.5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compare` to `parser`."""
    parser.epilog = (
        f"Exit codes: {COMPARED} compared; {INCONCLUSIVE} compared, but nothing can be said of the speed; "
        f"{USAGE} bad usage; {UNREACHABLE} a side cannot be reached or read."
    )
    parser.add_argument(
        "sides",
        nargs="+",
        metavar="SIDE",
        help="[NAME=]URL of a server to watch, or [NAME=]FILE with a snapshot as check --json, --save and "
        "/api/v1/snapshot give it; FILE#ADDRESS picks one of several servers in it. "
        "The first is the reference.",
    )
    add_flag(parser, "--for DURATION", "How long to watch.", "30s", dest="duration")
    add_flag(parser, "--model NAME", "Compare this model, where a side has several.", "")
    add_flag(
        parser,
        "--claim SPEEDUP",
        "Check a claimed speedup, such as 1.5: of speculation where one side has none, else of each further "
        "side over the first.",
    )
    add_output_flags(parser, "the comparison")
    add_flag(parser, "--html FILE", "Write a report with plots as well.")
    save = "Write what was seen of the servers watched, to be a side later. With several: FILE#ADDRESS."
    add_flag(parser, "--save FILE", save)
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Compare the sides and return the exit code."""
    sources = parse_sources(args.sides)
    duration = seconds_of("--for", args.duration, 1.0, 3600.0)
    claim = None
    if args.claim is not None:
        claim = parsed("--claim", args.claim, lambda text: _CLAIM(text.removesuffix("x")))
    live = [source for source in sources if source.target is not None]
    if args.save and not live:
        raise ConfigError(f"--save {json.dumps(args.save)}: no side is watched, so there is nothing to save")
    for flag, path in (("--save", args.save), ("--html", args.html)):
        _check_writable(flag, path)
    if args.html:
        plots.require()  # before the observation, not after it
    try:
        found = {source.name: read(source) for source in sources if source.target is None}
        _sides(found, sources, args.model)  # before a long observation, not after it
        if live:
            found |= _watch(live, duration, args)
        sides = _sides(found, sources, args.model)
    except SideError as error:
        return fail("compare", error, UNREACHABLE)
    if args.save:
        seen = _together([found[source.name] for source in live])
        write_file("--save", Path(args.save), snapshot.encode(seen))
    comparison = compare(sides, claim)
    if args.html:
        write_file("--html", Path(args.html), render_page(comparison).encode())
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode())
    else:
        print(render(comparison, colour=wants_color(args)))
    sys.stdout.flush()
    return COMPARED if comparison.conclusive else INCONCLUSIVE


def _watch(
    live: Sequence[ResultSource], duration: float, args: argparse.Namespace
) -> dict[str, ExporterResult]:
    values, _ = gather(OPTIONS, vars(args), os.environ, None)
    # Options of `serve` that do not exist here have their defaults.
    values = {option.name: None for option in ALL_OPTIONS} | values
    values["vllm.url"] = tuple(source.target for source in live)
    upstream = config.build_upstream(values, timeout=max(4.0, duration / _SAMPLES))
    window = Window(duration)
    settings = config.build_settings(values, (window,), judged=window, slack=duration)
    settings = replace(settings, latencies=True)
    # Poll once first, to detect errors now.
    _sides(_by_name(live, asyncio.run(watch(live, upstream, settings, 0.0))), live, args.model)
    if sys.stderr.isatty():
        names = ", ".join(source.name for source in live)
        print(f"watching {names} for {format_duration(duration)} ...", file=sys.stderr)
    return _by_name(live, asyncio.run(watch(live, upstream, settings, duration)))


def _by_name(sources: Sequence[ResultSource], results: Sequence[ExporterResult]) -> dict[str, ExporterResult]:
    return {source.name: result for source, result in zip(sources, results, strict=True)}


def _sides(found: Mapping[str, ExporterResult], sources: Sequence[ResultSource], model: str) -> list[Side]:
    """Return the sides of the sources that were read."""
    sides = []
    for source in sources:
        if source.name not in found:
            continue
        try:
            result, live = found[source.name], source.target is not None
            sides.append(side_of(result, source.name, source=source.shown, live=live, model=model))
        except SideError as error:
            raise SideError(f"side {source.name} ({source.shown}): {error}") from error
    return sides


def _together(results: Sequence[ExporterResult]) -> ExporterResult:
    """Return one snapshot of all servers."""
    latest = max(result.timestamp_seconds for result in results)
    targets = tuple(target for result in results for target in result.targets)
    return replace(results[0], timestamp_seconds=latest, targets=targets)


def _check_writable(flag: str, path: str | None) -> None:
    if path is None:
        return
    parent = Path(path).parent
    if not path or Path(path).is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(
            f"{flag} {json.dumps(path)}: cannot be written; a file in a directory that exists is needed"
        )
