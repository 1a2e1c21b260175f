"""`compare --prometheus.url`: two times of a past, side by side."""

import argparse
import asyncio
import time

from ...config.options import ConfigError
from .. import arguments as cli
from .scope import PastScope
from .session import UNREACHABLE, read_past, show
from .source import PrometheusError


def compare_ranges(args: argparse.Namespace) -> int:
    """Compare the times of `compare`'s ``--a`` and ``--b``, print the result and return
    the exit code.
    """
    now = time.time()
    if args.a is None or args.b is None:
        raise ConfigError("--prometheus.url: needs --a FROM/TO and --b FROM/TO")
    a = cli.parsed("--a", args.a, lambda text: _parse_range(text, now))
    b = cli.parsed("--b", args.b, lambda text: _parse_range(text, now))
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
    async with read_past(args, args.prometheus_url, scope) as session:
        history = session.history
    return show(history, as_json=args.json)


def _parse_range(text: str, now: float) -> tuple[float, float]:
    first, slash, last = text.partition("/")
    if not slash:
        last = "now"
    begin = cli.parse_moment(first, now)
    end = cli.parse_moment(last, now)
    if not begin < end <= now:
        raise ValueError("FROM must be before TO, and TO not in the future")
    return begin, end
