"""Where the exporter listens, and where the configuration files are.

This module has few imports, so that `health` starts fast.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..config.listen_address import parse_listen_address
from ..config.options import ENVIRONMENT_PREFIX, Option, gather

#: Path of the YAML configuration file, like --config.file.
CONFIG_FILE_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG_FILE"

LISTEN_ADDRESS = Option(
    name="web.listen-address",
    parse=parse_listen_address,
    default=":9850",
    help="Address to serve on.",
    metavar="ADDRESS",
)

WEB_CONFIG_FILE = Option(
    name="web.config.file",
    parse=str,
    default=None,
    help=(
        "YAML file with TLS, client certificates and basic authentication for the "
        "exporter's own port; reloaded when it changes."
    ),
    metavar="FILE",
)

WEB_OPTIONS = (LISTEN_ADDRESS, WEB_CONFIG_FILE)


def add_config_file(parser: argparse.ArgumentParser) -> None:
    """Add the flag --config.file to `parser`."""
    parser.add_argument(
        "--config.file",
        dest="config_file",
        metavar="FILE",
        help=f"YAML file of settings. [${CONFIG_FILE_VARIABLE}]",
    )


#: Returns the option table. Called only if there is a configuration file, because the
#: table makes `health` slow.
Table = Callable[[], Sequence[Option]]


def web_values(
    flags: Mapping[str, Any], environment: Mapping[str, str], table: Table
) -> tuple[tuple[str, int], str]:
    """Return the listen address and the path of the web configuration file; raise
    ConfigError if unusable.
    """
    values = values_of(WEB_OPTIONS, flags, environment, table)
    return values[LISTEN_ADDRESS.name], values[WEB_CONFIG_FILE.name] or ""


def values_of(
    options: Sequence[Option],
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    table: Table,
) -> Mapping[str, Any]:
    """Return the values of `options`, whatever the others; raise ConfigError if one is
    unusable.
    """
    file = flags.get("config_file") or environment.get(CONFIG_FILE_VARIABLE, "")
    if not file:
        return gather(options, flags, environment, None)[0]
    from ..config.files import read_file  # here, for `health`

    # The names of all other settings are checked, their values are not.
    rows = [row if row in options else row._replace(parse=str) for row in table()]
    return gather(rows, flags, environment, read_file(file), file=file)[0]
