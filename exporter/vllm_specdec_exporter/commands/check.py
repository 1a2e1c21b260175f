"""`check`: a one-shot diagnosis of a server, in the terminal, without any other program.

Samples are taken over some seconds, run through the same pipeline as the exporter's, and the result is
printed as a table with findings. The exit code is for scripts. A running exporter has watched already, for
longer than that, and may know of single requests: with ``--exporter``, its result is printed instead.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import __version__
from ..client.api import SnapshotError, get_metrics
from ..config.addresses import parse_target
from ..config.options import ConfigError, add_flags, gather
from ..config.values import format_duration, mask_url
from ..judgement.activity import ActivityState
from ..judgement.payoff import PayoffVerdict
from ..judgement.quality import QualityLevel
from ..measures.window import Window
from ..observe.result import ExporterResult
from ..publish import snapshot
from ..publish import terminal_report as report
from ..publish.wording import printable
from ..requests.result import is_problem
from ..serve import configuration as config
from ..serve.option_table import OPTIONS as ALL_OPTIONS
from ..serve.poller import Poller
from ..serve.tls import tls_context
from ..serve.upstream import Upstream
from .arguments import DEFAULT_URL, URL, flags_of, seconds_of

if TYPE_CHECKING:
    import argparse

    from ..observe.state import Settings
    from ..serve.settings import UpstreamConfig

# Exit codes. When engines differ, the first of PROBLEM, UNKNOWN, FINE that any of them has.
FINE, PROBLEM, USAGE, UNKNOWN, UNREACHABLE = range(5)

#: The options of `serve` that mean the same here. The server itself is the one argument.
OPTIONS = tuple(
    o for o in ALL_OPTIONS if o.name.startswith(("vllm.", "spec.", "cost.", "baseline.", "threshold"))
)

#: Those that also say how to talk to an exporter.
_OF_EXPORTER = ("vllm.ca-file", "vllm.cert-file", "vllm.key-file", "vllm.insecure-skip-verify")

#: Samples over the watch: two would do for the values, more show a server that stumbles.
_SAMPLES = 6
_SHORTEST, _LONGEST, _USUAL = 1.0, 3600.0, "10s"


@dataclass(frozen=True, slots=True)
class Watch:
    """What to look at: a server, for `duration` seconds."""

    upstream: UpstreamConfig
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
        "or its acceptance is poor and what it gains is not known, or a part of the requests loses; "
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
        metavar="DURATION",
        help=f"How long to watch. Default: {_USUAL}.",
    )
    parser.add_argument(
        "--exporter",
        metavar="URL",
        help="Print what a running exporter knows instead, single requests included. Of the flags below, "
        "--vllm.ca-file and --vllm.insecure-skip-verify go with it.",
    )
    parser.add_argument("--json", action="store_true", help="Print the snapshot as JSON instead.")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="Colours. Default: auto."
    )
    add_flags(parser, [option for option in OPTIONS if option is not URL])


def run(args: argparse.Namespace) -> int:
    """Diagnose the server and return the exit code."""
    if args.exporter is not None:
        try:
            result = _ask(args)
        except SnapshotError as error:
            print(f"vllm-specdec-exporter check: error: {printable(str(error))}", file=sys.stderr)
            return UNREACHABLE
    else:
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
    """Return what a script should know: the gravest of all engines, and of single requests."""
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
    if result.requests is not None and is_problem(result.requests.models):
        codes.add(PROBLEM)
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
    given = _USUAL if args.duration is None else args.duration
    duration = seconds_of("--for", given, _SHORTEST, _LONGEST)
    upstream = config.build_upstream(values, timeout=max(4.0, duration / _SAMPLES))
    if len(upstream.targets) > 1:
        raise ConfigError("check looks at one server; give one URL")
    window = Window(duration)
    # The first sample counts, however long the polls took.
    settings = config.build_settings(values, (window,), judged=window, slack=duration)
    return Watch(upstream, replace(settings, latencies=True), duration)


def _ask(args: argparse.Namespace) -> ExporterResult:
    """Return what a running exporter knows.

    Raises:
        ConfigError: no address, or flags that do not go with one.
        SnapshotError: no result could be had.
    """
    flags = {o.name: o.flag for o in OPTIONS if o is not URL and o.name not in _OF_EXPORTER} | {
        "url": "URL",
        "duration": "--for",
    }
    for name, flag in flags.items():
        if vars(args)[name] is not None:
            raise ConfigError(
                f"{flag} does not go with --exporter: it has watched already, with settings of its own"
            )
    try:
        target = parse_target(args.exporter)
    except ValueError as error:
        raise ConfigError(
            f"--exporter {json.dumps(mask_url(args.exporter), ensure_ascii=False)}: {error}"
        ) from error
    if target.socket:
        raise ConfigError(
            "--exporter: an exporter listens on no Unix socket; allowed: http://host:port, https://host:port"
        )
    values, _ = gather([o for o in OPTIONS if o.name in _OF_EXPORTER], vars(args), os.environ, None)
    try:
        tls = tls_context(config.build_tls(values))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    headers = {}
    if target.user or target.password:
        login = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    return get_metrics(target.url.removesuffix("/metrics"), headers=headers, tls=tls)
