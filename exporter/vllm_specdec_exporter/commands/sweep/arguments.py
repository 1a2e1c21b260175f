"""Flags of the commands that send requests to a server: `sweep` and `calibrate`."""

import argparse
from functools import partial

from msgspec import Struct

from ...config.values import file
from .. import arguments as cli
from .grid import BUILTIN

_SETS = f"{', '.join(BUILTIN)}, all, or files with one prompt a line or JSON lines"


class TrafficDefaults(Struct, frozen=True):
    """What a command sends unless flags say otherwise."""

    concurrencies: str  # separated by commas
    prompts: str
    max_tokens: int
    most_concurrent: int  # largest number of requests at a time that makes sense


def add_traffic_flags(
    parser: argparse.ArgumentParser, defaults: TrafficDefaults
) -> None:
    """Add the flags that say what is sent, and how."""
    add = partial(cli.add_flag, parser.add_argument_group("requests"))
    add(
        "--concurrency LIST",
        "Requests at the same time.",
        defaults.concurrencies,
        cli.values_of(cli.whole_between(1, defaults.most_concurrent)),
        dest="concurrencies",
    )
    add("--prompts LIST", f"Sets, each measured by itself: {_SETS}.", defaults.prompts)
    add(
        "--max-tokens N",
        "Most tokens of an answer.",
        f"{defaults.max_tokens}",
        cli.whole_between(1, 1_000_000),
    )
    add("--model NAME", "Default: the only one that is served.", "")
    add("--api", "API of the requests.", "chat", choices=("chat", "completions"))
    add("--api-key-file FILE", "File with the server's API key.", parse=file)
    add("--allow-other-traffic", "Measure even if others use a server.")
    cli.add_flag(parser, "--quiet", "Show no progress.")
