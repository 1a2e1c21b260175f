"""`baseline`: record the speed of a server without speculation."""

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...config.options import ConfigError, add_flags
from ...config.values import duration, format_duration
from ...economics.baseline import Baseline, BaselineError, encode
from ...economics.speculative_config import WITHOUT_MODEL
from ...settings import configuration as config
from ...upstream.client import PollError, Upstream
from .. import arguments as cli
from ..exit_codes import FINE, PROBLEM, UNREACHABLE, USAGE
from ..measuring import LOOKUPS, ExporterFile
from .report import render
from .watcher import Watcher


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `baseline` to `parser`."""
    parser.epilog = (
        "The server must not speculate, or do so without a draft model and only at "
        "times (a K schedule with rows of 0, and --method). It is not sent anything: "
        f"its usual traffic is what counts. Exit codes: {FINE} recorded; {PROBLEM} "
        f"nothing could be recorded; {USAGE} bad usage; {UNREACHABLE} the server "
        "cannot be reached or understood."
    )
    cli.add_url(parser, "Server without speculation.")
    add = partial(cli.add_flag, parser)
    add("--out FILE", "File to write.", "baseline.json")
    add(
        "--for DURATION",
        "How long to record; Ctrl-C ends it earlier and keeps what there is.",
        "10m",
        duration(1.0),
        dest="duration",
    )
    add("--interval DURATION", "Time between two samples.", "1s", duration(0.1))
    add(
        "--settle DURATION",
        "Time behind a server's last draft that is left out.",
        "30s",
        duration(0.0),
    )
    add("--model NAME", "Model to record, where there are several.", "")
    add(
        "--method NAME",
        f"Speculative method of a server that speculates at times: {LOOKUPS}.",
        "",
        choices=("", *sorted(WITHOUT_MODEL)),
    )
    add("--append", "Add to the file: more load levels, or more requests for each.")
    add_flags(parser, cli.CONNECTION_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Record the baseline and return the exit code."""
    values = cli.values_of_one_server(args, cli.SERVER_OPTIONS, "baseline records")
    seconds: float = args.duration
    interval: float = args.interval
    if interval >= seconds:
        raise ConfigError(
            f"--interval {format_duration(interval)}: must be less than --for "
            f"{format_duration(seconds)}"
        )
    # With samples every second, a response that takes longer is still one of them.
    upstream_config = config.build_upstream(
        values, values["poll.timeout"] or max(4.0, interval)
    )
    file = ExporterFile(Path(args.out), "--baseline.file")
    earlier: Baseline | None = None
    if args.append and file.path.exists():
        earlier = config.load_baseline(str(file.path), "--append")
    file.check()
    target = upstream_config.targets[0]
    upstream = Upstream(target, upstream_config)
    watcher = Watcher(
        upstream,
        model_name=args.model,
        settle=args.settle,
        clock=time.monotonic,
        sleep=asyncio.sleep,
        method=args.method,
    )

    async def record() -> None:
        try:
            await watcher.begin(earlier)
            await _watch(watcher, seconds, interval)
        finally:
            await upstream.close()
            cli.show_progress("")

    try:
        asyncio.run(record())
        baseline = watcher.baseline(earlier)
    except PollError as error:
        reason = f"{target.name}: {error.reason}: {error}"
        if error.reason == "refused":
            reason += " (a server that loads its model refuses for minutes)"
        return cli.fail("baseline", reason, UNREACHABLE)
    except BaselineError as error:
        return cli.fail("baseline", f"{target.name}: {error}", PROBLEM)
    file.write(encode(baseline))
    print(render(baseline, file, watcher.missed))
    return FINE


async def _watch(watcher: Watcher, seconds: float, interval: float) -> None:
    """Watch until the end, or until a signal, after which what there is counts."""
    task = asyncio.ensure_future(
        watcher.watch(seconds, interval, _progress(seconds, watcher))
    )
    loop = asyncio.get_running_loop()
    # A recording of hours is not lost to Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _progress(seconds: float, watcher: Watcher) -> Callable[[float, float], None]:
    duration = format_duration(seconds)
    warned = False

    def tell(passed: float, requests: float) -> None:
        nonlocal warned
        if watcher.drafting and not warned:
            warned = True
            print(
                "the server drafts: nothing is recorded until it stops", file=sys.stderr
            )
        done = format_duration(float(round(passed)))
        cli.show_progress(
            f"\rrecording: {done} of {duration}, {requests:,.0f} requests ", end=""
        )

    return tell
