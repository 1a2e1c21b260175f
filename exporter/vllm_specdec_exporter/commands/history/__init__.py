"""`history`: what speculation did, from the metrics that a Prometheus has stored.

* `source`: the HTTP API of the server.
* `reading`: which series there are, and their values in queries of limited size.
* `past`: configurations, and what each of them did.
* `matching`: the speed of one configuration against another at the same load.
* `report`: the result as text and as a plot.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from ... import __version__
from ...config.options import ConfigError, add_flags, gather
from ...config.values import parse_target
from ...economics.baseline import Baseline, BaselineError, encode
from ...publish import plots
from ...settings import configuration
from .. import arguments as cli
from .past import History, ModelHistory
from .reading import Reader, Scope
from .report import plot, render
from .source import Prometheus, PrometheusError

FORMAT = "vllm-specdec-history/1"  # of the JSON document
COMPARED, NOTHING, USAGE, _, UNREACHABLE = range(5)
#: How to connect: the settings for vLLM, here for the server with its metrics.
OPTIONS = tuple(
    option for option in cli.CONNECTION_OPTIONS if option.name.startswith("vllm.")
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `history` to `parser`."""
    parser.epilog = (
        "It reads vLLM's own series (SGLang's as well), and method and version from "
        "those of this exporter, "
        "which --match does not restrict. "
        "--vllm.* are for the connection to the server at URL; their environment "
        "variables do not apply. "
        f"Exit codes: {COMPARED} at least one speedup was measured; {NOTHING} there "
        "is none to compare, or "
        f"no baseline; {USAGE} bad usage; {UNREACHABLE} the server cannot be "
        "queried, or has no such series."
    )
    what = (
        "Prometheus, Thanos, Mimir (with /prometheus) or VictoriaMetrics that has "
        "scraped vLLM."
    )
    parser.add_argument("url", metavar="URL", help=what)
    cli.add_flag(
        parser,
        "--since TIME",
        "How far back: a duration, or a time such as 2026-11-01T12:00Z.",
        "30d",
    )
    cli.add_flag(parser, "--model-name NAME", "Only this model.", "")
    cli.add_flag(
        parser,
        "--match MATCHERS",
        "Only such series of servers, in PromQL: 'namespace=\"chat\"'.",
        "",
    )
    by = "What has configurations of its own."
    cli.add_flag(parser, "--by", by, "model", choices=("model", "instance"))
    cli.add_flag(
        parser,
        "--block DURATION",
        "Length of a block of time. Default: up to 1h, by the data.",
    )
    cli.add_flag(
        parser, "--out FILE", "Write the newest week without speculation as a baseline."
    )
    cli.add_flag(parser, "--plot FILE", "Draw it, as SVG (needs matplotlib).")
    cli.add_flag(parser, "--json", "Print everything as JSON instead.")
    cli.add_flag(parser, "--timeout DURATION", "Deadline of a query.", "1m")
    add_flags(parser, OPTIONS, variables=False)


def run(args: argparse.Namespace) -> int:
    """Read the past, print it and return the exit code."""
    now = time.time()
    if args.block is None:
        block = None
    else:
        block = cli.seconds_of("--block", args.block, 5.0, 86400.0)
    scope = Scope(
        since=cli.parsed(
            "--since", args.since, lambda text: cli.parse_moment(text, now)
        ),
        until=now,
        match=args.match,
        model_name=args.model_name,
        by_instance=args.by == "instance",
        block=block,
    )
    if scope.since >= now:
        raise ConfigError(f"--since {args.since}: must be in the past")
    for flag, file in (("--out", args.out), ("--plot", args.plot)):
        if file is not None:  # before the queries, not after them
            cli.check_writable(flag, Path(file))
    if args.plot is not None:
        plots.require()
    if args.out is not None and scope.by_instance:
        raise ConfigError("--out: a baseline is of a model: leave out --by instance")
    try:
        history, baseline = asyncio.run(
            read(args, args.url, scope, wants_baseline=args.out is not None)
        )
    except PrometheusError as error:
        return cli.fail("history", error, UNREACHABLE)
    except BaselineError as error:
        return cli.fail("history", f"--out: {error}", NOTHING)
    if baseline is not None:
        cli.write_file("--out", Path(args.out), encode(baseline))
    if args.plot is not None:
        cli.write_file("--plot", Path(args.plot), plot(history.models).encode())
    return show(history, as_json=args.json, out=args.out or "")


