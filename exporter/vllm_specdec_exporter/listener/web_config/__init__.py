"""Where the exporter listens, and the web configuration file: TLS, authentication and
response headers.

This module has few imports, so that `health` starts fast.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ...config.options import ENVIRONMENT_PREFIX, ConfigError, Option
from ...config.values import parse_listen_address

if TYPE_CHECKING:
    from .document import Loaded, WebConfigFile

#: Path of the YAML configuration file, like --config.file.
CONFIG_FILE_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG_FILE"

LISTEN_ADDRESS = Option(
    "web.listen-address",
    parse_listen_address,
    ":9850",
    "Address to serve on.",
    metavar="ADDRESS",
)

WEB_CONFIG_FILE = Option(
    "web.config.file",
    str,
    None,
    "YAML file with TLS, client certificates, basic authentication and response "
    "headers for the exporter's "
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


class WebConfigFileError(ConfigError):
    """The web configuration file at `path` cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{WEB_CONFIG_FILE.flag} {json.dumps(path)}: {reason}")
        self.path = path


def load_web_config(path: str) -> tuple[WebConfigFile, Loaded]:
    """Read and check a web configuration file; raise WebConfigFileError if it cannot be
    used.
    """
    # Imported only if there is such a file.
    from .document import WebConfigFile
    from .fields import WebConfigError

    file = WebConfigFile(path)
    try:
        return file, file.load()
    except WebConfigError as error:
        raise WebConfigFileError(path, str(error)) from error
