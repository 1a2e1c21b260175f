"""`check`: a one-shot diagnosis of a server, in the terminal, without any other program.

Samples are taken over some seconds, run through the same pipeline as the exporter's, and the result is
printed as a table with findings. The exit code is for scripts.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import __version__, config, report, snapshot
from .duration import format_duration
from .judgement.activity import ActivityState
from .judgement.payoff import PayoffVerdict
from .judgement.quality import QualityLevel
from .one_shot import DEFAULT_URL, URL, flags_of, seconds_of
from .option_table import OPTIONS as ALL_OPTIONS
from .options import ConfigError, add_flags, gather
from .poller import Poller
from .result import ExporterResult
from .upstream import Upstream
from .window import Window

if TYPE_CHECKING:
    import argparse

    from .settings import Settings

# Exit codes. When engines differ, the first of PROBLEM, UNKNOWN, FINE that any of them has.
FINE, PROBLEM, USAGE, UNKNOWN, UNREACHABLE = range(5)

#: The options of `serve` that mean the same here. The server itself is the one argument.
OPTIONS = tuple(
    o for o in ALL_OPTIONS if o.name.startswith(("vllm.", "spec.", "cost.", "baseline.", "threshold"))
)

#: Samples over the watch: two would do for the values, more show a server that stumbles.
_SAMPLES = 6
_SHORTEST, _LONGEST = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What to look at: a server, for `duration` seconds."""

    upstream: config.UpstreamConfig
    settings: Settings
    duration: float

    @property
    def interval(self) -> float:
        """Seconds between two samples."""
        return self.duration / _SAMPLES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `check`."""
    parser.epilog = (
        f"Exit codes: {FINE} speculation is active and does not lose; {PROBLEM} it loses, is bypassed, "
        "or its acceptance is poor and what it gains is not known; "
        f"{USAGE} bad usage; {UNKNOWN} it cannot be judged (off, idle, too few drafts, vLLM V0); "
        f"{UNREACHABLE} the server cannot be reached or understood."
    )
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help=f"Server to look at. Default: {DEFAULT_URL}. [${URL.variable}]",
    )
    parser.add_argument(
        "--for",
        dest="duration",
        default="10s",
        metavar="DURATION",
        help="How long to watch. Default: 10s.",
    )
    parser.add_argument("--json", action="store_true", help="Print the snapshot as JSON instead.")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="Colours. Default: auto."
    )
    add_flags(parser, [option for option in OPTIONS if option is not URL])


def run(args: argparse.Namespace) -> int:
    """Diagnose the server and return the exit code."""
    watch = _plan(args)
    if sys.stderr.isatty():
        name = watch.upstream.targets[0].name
        print(f"watching {name} for {format_duration(watch.duration)} ...", file=sys.stderr)
    result = asyncio.run(observe(watch))
    if args.json:
        print(snapshot.encode(result).decode())
    else:
        wanted = args.color == "auto" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(report.render(result, colour=wanted or args.color == "always"))
    sys.stdout.flush()
    return exit_code(result)


def exit_code(result: ExporterResult) -> int:
    """Return what a script should know: the gravest of all engines."""
    if not all(target.up for target in result.targets):
        return UNREACHABLE
    codes = set()
    for engine in (engine for target in result.targets for engine in target.engines):
        bypassed = engine.activity.state is ActivityState.BYPASSED
        unpaid = engine.quality.level is QualityLevel.POOR and engine.payoff.verdict is None
        if bypassed or unpaid or engine.payoff.verdict is PayoffVerdict.HARMFUL:
            codes.add(PROBLEM)
        elif engine.activity.state is not ActivityState.ACTIVE:
            codes.add(UNKNOWN)
        else:
            codes.add(FINE)
    return next((code for code in (PROBLEM, UNKNOWN, FINE) if code in codes), UNKNOWN)


async def observe(watch: Watch) -> ExporterResult:
    """Watch the server and return what was found. It ends early if the server cannot be polled."""
    target = watch.upstream.targets[0]
    try:
        upstream = Upstream(target, watch.upstream)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    poller = Poller(
        target.name,
        upstream,
        watch.settings,
        watch.interval,
        patience=float("inf"),
        clock=time.monotonic,
        wall=time.time,
        tell=lambda _: None,
    )
    try:
        await poller.poll()
        end = time.monotonic() + watch.duration  # a first poll that takes long is not part of the watch
        while poller.latest.up and (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(watch.interval, left))
            await poller.poll()
    finally:
        await poller.close()
    return ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        targets=(poller.latest,),
        thresholds=dict(watch.settings.thresholds.items()),
    )


def _plan(args: argparse.Namespace) -> Watch:
    values, _ = gather(OPTIONS, flags_of(args), os.environ, None)
    duration = seconds_of("--for", args.duration, _SHORTEST, _LONGEST)
    upstream = config.build_upstream(values, timeout=max(4.0, duration / _SAMPLES))
    if len(upstream.targets) > 1:
        msg = "check looks at one server; give one URL"
        raise ConfigError(msg)
    window = Window(duration)
    # The first sample counts, however long the polls took.
    settings = config.build_settings(values, (window,), judged=window, slack=duration)
    return Watch(upstream, replace(settings, latencies=True), duration)