def show(history: History, *, as_json: bool, out: str = "") -> int:
    """Print a history and return the exit code."""
    if as_json:
        cli.print_json(history)
    else:
        print(render(history, out))
    sys.stdout.flush()
    found = any(c.speedup for model in history.models for c in model.comparisons)
    if found:
        return COMPARED
    return NOTHING


def compare_ranges(args: argparse.Namespace) -> int:
    """Compare the times of `compare`'s ``--a`` and ``--b``, print the result and return
    the exit code.
    """
    now = time.time()

    def parse(text: str) -> tuple[float, float]:
        first, slash, last = text.partition("/")
        begin = cli.parse_moment(first, now)
        end = cli.parse_moment(last if slash else "now", now)
        if not begin < end <= now:
            raise ValueError("FROM must be before TO, and TO not in the future")
        return begin, end

    if args.a is None or args.b is None:
        raise ConfigError("--prometheus.url: needs --a FROM/TO and --b FROM/TO")
    a = cli.parsed("--a", args.a, parse)
    b = cli.parsed("--b", args.b, parse)
    if a[0] < b[1] and b[0] < a[1]:
        raise ConfigError("--a and --b overlap")
    scope = Scope(
        min(*a, *b), max(*a, *b), args.match, args.model, ranges={"A": a, "B": b}
    )
    try:
        history, _ = asyncio.run(read(args, args.prometheus_url, scope))
    except PrometheusError as error:
        return cli.fail("compare", error, UNREACHABLE)
    return show(history, as_json=args.json)


async def read(
    args: argparse.Namespace, url: str, scope: Scope, *, wants_baseline: bool = False
) -> tuple[History, Baseline | None]:
    """Return the history at an address, and the baseline in it; `args` has the flags
    for the connection.

    PrometheusError if it cannot be read, BaselineError if there is no baseline,
    ConfigError for bad flags.
    """
    prometheus = _connect(args, url)
    try:
        reader = Reader(prometheus, scope)
        models = tuple((await reader.past()).histories())
        if not models:
            raise PrometheusError(
                "no request had more than one output token in that time"
            )
        times = scope.since, scope.until, reader.block
        history = History(
            FORMAT, __version__, *times, models, tuple(prometheus.warnings)
        )
        return history, await _baseline(reader, models) if wants_baseline else None
    finally:
        await prometheus.close()
        cli.show_progress("\r\033[K", end="")


async def _baseline(reader: Reader, models: tuple[ModelHistory, ...]) -> Baseline:
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise ConfigError(
            f"--out: a baseline is of one model, choose it with --model-name: {names}"
        )
    without = [
        c
        for c in models[0].configurations
        if c.configuration.num_speculative_tokens == 0
    ]
    if not without:
        raise BaselineError("there was no time without speculation")
    return await reader.baseline(models[0].name, without[-1])


def _connect(args: argparse.Namespace, url: str) -> Prometheus:
    # Not from the environment: a token for vLLM must not go to another server.
    values, _ = gather(OPTIONS, vars(args), {}, None)
    values["vllm.url"] = (cli.parsed("URL", url, parse_target),)
    if "?" in values["vllm.url"][0].url:
        raise ConfigError("URL: allowed: the address of the server, without a query")
    upstream = configuration.build_upstream(
        values, timeout=cli.seconds_of("--timeout", args.timeout, 1.0)
    )
    return Prometheus(upstream.targets[0], upstream)
