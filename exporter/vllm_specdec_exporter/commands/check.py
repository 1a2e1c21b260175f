"""`check`: a one-shot diagnosis of a server in the terminal, without a running
exporter.

It polls servers for some seconds with the pipeline of the exporter, or reads saved
texts of their metrics, and prints a report. The exit code is for scripts. With
``--exporter`` it prints the result of a running exporter instead, which covers more
time and single requests.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from .. import __version__
from ..client import SnapshotError, get_metrics
from ..config.options import ConfigError, Parser, add_flags
from ..config.values import (
    Target,
    duration,
    format_duration,
    is_address,
    mask_url,
    parse_target,
)
from ..economics.equal_load import MAX_BLOCKS
from ..judgement.activity import ActivityState
from ..judgement.payoff import Payoff
from ..measures.history import Window
from ..observe.result import EngineResult, ExporterResult, TargetResult
from ..observe.settings import Settings
from ..per_request.summary import is_problem
from ..publish import snapshot
from ..publish import terminal_report as report
from ..serve.poller import Poller
from ..serve.served_models import ServedModels
from ..settings import configuration
from ..settings.option_table import OPTIONS as ALL_OPTIONS
from ..upstream.client import Upstream
from ..upstream.connection import UpstreamConfig, tls_context
from . import arguments as cli
from .exit_codes import FINE, PROBLEM, UNKNOWN, UNREACHABLE, USAGE
from .saved_text import (
    STDIN,
    SavedText,
    SavedTextError,
    piped_text,
    read_text,
    result_of,
)

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
_CLEAR = "\x1b[H\x1b[2J"  # of a terminal, before the next report


def add_arguments(parser: Parser) -> None:
    """Add the flags of `check` to `parser`."""
    parser.show_first(
        "--for",
        "--watch",
        "--exporter",
        "--json",
        "--rules",
        "--vllm.bearer-token-file",
        "--spec.config",
        "--cost.hardware",
        "--cost.model",
        "--baseline.file",
    )
    parser.epilog = (
        f"Exit codes: {FINE} speculation is active, and no loss is likely; {PROBLEM} "
        f"it loses or likely loses, is bypassed, or a part of the requests loses; "
        f"{USAGE} bad usage; {UNKNOWN} it is not known whether it pays (off, idle, "
        "K=0 by schedule, too few drafts, vLLM V0, or as likely to lose as to gain); "
        f"{UNREACHABLE} the server cannot be reached or understood."
    )
    parser.add_argument(
        "url",
        nargs="*",
        metavar="URL|FILE",
        help=(
            "Servers to look at; or saved texts of a server's metrics, - for standard "
            "input: one for its whole life, two for the time between them, the same "
            "file twice for the time until it is written anew. "
            f"Default: {cli.DEFAULT_URL}. [${cli.URL.variable}]"
        ),
    )
    # None if not given: --exporter refuses it
    watch = f"How long to watch. Default: {_DEFAULT_DURATION:g}s."
    add = partial(cli.add_flag, parser)
    add(
        "--for DURATION",
        watch,
        parse=duration(_MIN_DURATION, _MAX_DURATION),
        dest="duration",
    )
    add(
        "--exporter URL",
        "Print what a running exporter shows instead, single requests included. Of "
        "the flags below, --vllm.ca-file and --vllm.insecure-skip-verify go with it.",
    )
    add("--watch", "Look again and again, until Ctrl+C.")
    add("--rules", "Show the published rules of thumb one by one.")
    cli.add_output_flags(parser)
    add_flags(parser, [option for option in OPTIONS if option is not cli.URL])


def run(args: argparse.Namespace) -> int:
    """Diagnose the server and return the exit code."""
    try:
        if args.exporter is not None:
            return _show(_from_exporter(args), args)
        addresses, files = _sources(args.url)
        if files and args.watch:
            raise ConfigError("--watch does not go with saved texts: they stay as is")
        texts = _read(files, args.duration or _DEFAULT_DURATION)
        if not args.url and not args.watch and not os.environ.get(cli.URL.variable):
            piped = piped_text()
            texts += [piped] if piped else []
        if texts:
            return _show(_of_texts(texts, args), args)
    except (SnapshotError, SavedTextError) as error:
        return cli.fail("check", error, UNREACHABLE)
    flags = {**vars(args), "vllm.url": addresses or None}
    values = cli.option_values(OPTIONS, flags)
    seconds = _DEFAULT_DURATION if args.duration is None else args.duration
    upstream, settings = observation(values, seconds)
    names = ", ".join(target.name for target in upstream.targets)
    cli.show_progress(f"watching {names} for {format_duration(seconds)} ...")

    async def watch() -> int:
        # In one event loop: Ctrl+C between two leaves warnings of Python's own.
        while True:
            result = await observe(upstream, settings, seconds)
            if args.watch and sys.stdout.isatty():
                print(_CLEAR, end="")
            code = _show(result, args)
            if not args.watch:
                return code

    return asyncio.run(watch())


def _show(result: ExporterResult, args: argparse.Namespace) -> int:
    """Print a result and return its exit code."""
    if args.json:
        print(snapshot.encode(result).decode())
    else:
        colour = cli.wants_color(args)
        print(report.render(result, colour=colour, rules=args.rules))
    sys.stdout.flush()
    return exit_code(result)


def _sources(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the addresses and the files among arguments; ConfigError for what is
    neither, or for both.
    """
    addresses = []
    files = []
    for text in texts:
        if text == STDIN or not is_address(text):
            if text != STDIN and not Path(text).exists():
                raise ConfigError(
                    f"URL {json.dumps(mask_url(text), ensure_ascii=False)}: no file of "
                    "this name, and not an address, which is host:port, or begins with "
                    "http://, https:// or unix:"
                )
            files.append(text)
            continue
        cli.parsed("URL", text, cli.URL.parse)
        addresses.append(text)
    if addresses and files:
        raise ConfigError(
            f"{files[0]} is a file, and {mask_url(addresses[0])} an address: check "
            "looks at servers, or at the saved texts of one"
        )
    return addresses, files


