"""The options of how the exporter is reached. They are apart from the table so that `health` starts fast."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .listen_address import parse_listen_address
from .options import ENVIRONMENT_PREFIX, ConfigError, Option, gather

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

#: Names the YAML file of settings, as --config.file does.
CONFIG_FILE_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG_FILE"

LISTEN_ADDRESS = Option(
    "web.listen-address", parse_listen_address, ":9850", "Address to serve on.", metavar="ADDRESS"
)

#: Requests that are answered at a time by default, as in Prometheus' own exporters.
MOST_REQUESTS = 40

#: The file is read, and what is wrong with it told, when the configuration is put together.
WEB_CONFIG_FILE = Option(
    "web.config.file",
    str,
    None,
    "YAML file with TLS, client certificates, basic authentication and response headers for the exporter's "
    "own port; changes take effect by themselves.",
    metavar="FILE",
)


#: What says how the exporter is reached.
WEB_OPTIONS = (LISTEN_ADDRESS, WEB_CONFIG_FILE)


def add_config_file(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flag that names the file of settings."""
    parser.add_argument(
        "--config.file",
        dest="config_file",
        metavar="FILE",
        help=f"YAML file of settings. [${CONFIG_FILE_VARIABLE}]",
    )


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
        from .config import read_file
        from .option_table import OPTIONS

        # What else is in the file is known to be a setting, and not looked at.
        rows = [row if row in wanted else replace(row, parse=str) for row in OPTIONS]
        values, _ = gather(rows, flags, environment, read_file(file), file)
    else:
        values, _ = gather(wanted, flags, environment, None)
    return values


class WebConfigFileError(ConfigError):
    """The web configuration file cannot be used.

    Attributes:
        path: which.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{WEB_CONFIG_FILE.flag} {json.dumps(path)}: {reason}")
        self.path = path


def check_web_config_file(path: str | None) -> str:
    """Return the path of a web configuration file that can be used, empty for none.

    Raises:
        WebConfigFileError: it cannot be used.
    """
    if not path:
        return ""
    # Imported here, for whoever serves without such a file.
    from .webconfig.fields import WebConfigError
    from .webconfig.source import Source

    try:
        Source(path).load()
    except WebConfigError as error:
        raise WebConfigFileError(path, str(error)) from error
    return path
