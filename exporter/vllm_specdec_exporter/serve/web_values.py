"""How the exporter is reached, read from the settings whatever is wrong with the other settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.options import Option, gather
from .web_options import CONFIG_FILE_VARIABLE, LISTEN_ADDRESS, WEB_CONFIG_FILE, WEB_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def web_values(flags: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[tuple[str, int], str]:
    """Return the listen address and the path of the web configuration, whatever is wrong with other settings.

    Raises:
        ConfigError: one of the two, or the file of settings, cannot be used.
    """
    values = values_of(WEB_OPTIONS, flags, environment)
    return values[LISTEN_ADDRESS.name], values[WEB_CONFIG_FILE.name] or ""


def values_of(
    wanted: Sequence[Option], flags: Mapping[str, Any], environment: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return the values of some options, whatever is wrong with others.

    Raises:
        ConfigError: one of them, or the file of settings, cannot be used.
    """
    file = flags.get("config_file") or environment.get(CONFIG_FILE_VARIABLE, "")
    if file:
        # Imported here, for whoever has no such file: most containers.
        from ..config.files import read_file
        from .option_table import OPTIONS

        # What else is in the file is known to be a setting, and not looked at.
        rows = [row if row in wanted else replace(row, parse=str) for row in OPTIONS]
        values, _ = gather(rows, flags, environment, read_file(file), file)
    else:
        values, _ = gather(wanted, flags, environment, None)
    return values
