"""`compare`: two or more servers, or recorded snapshots, side by side.

Each side is the snapshot of one server over a period: from `check --json`, from a running exporter, or from
`watch`. `compare` compares any number of sides with the first::

    from vllm_specdec_exporter.commands import compare

    plain, drafting = (compare.side_of(snapshot, name) for name, snapshot in snapshots.items())
    comparison = compare.compare([plain, drafting], claim=1.5)
    print(comparison.pairs[0].speed.text)
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...config.options import ConfigError, add_flags, gather
from ...config.values import Target, format_duration, mask_url, parse_target
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
from ..check import observe
from .comparison import compare
from .report import render, render_page
from .side import Side, SideError, side_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from ...observe.result import ExporterResult
    from ...observe.state import Settings
    from ...serve.tls import UpstreamConfig

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


# Sources of the sides: servers, which are observed at the same time, and files.

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|unix:")
_LONGEST_NAME = 24
_MOST = 26
_MAX_FILE = 64 * 1024 * 1024
#: Seconds to wait for failures of further servers, so that the error names all of them.
_GRACE = 0.5


@dataclass(frozen=True, slots=True)
class ResultSource:
    """The source of a side."""

    name: str
    target: Target | None = None  #: the server to observe, ``None`` for a file
    path: str = ""  #: the file
    server: str = ""  #: the server in the file, by its address; empty for the only one

    @property
    def shown(self) -> str:
        """The address or the file, without secrets."""
        if self.target is not None:
            return self.target.name
        return f"{self.path}#{self.server}" if self.server else self.path


def parse_sources(words: Sequence[str]) -> tuple[ResultSource, ...]:
    """Parse sources: ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``; ConfigError if they are not valid."""
    if not 2 <= len(words) <= _MOST:
        allowed = f"2 to {_MOST}, each a server's address or a snapshot's file"
        raise ConfigError(f"{len(words)} sides given; allowed: {allowed}")
    sources = tuple(parse_source(word, chr(ord("A") + place)) for place, word in enumerate(words))
    for place, source in enumerate(sources):
        for other in sources[:place]:
            if source.name == other.name:
                hint = "give them names of their own: NAME=URL-or-FILE"
                raise ConfigError(f'two sides are called "{source.name}"; {hint}')
            if source.shown == other.shown:
                raise ConfigError(f"sides {other.name} and {source.name} are the same: {source.shown}")
    return sources


def parse_source(text: str, name: str) -> ResultSource:
    """Parse ``[NAME=]URL`` or ``[NAME=]FILE[#ADDRESS]``, by default named `name`, or raise ConfigError."""
    before, equals, behind = text.partition("=")
    if equals and not set(before) & set("/:?#") and not _exists(text):
        if not 0 < len(before.strip()) <= _LONGEST_NAME or not before.isprintable():
            shown = json.dumps(mask_url(text), ensure_ascii=False)
            raise ConfigError(f"side {shown}: a name has 1 to {_LONGEST_NAME} characters: NAME=URL-or-FILE")
        name, text = before.strip(), behind
    if _ADDRESS.match(text):
        try:
            return ResultSource(name, target=parse_target(text))
        except ValueError as error:
            raise ConfigError(f'side {name}, URL "{mask_url(text)}": {error}') from error
    path, hash_, server = text.rpartition("#")
    if hash_ and not _exists(text):
        return ResultSource(name, path=path, server=server)
    return ResultSource(name, path=text)


def read(source: ResultSource) -> ExporterResult:
    """Return the snapshot in a file; SideError if it holds none, ConfigError if not of the server."""
    what = f"side {source.name} ({json.dumps(source.path, ensure_ascii=False)})"
    try:
        with Path(source.path).open("rb") as file:
            body = file.read(_MAX_FILE + 1)
    except OSError as error:
        msg = f"{what}: cannot be read: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            msg += "; an address would begin with http://, https:// or unix:"
        raise SideError(msg) from error
    except ValueError as error:  # a NUL in the name
        raise SideError(f"{what}: cannot be read: {error}") from error
    if len(body) > _MAX_FILE:
        raise SideError(f"{what}: larger than {_MAX_FILE // 1024**2} MiB")
    try:
        result = snapshot.decode(body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        wanted = "a snapshot as check --json and compare --save write it"
        raise SideError(f"{what}: not {wanted}: {reason}") from error
    if not source.server:
        return result
    chosen = tuple(target for target in result.targets if target.target == source.server)
    if len(chosen) != 1:
        known = ", ".join(target.target for target in result.targets) or "none"
        asked = json.dumps(source.server)
        raise ConfigError(f"side {source.name}: {source.path} has no server {asked}; it has {known}")
    return replace(result, targets=chosen)


async def watch(
    sources: Sequence[ResultSource], upstream: UpstreamConfig, settings: Settings, seconds: float
) -> list[ExporterResult]:
    """Observe servers for some seconds, all at the same time; with 0, each is polled once.

    If one cannot be polled, the observation ends at once with a SideError that names each of them.
    """
    tasks = {
        asyncio.ensure_future(observe(replace(upstream, targets=(source.target,)), settings, seconds)): source
        for source in sources
        if source.target is not None
    }
    pending = set(tasks)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if any(not _up(task.result()) for task in done):
                await asyncio.wait(tasks, timeout=_GRACE)
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    down = [
        f"side {source.name} ({source.shown}): {_why(task.result())}"
        for task, source in tasks.items()
        if not task.cancelled() and not _up(task.result())
    ]
    if down:
        raise SideError("; ".join(down))
    return [task.result() for task in tasks]


def _up(result: ExporterResult) -> bool:
    return all(target.up for target in result.targets)


def _why(result: ExporterResult) -> str:
    failures = (target.failure for target in result.targets)
    return "; ".join(f"{failure.reason}: {failure.message}" for failure in failures if failure)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False
