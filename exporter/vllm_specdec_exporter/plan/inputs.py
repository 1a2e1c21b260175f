"""What the command line gives: numbers within bounds, and the file of a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import ConfigError
from .architecture import ArchitectureError, read_architecture

if TYPE_CHECKING:
    from collections.abc import Callable

    from .architecture import Architecture

_MAX_CONFIG = 16 * 1024 * 1024


def read_config(flag: str, path: str) -> Architecture:
    """Return the architecture in a `config.json`.

    Raises:
        ConfigError: the file cannot be read, is not JSON, or describes nothing that can be counted.
    """
    where = f"{flag} {json.dumps(path)}"
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MAX_CONFIG + 1)
    except (OSError, ValueError) as error:
        msg = f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(msg) from error
    if len(text) > _MAX_CONFIG:
        msg = f"{where}: larger than {_MAX_CONFIG // 2**20} MiB; no config.json is"
        raise ConfigError(msg)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where}: not JSON: {' '.join(str(error).split())}"
        raise ConfigError(msg) from error
    try:
        return read_architecture(document)
    except ArchitectureError as error:
        msg = f"{where}: {error}"
        raise ConfigError(msg) from error


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within these bounds; it raises ValueError saying what is allowed."""

    def parse(text: str) -> int:
        digits = text.strip().replace(",", "")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 12 and least <= int(digits) <= most):
            msg = f"allowed: a whole number from {least:,} to {most:,}"
            raise ValueError(msg)
        return int(digits)

    return parse


def between(least: float, most: float) -> Callable[[str], float]:
    """Return a parser of numbers within these bounds; it raises ValueError saying what is allowed."""

    def parse(text: str) -> float:
        msg = f"allowed: a number from {least:g} to {most:g}"
        try:
            number = float(text)
        except ValueError as error:
            raise ValueError(msg) from error
        if not least <= number <= most:
            raise ValueError(msg)
        return number

    return parse


def utilization(text: str) -> float:
    """Return a share above 0 and at most 1.

    Raises:
        ValueError: anything else.
    """
    try:
        number = between(0, 1)(text)
    except ValueError:
        number = 0.0
    if number <= 0:
        msg = "allowed: a number above 0 and at most 1"
        raise ValueError(msg)
    return number
