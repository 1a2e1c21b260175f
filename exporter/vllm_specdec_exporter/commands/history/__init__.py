"""`history`: what speculation did, from the metrics that a Prometheus has stored.

* `source`: the HTTP API of the server.
* `series`: what is asked for, and the queries for it.
* `reading`: which series there are, and their values in queries of limited size.
* `configuration`, `past`: configurations, and what each of them did.
* `cells`, `covariance`, `matching`: what finished at which load, what else moves a
  time per token, and the speed of one configuration against another at the same load.
* `document`, `report`: the result as JSON, as text and as a plot.
* `recorded`: a baseline from it.
* `session`: what it shares with `compare`.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...config.options import ConfigError, add_flags
from ...config.values import duration
from ...economics.baseline import Baseline, BaselineError, encode
from ...publish import plots
from .. import arguments as cli
from ..exit_codes import FINE, PROBLEM, UNREACHABLE, USAGE
from ..measuring import ExporterFile
from .document import HistoryDocument, ModelHistory
from .reading import StoredPast
from .recorded import baseline_of
from .report import plot
from .series import PastScope
from .session import (
    OPTIONS,
    read_past,
    show,
)
from .source import PrometheusError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `history` to `parser`."""
    parser.epilog = (
        "It reads vLLM's own series (SGLang's as well), and method and version from "
        "those of this exporter, which --match does not restrict. --vllm.* are for the "
        "connection to the server at URL; their environment variables do not apply. "
        f"Exit codes: {FINE} at least one speedup was measured; {PROBLEM} there "
        f"is none to compare, or no baseline; {USAGE} bad usage; {UNREACHABLE} the "
        "server cannot be queried, or has no such series."
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="Prometheus, Thanos, Mimir (with /prometheus) or VictoriaMetrics that has "
        "scraped vLLM.",
    )
    add = partial(cli.add_flag, parser)
    add(
        "--since TIME",
        "How far back: a duration, or a time such as 2026-11-01T12:00Z.",
        "30d",
    )
    add("--model-name NAME", "Only this model.", "")
    add(
        "--match MATCHERS",
        "Only such series of servers, in PromQL: 'namespace=\"chat\"'.",
        "",
    )
    add(
        "--by",
        "What has configurations of its own.",
        "model",
        choices=("model", "instance"),
    )
    add(
        "--block DURATION",
        "Length of a block of time. Default: up to 1h, by the data.",
        parse=duration(5.0, 86400.0),
    )
    add("--out FILE", "Write the newest week without speculation as a baseline.")
    add("--plot FILE", "Draw it, as SVG (needs matplotlib).")
    add("--json", "Print everything as JSON instead.")
    add("--timeout DURATION", "Deadline of a query.", "1m", duration(1.0))
    add_flags(parser, OPTIONS, variables=False)


def run(args: argparse.Namespace) -> int:
    """Read the past, print it and return the exit code."""
    scope = _scope(args, time.time())
    file: ExporterFile | None = None
    if args.out is not None:
        file = ExporterFile(Path(args.out), "--baseline.file")
        file.check()
    if args.plot is not None:
        cli.check_writable("--plot", Path(args.plot))
        plots.require()
    if args.out is not None and scope.by_instance:
        raise ConfigError("--out: a baseline is of a model: leave out --by instance")
    try:
        history, baseline = asyncio.run(_read(args, scope))
    except PrometheusError as error:
        return cli.fail("history", error, UNREACHABLE)
    except BaselineError as error:
        return cli.fail("history", f"--out: {error}", PROBLEM)
    next_step = ""
    if file is not None and baseline is not None:
        file.write(encode(baseline))
        next_step = file.next_step
    if args.plot is not None:
        cli.write_file("--plot", Path(args.plot), plot(history.models).encode())
    return show(args, history, next_step)


def _scope(args: argparse.Namespace, now: float) -> PastScope:
    since = cli.parsed("--since", args.since, lambda text: cli.parse_moment(text, now))
    if since >= now:
        raise ConfigError(f"--since {args.since}: must be in the past")
    return PastScope(
        since=since,
        until=now,
        match=args.match,
        model_name=args.model_name,
        by_instance=args.by == "instance",
        block=args.block,
    )


async def _read(
    args: argparse.Namespace, scope: PastScope
) -> tuple[HistoryDocument, Baseline | None]:
    async with read_past(args, args.url, scope) as (history, stored):
        if args.out is None:
            return history, None
        return history, await _baseline(history.models, stored)


async def _baseline(models: Sequence[ModelHistory], stored: StoredPast) -> Baseline:
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise ConfigError(
            f"--out: a baseline is of one model, choose it with --model-name: {names}"
        )
    (model,) = models
    # The newest first: it is the closest to the server as it is now.
    for summary in reversed(model.configurations):
        if summary.configuration.num_speculative_tokens == 0:
            return await baseline_of(stored, model.name, summary)
    raise BaselineError("there was no time without speculation")
