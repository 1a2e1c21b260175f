"""The options of how the exporter is reached. They are apart from the table so that `health` starts fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.options import ENVIRONMENT_PREFIX, Option
from ..config.values import parse_listen_address

if TYPE_CHECKING:
    import argparse

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
