"""`check`: a one-shot diagnosis of a server in the terminal, without a running
exporter.

It polls the server for some seconds with the pipeline of the exporter, and prints a
table with findings. The exit code is for scripts. With ``--exporter`` it prints the
result of a running exporter instead, which covers more time and single requests.
"""

import argparse
import asyncio
import base64
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from .. import __version__
from ..client import SnapshotError, get_metrics
from ..config.options import ConfigError, add_flags, gather
from ..config.values import duration, format_duration, parse_target
from ..economics.equal_load import MAX_BLOCKS
from ..judgement.activity import ActivityState
from ..judgement.payoff import Payoff
from ..measures.history import Window
from ..observe.result import EngineResult, ExporterResult
from ..observe.settings import Settings
from ..per_request.summary import is_problem
from ..publish import snapshot
from ..publish import terminal_report as report
from ..serve.poller import Poller
from ..settings import configuration
from ..settings.option_table import OPTIONS as ALL_OPTIONS
from ..upstream.client import Upstream
from ..upstream.connection import UpstreamConfig, tls_context
from . import arguments as cli

# Exit codes. If engines differ, the first of PROBLEM, UNKNOWN, FINE that one of them
# has.
FINE, PROBLEM, USAGE, UNKNOWN, UNREACHABLE = range(5)

#: The options of `serve` with the same meaning here. The server is the positional
#: argument.
_SHARED = ("spec.", "cost.", "baseline.", "threshold")
OPTIONS = (
    *cli.SERVER_OPTIONS,
    *(option for option in ALL_OPTIONS if option.name.startswith(_SHARED)),
)

#: Those that also apply to --exporter.
_OF_EXPORTER = (
    "vllm.ca-file",
    "vllm.cert-file",
    "vllm.key-file",
    "vllm.insecure-skip-verify",
)

#: Number of polls: two are enough for values, more show how these scatter, one for each
#: block of time.
_SAMPLES = MAX_BLOCKS
#: A window is at least a second; `serve` is for more than an hour.
_MIN_DURATION = 1.0
_MAX_DURATION = 3600.0
_DEFAULT_DURATION = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `check` to `parser`."""
    parser.epilog = (
        f"Exit codes: {FINE} speculation is active, and no loss is likely; {PROBLEM} "
        f"it loses or likely loses, is bypassed, or a part of the requests loses; "
        f"{USAGE} bad usage; {UNKNOWN} it is not known whether it pays (off, idle, "
        "K=0 by schedule, too few drafts, vLLM V0, or as likely to lose as to gain); "
        f"{UNREACHABLE} the server cannot be reached or understood."
    )
    cli.add_url(parser, "Server to look at.")
    # None if not given: --exporter refuses it
    watch = f"How long to watch. Default: {_DEFAULT_DURATION:g}s."
    cli.add_flag(
        parser,
        "--for DURATION",
        watch,
        parse=duration(_MIN_DURATION, _MAX_DURATION),
        dest="duration",
    )
    cli.add_flag(
        parser,
        "--exporter URL",
        "Print what a running exporter shows instead, single requests included. Of "
        "the flags below, --vllm.ca-file and --vllm.insecure-skip-verify go with it.",
    )
    cli.add_flag(parser, "--rules", "Show the published rules of thumb one by one.")
    cli.add_output_flags(parser)
    add_flags(parser, [option for option in OPTIONS if option is not cli.URL])


def run(args: argparse.Namespace) -> int:
    """Diagnose the server and return the exit code."""
    if args.exporter is not None:
        try:
            result = _from_exporter(args)
        except SnapshotError as error:
            return cli.fail("check", error, UNREACHABLE)
    else:
        values = cli.values_of_one_server(args, OPTIONS, "check looks at")
        seconds = _DEFAULT_DURATION if args.duration is None else args.duration
        upstream, settings = observation(values, seconds)
        cli.show_progress(
            f"watching {upstream.targets[0].name} for {format_duration(seconds)} ..."
        )
        result = asyncio.run(observe(upstream, settings, seconds))
    if args.json:
        print(snapshot.encode(result).decode())
    else:
        colour = cli.wants_color(args)
        print(report.render(result, colour=colour, rules=args.rules))
    sys.stdout.flush()
    return exit_code(result)


def exit_code(result: ExporterResult) -> int:
    """Return the exit code: the worst of all engines and of single requests."""
    codes = set()
    for target in result.targets:
        if not target.up:
            return UNREACHABLE
        codes |= set(map(_exit_code_of, target.engines))
    if result.requests is not None and is_problem(result.requests.models):
        codes.add(PROBLEM)
    return next((code for code in (PROBLEM, UNKNOWN, FINE) if code in codes), UNKNOWN)


def _exit_code_of(engine: EngineResult) -> int:
    if engine.activity.unexplained or engine.payoff.harmful:
        return PROBLEM
    if engine.activity.state is not ActivityState.ACTIVE or not _leans(engine.payoff):
        return UNKNOWN
    return FINE


def _leans(payoff: Payoff) -> bool:
    """Return whether a verdict is known, or at least which way it leans."""
    if payoff.undecided:
        return payoff.likely is not None
    return payoff.verdict is not None


async def observe(
    upstream: UpstreamConfig, settings: Settings, seconds: float
) -> ExporterResult:
    """Poll the server for some seconds and return the result.

    It ends early if a poll fails.
    """
    target = upstream.targets[0]
    interval = seconds / _SAMPLES
    poller = Poller(
        target.name,
        Upstream(target, upstream),
        settings,
        interval,
        patience=float("inf"),
        clock=time.monotonic,
        wall=time.time,
        log=lambda _: None,
    )
    try:
        await poller.poll()
        end = time.monotonic() + seconds  # without the first poll, which may take long
        while poller.latest.up and (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(interval, left))
            await poller.poll()
    finally:
        await poller.close()
    return ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        targets=(poller.latest,),
        thresholds=dict(settings.thresholds.items()),
    )


def observation(
    values: Mapping[str, Any], seconds: float
) -> tuple[UpstreamConfig, Settings]:
    """Return how to observe servers for some seconds; ConfigError for
    contradictory values.
    """
    timeout = values["poll.timeout"] or max(4.0, seconds / _SAMPLES)
    window = Window(seconds)
    # The window includes the first sample, however long the polls took.
    settings = configuration.build_settings(
        values, (window,), judged=window, slack=seconds + timeout
    )
    upstream = configuration.build_upstream(values, timeout)
    return upstream, replace(settings, latencies=True)


def _from_exporter(args: argparse.Namespace) -> ExporterResult:
    """Return the result of a running exporter; ConfigError for flags of no use with it,
    or SnapshotError.
    """
    useful = []
    useless = {"url": "URL", "duration": "--for"}
    for option in OPTIONS:
        if option.name in _OF_EXPORTER:
            useful.append(option)
        elif option is not cli.URL:
            useless[option.name] = option.flag
    for name, flag in useless.items():
        if vars(args)[name] is not None:
            raise ConfigError(
                f"{flag} does not go with --exporter, which has its own settings"
            )
    target = cli.parsed("--exporter", args.exporter, parse_target)
    if target.socket:
        raise ConfigError(
            "--exporter: an exporter listens on no Unix socket; allowed: "
            "http://host:port, https://host:port"
        )
    values, _ = gather(useful, vars(args), os.environ, None)
    tls = tls_context(configuration.build_tls(values))
    headers = {}
    if target.user or target.password:
        login = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    return get_metrics(target.url.removesuffix("/metrics"), headers=headers, tls=tls)
