"""Flags of the commands that send requests to a server: `sweep` and `calibrate`."""

import argparse

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
    group = parser.add_argument_group("requests")
    cli.add_flag(
        group,
        "--concurrency LIST",
        "Requests at the same time.",
        default=defaults.concurrencies,
        parse=cli.values_of(cli.whole_between(1, defaults.most_concurrent)),
        dest="concurrencies",
    )
    cli.add_flag(
        group,
        "--prompts LIST",
        f"Sets, each measured by itself: {_SETS}.",
        default=defaults.prompts,
    )
    cli.add_flag(
        group,
        "--max-tokens N",
        "Most tokens of an answer.",
        default=f"{defaults.max_tokens}",
        parse=cli.whole_between(1, 1_000_000),
    )
    cli.add_flag(group, "--model NAME", "Default: the only one that is served.", "")
    cli.add_flag(
        group, "--api", "API of the requests.", "chat", choices=("chat", "completions")
    )
    cli.add_flag(
        group, "--api-key-file FILE", "File with the server's API key.", parse=file
    )
    cli.add_flag(group, "--allow-other-traffic", "Measure even if others use a server.")
    cli.add_flag(parser, "--quiet", "Show no progress.")
