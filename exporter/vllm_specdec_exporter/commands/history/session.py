"""Reading a past from the address of a server and printing it, for `history` and
`compare --prometheus.url`.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ... import __version__
from ...config.options import ConfigError, gather
from ...config.values import parse_target
from ...settings import configuration
from .. import arguments as cli
from ..exit_codes import FINE, PROBLEM, UNREACHABLE
from .document import FORMAT, HistoryDocument
from .reading import StoredPast, read_stored
from .report import render
from .series import PastScope
from .source import Prometheus, PrometheusError

#: How to connect: the settings for vLLM, here for the server with its metrics.
OPTIONS = tuple(
    option for option in cli.CONNECTION_OPTIONS if option.name.startswith("vllm.")
)


@asynccontextmanager
async def read_past(
    args: argparse.Namespace, url: str, scope: PastScope
) -> AsyncIterator[tuple[HistoryDocument, StoredPast]]:
    """Read the history at an address, and yield it with what it is of; `args` has the
    flags for the connection.

    Raises:
        PrometheusError: it cannot be read, or has nothing.
        ConfigError: bad flags.
    """
    prometheus = _connect(args, url)
    try:
        stored = await read_stored(prometheus, scope)
        models = tuple(stored.past.histories())
        if not models:
            raise PrometheusError(
                "no request had more than one output token in that time"
            )
        history = HistoryDocument(
            format=FORMAT,
            version=__version__,
            since_seconds=scope.since,
            until_seconds=scope.until,
            block_seconds=stored.past.block.seconds,
            models=models,
            warnings=tuple(prometheus.warnings),
        )
        yield history, stored
    finally:
        await prometheus.close()
        cli.show_progress("\r\033[K", end="")


def _connect(args: argparse.Namespace, url: str) -> Prometheus:
    # Not from the environment: a token for vLLM must not go to another server.
    values, _ = gather(OPTIONS, vars(args), {}, None)
    target = cli.parsed("URL", url, parse_target)
    if "?" in target.url:
        raise ConfigError("URL: allowed: the address of the server, without a query")
    values["vllm.url"] = (target,)
    upstream = configuration.build_upstream(values, timeout=args.timeout)
    return Prometheus(target, upstream)


def show(args: argparse.Namespace, history: HistoryDocument, next_step: str) -> int:
    """Print a history and return the exit code; `next_step` is what to do with the
    written baseline, empty without one.
    """
    cli.show(args, history, lambda: render(history, next_step))
    for model in history.models:
        if any(change.speedup for change in model.comparisons):
            return FINE
    return PROBLEM


def compare_ranges(args: argparse.Namespace) -> int:
    """Compare the times of `compare`'s ``--a`` and ``--b``, print the result and return
    the exit code.
    """
    now = time.time()
    if args.a is None or args.b is None:
        raise ConfigError("--prometheus.url: needs --a FROM/TO and --b FROM/TO")
    a = cli.parsed("--a", args.a, lambda text: _parse_range(text, now))
    b = cli.parsed("--b", args.b, lambda text: _parse_range(text, now))
    # What ran in both would be compared with itself.
    if a[0] < b[1] and b[0] < a[1]:
        raise ConfigError("--a and --b overlap")
    scope = PastScope(
        since=min(*a, *b),
        until=max(*a, *b),
        match=args.match,
        model_name=args.model,
        ranges={"A": a, "B": b},
    )
    try:
        return asyncio.run(_read_and_show(args, scope))
    except PrometheusError as error:
        return cli.fail("compare", error, UNREACHABLE)


async def _read_and_show(args: argparse.Namespace, scope: PastScope) -> int:
    async with read_past(args, args.prometheus_url, scope) as (history, _):
        pass
    return show(args, history, "")


def _parse_range(text: str, now: float) -> tuple[float, float]:
    first, slash, last = text.partition("/")
    if not slash:
        last = "now"
    begin = cli.parse_moment(first, now)
    end = cli.parse_moment(last, now)
    if not begin < end <= now:
        raise ValueError("FROM must be before TO, and TO not in the future")
    return begin, end
