"""Arguments that several commands share: the server, durations, and the form of the output."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ..config.options import ConfigError
from ..config.values import format_duration, parse_duration
from ..serve.option_table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

#: The option that the one argument of these commands stands for.
URL = next(option for option in OPTIONS if option.name == "vllm.url")
DEFAULT_URL = "".join(URL.default or "")


def flags_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the flags as `options.gather` takes them, with the argument ``url`` as ``--vllm.url``.

    Raises:
        ConfigError: the argument is no address.
    """
    flags = dict(vars(args))
    if args.url is not None:
        try:
            URL.parse(args.url)
        except ValueError as error:
            raise ConfigError(f'URL "{URL.mask(args.url)}": {error}') from error
        flags["vllm.url"] = [args.url]
    return flags


def seconds_of(flag: str, text: str, least: float, most: float = float("inf")) -> float:
    """Return the seconds of a duration flag.

    Raises:
        ConfigError: no duration, or one outside `least` to `most`.
    """
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f'{flag} "{text}": {error}') from error
    if not least <= seconds <= most:
        limits = f"from {format_duration(least)}"
        limits += f" to {format_duration(most)}" if most < float("inf") else " up"
        raise ConfigError(f'{flag} "{text}": allowed: {limits}')
    return seconds


def converter(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `parse` as a `type` of argparse; the message of its ValueError becomes that of the flag."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{json.dumps(text, ensure_ascii=False)}: {error}") from error

    return convert


def add_output_flags(parser: argparse.ArgumentParser, what: str = "the snapshot") -> None:
    """Add ``--json`` and ``--color``."""
    parser.add_argument("--json", action="store_true", help=f"Print {what} as JSON instead.")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="Colours. Default: auto."
    )


def wants_color(args: argparse.Namespace) -> bool:
    """Return whether to print colours, from ``--color``, the terminal and the variable NO_COLOR."""
    automatic = args.color == "auto" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return automatic or args.color == "always"
