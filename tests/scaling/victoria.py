"""VictoriaMetrics as Debian ships it, for tests.

with VictoriaMetrics() as server:
server.query("up")
"""

import contextlib
import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from support.programs import process
from support.prometheus import PrometheusError, Series

#: The Debian package; it has vmalert and vmagent too.
PACKAGE = "victoria-metrics"
_QUERY_SECONDS = 60.0


class VictoriaMetrics:
    """A single-node server with a storage of its own; it asks like `PrometheusServer`.

    Args:
        flags: further flags.
    """

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self._stack = contextlib.ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="test-victoria-"))
        self.url = self._stack.enter_context(
            process(
                "victoria-metrics",
                "-httpListenAddr={address}",
                f"-storageDataPath={Path(folder, 'data')}",
                "-retentionPeriod=1y",
                "-memory.allowedBytes=256MB",
                "-loggerLevel=ERROR",
                *self._flags,
                package=PACKAGE,
                ready="/health",
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def flush(self) -> None:
        """Make what was written visible to queries."""
        with urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=_QUERY_SECONDS):
            pass

    def api(self, path: str, **parameters: str) -> Any:
        """Return the `data` of an answer of the HTTP API, nothing of it from a cache.

        Raises:
            PrometheusError: the API refused; the message is its own.
        """
        body = urllib.parse.urlencode({"nocache": "1", **parameters}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", body, _QUERY_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            msg = f"{path} {parameters}: {error.read().decode('utf-8', 'replace')}"
            raise PrometheusError(msg) from error

    def query(self, expression: str, at: float | None = None) -> dict[Series, float]:
        """Return the value of every series of an expression, at a Unix time or now."""
        parameters = {} if at is None else {"time": f"{at:.3f}"}
        found = self.api("query", query=expression, **parameters)
        return {tuple(sorted(item["metric"].items())): float(item["value"][1]) for item in found["result"]}