def _read(files: Sequence[str], seconds: float) -> list[SavedText]:
    """Return the texts in files; one that is named again is read again, that many
    seconds later.
    """
    texts: list[SavedText] = []
    for index, file in enumerate(files):
        if file in files[:index]:
            cli.show_progress(f"reading {file} again in {format_duration(seconds)} ...")
            time.sleep(seconds)
        text = read_text(file)
        if text in texts:
            raise SavedTextError(
                f"{file}: not written anew within {format_duration(seconds)}; save it "
                "again in the meantime, wait longer with --for, or give two files"
            )
        texts.append(text)
    return texts


def _of_texts(texts: Sequence[SavedText], args: argparse.Namespace) -> ExporterResult:
    """Return what saved texts say, or the snapshot that one of them is; SavedTextError
    if they say nothing.
    """
    if texts[0].is_snapshot and len(texts) == 1:
        try:
            return snapshot.decode(texts[0].body)
        except (ValueError, RecursionError) as error:
            raise SavedTextError(
                f"{texts[0].name}: neither a server's metrics nor a snapshot as "
                f"check --json writes it: {error}"
            ) from error
    values = cli.option_values(OPTIONS, {**vars(args), "vllm.url": None})
    if len(texts) == 1 and values["baseline.file"]:
        raise ConfigError(
            "--baseline.file needs two texts: one does not have the load at which its "
            "requests ran"
        )
    settings = observation_settings(values, _DEFAULT_DURATION)
    return result_of(texts, settings, args.duration)


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
    """Poll the servers for some seconds, at the same time, and return the result.

    The polls of a server end early if one of them fails.
    """
    served = ServedModels()
    targets = await asyncio.gather(
        *(
            _observe(target, upstream, settings, seconds=seconds, served=served)
            for target in upstream.targets
        )
    )
    return ExporterResult(
        version=__version__,
        timestamp_seconds=time.time(),
        targets=tuple(targets),
        thresholds=dict(settings.thresholds.items()),
    )


async def _observe(
    target: Target,
    upstream: UpstreamConfig,
    settings: Settings,
    *,
    seconds: float,
    served: ServedModels,
) -> TargetResult:
    # With 0 seconds, for a single poll, there is no time between polls.
    interval = max(_MIN_DURATION, seconds) / _SAMPLES
    poller = Poller(
        target.name,
        Upstream(target, upstream),
        settings,
        interval,
        patience=float("inf"),
        clock=time.monotonic,
        wall=time.time,
        log=lambda _: None,
        served=served,
    )
    try:
        await poller.poll()
        end = time.monotonic() + seconds  # without the first poll, which may take long
        while poller.latest.up and (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(interval, left))
            await poller.poll()
    finally:
        await poller.close()
    return poller.explained(poller.latest)()


def observation(
    values: Mapping[str, Any], seconds: float
) -> tuple[UpstreamConfig, Settings]:
    """Return how to observe servers for some seconds; ConfigError for
    contradictory values.
    """
    settings = observation_settings(values, seconds)
    return configuration.build_upstream(values, _timeout(values, seconds)), settings


def observation_settings(values: Mapping[str, Any], seconds: float) -> Settings:
    """Return how to judge what was observed for some seconds; ConfigError likewise."""
    window = Window(seconds)
    # The window includes the first sample, however long the polls took.
    slack = seconds + _timeout(values, seconds)
    settings = configuration.build_settings(
        values, (window,), judged=window, slack=slack
    )
    return replace(settings, latencies=True)


def _timeout(values: Mapping[str, Any], seconds: float) -> float:
    timeout: float = values["poll.timeout"] or max(4.0, seconds / _SAMPLES)
    return timeout


def _from_exporter(args: argparse.Namespace) -> ExporterResult:
    """Return the result of a running exporter; ConfigError for flags of no use with it,
    or SnapshotError.
    """
    useful = []
    useless = {"url": "URL", "duration": "--for"}
    if args.watch:
        raise ConfigError("--watch does not go with --exporter: it has a status page")
    for option in OPTIONS:
        if option.name in _OF_EXPORTER:
            useful.append(option)
        elif option is not cli.URL:
            useless[option.name] = option.flag
    for name, flag in useless.items():
        if vars(args)[name] not in (None, []):
            raise ConfigError(
                f"{flag} does not go with --exporter, which has its own settings"
            )
    target = cli.parsed("--exporter", args.exporter, parse_target)
    if target.socket:
        raise ConfigError(
            "--exporter: an exporter listens on no Unix socket; allowed: "
            "http://host:port, https://host:port"
        )
    values = cli.option_values(useful, vars(args))
    tls = tls_context(configuration.build_tls(values))
    headers = {}
    if target.user or target.password:
        login = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    return get_metrics(target.url.removesuffix("/metrics"), headers=headers, tls=tls)
