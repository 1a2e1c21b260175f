"""What the one-shot commands share: the server as an argument, and durations given as flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..config.options import ConfigError
from ..config.values import format_duration, parse_duration
from ..serve.option_table import OPTIONS

if TYPE_CHECKING:
    import argparse

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
            msg = f'URL "{URL.mask(args.url)}": {error}'
            raise ConfigError(msg) from error
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
        msg = f'{flag} "{text}": {error}'
        raise ConfigError(msg) from error
    if not least <= seconds <= most:
        limits = f"from {format_duration(least)}"
        limits += f" to {format_duration(most)}" if most < float("inf") else " up"
        msg = f'{flag} "{text}": allowed: {limits}'
        raise ConfigError(msg)
    return seconds
