"""The exporter as a subprocess, what it publishes, and the fixtures of the real-vLLM tests."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.ports import free_port

from .server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
PREFIX = "vllm_specdec_"
POLL_INTERVAL = 1.0
WINDOWS = ("10s", "5m")
STARTS_WITHIN = 20.0
ANSWERS_WITHIN = 5.0
# A few polls: how long the exporter may take to show what vLLM shows.
SETTLES_WITHIN = 15.0

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Scrape:
    """One answer of the exporter's `/metrics`; names are given without the exporter's prefix."""

    samples: Mapping[str, Mapping[Labels, float]]

    @classmethod
    def parse(cls, text: str) -> Self:
        samples: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series = samples[sample.name.removeprefix(PREFIX)]
                labels = frozenset(sample.labels.items())
                assert labels not in series, f"{sample.name}{sample.labels} is there twice"
                series[labels] = sample.value
        return cls(dict(samples))

    def select(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return the series of the name that carry at least these labels."""
        series = self.samples.get(name, {})
        return [(dict(own), value) for own, value in series.items() if own >= set(labels.items())]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the only such series; None if there is none."""
        found = self.select(name, **labels)
        assert len(found) <= 1, f"{name}{labels} names {len(found)} series"
        return found[0][1] if found else None

    def sum(self, name: str, **labels: str) -> float | None:
        """Return the sum over all such series; None if there is none."""
        found = self.select(name, **labels)
        return math.fsum(value for _, value in found) if found else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Return the sum over all such series for each value of a label."""
        sums: defaultdict[str, float] = defaultdict(float)
        for own, value in self.select(name, **labels):
            sums[own.get(label, "")] += value
        return dict(sums)

    def states(self, name: str, label: str, **labels: str) -> set[str]:
        """Return which values of a one-hot gauge's label are set."""
        return {state for state, value in self.by(label, name, **labels).items() if value == 1}

    def engines(self) -> set[str]:
        """Return the engines that anything is published about."""
        return {
            value
            for series in self.samples.values()
            for labels in series
            for label, value in labels
            if label == "engine"
        }


class Exporter:
    """The installed `vllm-specdec-exporter`, watching one vLLM server."""

    def __init__(
        self,
        url: str,
        directory: Path,
        *,
        speculation: Mapping[str, object] | None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._log_file = directory / "exporter.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        command = Path(sys.executable).with_name("vllm-specdec-exporter")
        self._command = [str(command), "serve", "--vllm.url", url]
        self._command += ["--web.listen-address", f"{HOST}:{self._port}"]
        self._command += ["--poll.interval", f"{POLL_INTERVAL:.0f}s", "--poll.timeout", "900ms"]
        for window in WINDOWS:
            self._command += ["--window", window]
        if speculation is not None:
            self._command += ["--spec.config", json.dumps(speculation)]
        self._command += arguments

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._wait_until_answering()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
            raise

    def status(self, path: str) -> int:
        """Return the status code of a GET that succeeds."""
        with self._get(path) as answer:
            return int(answer.status)

    def scrape(self) -> Scrape:
        """Return what `/metrics` says now."""
        with self._get("/metrics") as answer:
            return Scrape.parse(answer.read().decode())

    def snapshot(self) -> Any:
        """Return what `/api/v1/snapshot` says now."""
        with self._get("/api/v1/snapshot") as answer:
            return json.load(answer)

    def wait_for(self, condition: Callable[[Scrape], bool], timeout: float = SETTLES_WITHIN) -> Scrape:
        """Return the first scrape for which the condition holds, else the last one in the time.

        It is for the test to say what it wanted, with the values in sight, so this never fails.
        """
        deadline = time.monotonic() + timeout
        while True:
            scrape = self.scrape()
            if condition(scrape) or time.monotonic() > deadline:
                return scrape
            time.sleep(0.2)

    def _get(self, path: str) -> Any:
        url = f"http://{HOST}:{self._port}{path}"
        request = urllib.request.Request(url, headers={"Accept": "text/plain"})
        return urllib.request.urlopen(request, timeout=ANSWERS_WITHIN)

    def _wait_until_answering(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                self.scrape()
            except OSError:
                time.sleep(0.1)
            else:
                return
        log = self._log_file.read_text(errors="replace")
        pytest.fail(f"{' '.join(self._command)} does not answer:\n{log[-4000:]}")


class Watch:
    """Scrapes the exporter four times a second for as long as the block runs."""

    def __init__(self, exporter: Exporter) -> None:
        self.scrapes: list[Scrape] = []
        self.errors: list[Exception] = []
        self._exporter = exporter
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join(2 * ANSWERS_WITHIN)

    def _run(self) -> None:
        while not self._end.wait(0.25):
            try:
                self.scrapes.append(self._exporter.scrape())
            except (OSError, AssertionError, ValueError) as error:
                self.errors.append(error)


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Return the interpreter that vLLM runs in; without one there is nothing to test."""
    default = REPOSITORY / ".venv-vllm" / "bin" / "python"
    # Not resolved: a venv's interpreter is a link, and the venv is where the link is.
    python = Path(os.environ.get("SPECDEC_VLLM_PYTHON") or default).absolute()
    if not python.exists():
        pytest.fail(f"no vLLM: {python} does not exist; `make test-vllm` installs it", pytrace=False)
    return python


@pytest.fixture(scope="session")
def models(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the models, freshly made."""
    directory = tmp_path_factory.mktemp("models")
    script = Path(__file__).with_name("model.py")
    made = subprocess.run(
        [vllm_python, script, directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout
    return directory
