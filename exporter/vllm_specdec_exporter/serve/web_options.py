"""The options for where the exporter listens.

They are in a module with few imports, so that `health` starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.options import ENVIRONMENT_PREFIX, Option
from ..config.values import parse_listen_address

if TYPE_CHECKING:
    import argparse

#: Path of the YAML configuration file, like --config.file.
CONFIG_FILE_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG_FILE"

LISTEN_ADDRESS = Option(
    "web.listen-address", parse_listen_address, ":9850", "Address to serve on.", metavar="ADDRESS"
)

#: Default limit of concurrent requests, as in Prometheus' own exporters.
MOST_REQUESTS = 40

#: The file itself is read and checked by `configuration`.
WEB_CONFIG_FILE = Option(
    "web.config.file",
    str,
    None,
    "YAML file with TLS, client certificates, basic authentication and response headers for the exporter's "
    "own port; reloaded when it changes.",
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
