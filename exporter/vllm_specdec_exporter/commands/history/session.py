"""What `history` and `compare --prometheus.url` share: reading a past from the address
of a server, and printing it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ... import __version__
from ...config.options import ConfigError, gather
from ...config.values import parse_target
from ...settings import configuration
from .. import arguments as cli
from .document import FORMAT, HistoryDocument
from .reading import Reader
from .report import render
from .scope import PastScope
from .source import Prometheus, PrometheusError

# Exit codes.
COMPARED = 0
NOTHING = 1
USAGE = 2
UNREACHABLE = 4

#: How to connect: the settings for vLLM, here for the server with its metrics.
OPTIONS = tuple(
    option for option in cli.CONNECTION_OPTIONS if option.name.startswith("vllm.")
)


@dataclass(frozen=True, slots=True)
class PastSession:
    """A history that was read, and the reader, which can read more of it."""

    history: HistoryDocument
    reader: Reader


@asynccontextmanager
async def read_past(
    args: argparse.Namespace, url: str, scope: PastScope
) -> AsyncIterator[PastSession]:
    """Read the history at an address; `args` has the flags for the connection.

    Raises:
        PrometheusError: it cannot be read, or has nothing.
        ConfigError: bad flags.
    """
    prometheus = _connect(args, url)
    try:
        reader = Reader(prometheus, scope)
        models = tuple((await reader.past()).histories())
        if not models:
            raise PrometheusError(
                "no request had more than one output token in that time"
            )
        history = HistoryDocument(
            format=FORMAT,
            version=__version__,
            since_seconds=scope.since,
            until_seconds=scope.until,
            block_seconds=reader.block,
            models=models,
            warnings=tuple(prometheus.warnings),
        )
        yield PastSession(history, reader)
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
    timeout = cli.seconds_of("--timeout", args.timeout, 1.0)
    upstream = configuration.build_upstream(values, timeout=timeout)
    return Prometheus(target, upstream)


def show(history: HistoryDocument, *, as_json: bool, out: str = "") -> int:
    """Print a history and return the exit code; `out` is the written baseline."""
    if as_json:
        cli.print_json(history)
    else:
        print(render(history, out))
    sys.stdout.flush()
    for model in history.models:
        if any(change.speedup for change in model.comparisons):
            return COMPARED
    return NOTHING
