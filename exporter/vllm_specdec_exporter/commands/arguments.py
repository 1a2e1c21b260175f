"""What several commands share: the server, numbers, durations, the form of the output,
and errors.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..config import files
from ..config.options import ConfigError, Option, gather
from ..config.values import mask_url, parse_duration, parse_target
from ..judgement.messages import encode_message
from ..publish.terminal import escape_controls, printable
from ..settings.option_table import OPTIONS

T = TypeVar("T")

_BY_NAME = {option.name: option for option in OPTIONS}
#: The option that the one argument of these commands stands for.
URL = _BY_NAME["vllm.url"]
#: Parsers of addresses, which may have a password.
_OF_ADDRESSES = (URL.parse, parse_target)
DEFAULT_URL = "".join(URL.default or "")
#: The options of `serve` that say how to reach a server.
SERVER_OPTIONS = (
    *(option for option in OPTIONS if option.name.startswith("vllm.")),
    _BY_NAME["poll.timeout"]._replace(
        help=(
            "Deadline of a poll. Default: the time between two polls, or 4s if that is "
            "less."
        ),
    ),
)
#: Those of commands whose servers are arguments.
CONNECTION_OPTIONS = tuple(option for option in SERVER_OPTIONS if option is not URL)


def add_flag(
    parser: argparse._ActionsContainer,
    flag: str,
    text: str,
    default: str | list[str] | None = None,
    parse: Callable[[str], Any] | None = None,
    **options: Any,
) -> None:
    """Add the flag called ``--name METAVAR``; `options` are those of argparse.

    - A space in `flag` separates the METAVAR. A flag with neither a space nor choices
      is a switch.
    - `default` is text that `parse` converts. If `text` is empty or ends in a full
      stop, the help ends in ``Default: {default}.``; otherwise `text` has to name it.
    - Dots and hyphens in the name become underscores of the attribute.
    """
    name, _, metavar = flag.partition(" ")
    settings: dict[str, Any] = {
        "dest": name.lstrip("-").replace(".", "_").replace("-", "_")
    }
    if metavar or "choices" in options:
        settings["metavar"] = metavar or None
        settings["default"] = default
        settings["type"] = parse and partial(parsed, name, parse=parse)
    else:
        settings["action"] = "store_true"
    if default and text[-1:] in ("", "."):
        text = f"{text} Default: {default}.".lstrip()
    parser.add_argument(name, help=text, **{**settings, **options})


def add_url(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the argument ``url``; `text` says what the server is."""
    text = f"{text} Default: {DEFAULT_URL}. [${URL.variable}]"
    parser.add_argument("url", nargs="?", metavar="URL", help=text)


def option_values(
    options: Sequence[Option], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of options, from flags and the environment; those that a
    command does not have are ``None``. ConfigError if one is not valid.
    """
    values, _ = gather(options, flags, os.environ, None)
    return dict.fromkeys(_BY_NAME) | values


def values_of_one_server(
    args: argparse.Namespace, options: Sequence[Option], does: str
) -> dict[str, Any]:
    """Return the values of options from flags, with ``url`` as ``--vllm.url``, and the
    environment.

    ConfigError if one is not valid, or for several servers: `does` is what the command
    does with one.
    """
    flags = dict(vars(args))
    if args.url is not None:
        parsed("URL", args.url, URL.parse)
        flags["vllm.url"] = [args.url]
    values = option_values(options, flags)
    if len(values["vllm.url"]) > 1:
        raise ConfigError(f"{does} one server; give one URL")
    return values


def parse_moment(text: str, now: float) -> float:
    """Return the Unix time of ``now``, a duration before it, or an ISO 8601 time, which
    is UTC if bare.
    """
    text = text.strip()
    with suppress(ValueError):
        return now - parse_duration("0s" if text == "now" else text)
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    raise ValueError(
        "allowed: a duration such as 30d, now, or a time such as 2026-11-01 or "
        "2026-11-01T12:00Z"
    )


def parsed(flag: str, text: str, parse: Callable[[str], T]) -> T:
    """Return the value of a flag; a ValueError of `parse` becomes a ConfigError, which
    shows no password of an address.
    """
    try:
        return parse(text)
    except ValueError as error:
        shown = mask_url(text) if parse in _OF_ADDRESSES else text
        shown = json.dumps(shown, ensure_ascii=False)
        raise ConfigError(f"{flag} {shown}: {error}") from error


def values_of(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of values separated by commas, each once."""
    return lambda text: tuple(
        dict.fromkeys(parse(part.strip()) for part in text.split(","))
    )


def whole_between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within these bounds."""

    def parse(text: str) -> int:
        # int() would also take signs, underscores and digits of other scripts, and
        # raise another error for thousands of digits.
        is_number = text.isascii() and text.isdecimal() and len(text) < 20
        if not (is_number and least <= int(text) <= most):
            raise ValueError(f"allowed: a whole number from {least} to {most}")
        return int(text)

    return parse


def add_output_flags(
    parser: argparse.ArgumentParser, what: str = "the snapshot"
) -> None:
    """Add ``--json`` and ``--color``."""
    add_flag(parser, "--json", f"Print {what} as JSON instead.")
    add_flag(parser, "--color", "Colours.", "auto", choices=("auto", "always", "never"))


def wants_color(args: argparse.Namespace) -> bool:
    """Return whether to print colours, from ``--color``, the terminal and the variable
    NO_COLOR.
    """
    if args.color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return bool(args.color == "always")


def show_progress(text: str, end: str = "\n") -> None:
    """Print how far a command is on standard error, where that is a terminal."""
    if sys.stderr.isatty():
        print(text, end=end, file=sys.stderr, flush=True)


def reporter(*, quiet: bool) -> Callable[[str], None]:
    """Return what prints lines on the progress on standard error, none if `quiet`."""

    def say(message: str) -> None:
        if not quiet:
            print(message, file=sys.stderr, flush=True)

    return say


def show(args: argparse.Namespace, document: object, report: Callable[[], str]) -> None:
    """Print a document: with ``--json`` as JSON that cannot control a terminal, else
    its report.
    """
    if args.json:
        encoded = msgspec.json.encode(document, enc_hook=encode_message)
        body = msgspec.json.format(encoded, indent=2)
        print(escape_controls(body.decode()))
    else:
        print(report())
    # A reader that is gone, as in a pipe to `head`, shows here, not at the exit.
    sys.stdout.flush()


def fail(command: str, message: object, code: int) -> int:
    """Print why a command failed, and return its exit code."""
    why = printable(str(message))
    print(f"vllm-specdec-exporter {command}: error: {why}", file=sys.stderr)
    return code


def check_writable(flag: str, path: Path) -> None:
    """Raise ConfigError if `write_file` could not write a file, before the work whose
    result it gets.
    """
    try:
        files.try_to_write(path)
    except OSError as error:
        raise _unwritable(flag, path, error) from error


def write_file(flag: str, path: Path, body: bytes) -> None:
    """Write the file that a flag names, atomically; ConfigError if it cannot be
    written.
    """
    try:
        files.write(path, body)
    except (OSError, ValueError) as error:
        raise _unwritable(flag, path, error) from error


def _unwritable(flag: str, path: Path, error: Exception) -> ConfigError:
    why = getattr(error, "strerror", error)
    return ConfigError(f"{flag} {json.dumps(str(path))}: cannot be written: {why}")
