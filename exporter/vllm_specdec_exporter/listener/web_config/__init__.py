"""The web configuration file: TLS and authentication for the exporter's own port.

This module has few imports: most sidecars have no such file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...config.options import ConfigError

if TYPE_CHECKING:
    from .document import Loaded, WebConfigFile


class WebConfigFileError(ConfigError):
    """The web configuration file at `path` cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"--web.config.file {json.dumps(path)}: {reason}")
        self.path = path


def load_web_config(path: str) -> tuple[WebConfigFile, Loaded]:
    """Read and check a web configuration file; raise WebConfigFileError if it cannot be
    used.
    """
    from .document import WebConfigFile
    from .fields import WebConfigError

    file = WebConfigFile(path)
    try:
        return file, file.load()
    except WebConfigError as error:
        raise WebConfigFileError(path, str(error)) from error
