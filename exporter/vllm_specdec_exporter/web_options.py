"""The options of how the exporter is reached. They are apart from the table so that `health` starts fast."""

from __future__ import annotations

import json

from .listen_address import parse_listen_address
from .options import ConfigError, Option

LISTEN_ADDRESS = Option(
    "web.listen-address", parse_listen_address, ":9850", "Address to serve on.", metavar="ADDRESS"
)

#: The file is read, and what is wrong with it told, when the configuration is put together.
WEB_CONFIG_FILE = Option(
    "web.config.file",
    str,
    None,
    "YAML file with TLS, client certificates, basic authentication and response headers for the exporter's "
    "own port; changes take effect by themselves.",
    metavar="FILE",
)


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
