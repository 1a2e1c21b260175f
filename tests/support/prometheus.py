"""A real Prometheus for tests: on a free port, with a configuration and a storage of
its own.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import yaml

from support.programs import Program, ProgramError, find_program

_QUERY_SECONDS = 120.0

#: A series: its labels, with `__name__`, sorted.
Series = tuple[tuple[str, str], ...]


class PrometheusError(ProgramError):
    """Prometheus did not do what it was told."""


class PrometheusServer(Program):
    """A Prometheus that runs from entering to leaving the context; `config` is put over
    `scrape`. It is the installed one, unless another `program` is given.
    """

    def __init__(
        self,
        scrape: Mapping[str, str] | None = None,
        *,
        interval: str = "1s",
        config: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        flags: tuple[str, ...] = (),
        program: str = "",
    ) -> None:
        merged: dict[str, Any] = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address]}]}
                for job, address in (scrape or {}).items()
            ],
            **(config or {}),
        }
        super().__init__(
            [
                program or find_program("prometheus", "prometheus"),
                "--config.file={folder}/prometheus.yml",
                "--storage.tsdb.path={folder}/data",
                "--web.listen-address={address}",
                "--log.level=warn",
                *flags,
            ],
            ready="/-/ready",
            files={**(files or {}), "prometheus.yml": yaml.safe_dump(merged)},
        )

    # --- questions

    def api(self, path: str, **parameters: str) -> Any:
        """Return the `data` of an answer of the HTTP API, such as `api("rules")`."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=_QUERY_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            msg = f"{path} {parameters}: {error.read().decode('utf-8', 'replace')}"
            raise PrometheusError(msg) from error

    def query(self, expression: str, at: float | None = None) -> dict[Series, float]:
        """Return the value of every series of an expression, at a Unix time or now."""
        answer = self._query(expression, at)
        if answer["resultType"] == "scalar":
            return {(): float(answer["result"][1])}
        return {
            _series(item["metric"]): float(item["value"][1])
            for item in answer["result"]
        }

    def value(self, expression: str, at: float | None = None) -> float | None:
        """Return the value of an expression that yields one series, or none at all."""
        series = self.query(expression, at)
        assert len(series) <= 1, f"{expression} yields {len(series)} series"
        return next(iter(series.values()), None)

    def samples(
        self, selector: str, over: str, at: float | None = None
    ) -> dict[Series, dict[float, float]]:
        """Return the raw samples of a selector as stored, by series and Unix time."""
        answer = self._query(f"{selector}[{over}]", at)
        return {
            _series(item["metric"]): {
                time: float(value) for time, value in item["values"]
            }
            for item in answer["result"]
        }

    def wait_for(self, expression: str, seconds: float = 20.0) -> dict[Series, float]:
        """Wait until an expression yields something, and return it."""
        end = time.monotonic() + seconds
        while not (series := self.query(expression)):
            if time.monotonic() > end:
                msg = f"{expression} yields nothing after {seconds:g} s"
                raise PrometheusError(msg)
            time.sleep(0.05)
        return series

    def _query(self, expression: str, at: float | None) -> Any:
        parameters = {} if at is None else {"time": f"{at:.3f}"}
        return self.api("query", query=expression, **parameters)


def _series(labels: Mapping[str, str]) -> Series:
    return tuple(sorted(labels.items()))
