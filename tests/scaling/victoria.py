"""VictoriaMetrics as Debian ships it, for tests: it is asked like Prometheus."""

import urllib.request
from typing import Any

from support.programs import Program, find_program
from support.prometheus import PrometheusServer

#: The Debian package; it has vmalert and vmagent too.
PACKAGE = "victoria-metrics"


class VictoriaMetrics(PrometheusServer):
    """A single-node server with a storage of its own and further flags."""

    def __init__(self, *flags: str, program: str = "") -> None:
        Program.__init__(
            self,
            [
                program or find_program("victoria-metrics", PACKAGE),
                "-httpListenAddr={address}",
                "-storageDataPath={folder}/data",
                "-retentionPeriod=1y",
                "-memory.allowedBytes=256MB",
                "-loggerLevel=ERROR",
                *flags,
            ],
            ready="/health",
        )

    def api(self, path: str, **parameters: str) -> Any:
        """Return the `data` of an answer of the HTTP API, over all that was written;
        nothing is cached.
        """
        with urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=60):
            pass
        return super().api(path, nocache="1", **parameters)
