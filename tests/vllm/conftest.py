"""The servers and the exporters of the real-vLLM tests."""

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.exporter import Metrics, RunningExporter, running_exporter
from support.ports import free_port

from .server import HOST, Launcher, Speculation, Told, Truth, VllmServer, truth

REPOSITORY = Path(__file__).resolve().parents[2]
POLL_INTERVAL = 1
WINDOWS = ("10s", "5m")
#: How many servers run at once: of each, its memory is a gigabyte.
MOST_SERVERS = 4


# --- servers


def ngram(k: int) -> dict[str, object]:
    """Return a speculation that needs no model."""
    return {
        "method": "ngram",
        "num_speculative_tokens": k,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    }


class Servers:
    """Servers by what they serve: each is started when it is first asked for, and kept
    for who asks again.
    """

    def __init__(self, python: Path, models: Path, folder: Path) -> None:
        self.models = models
        self._folder = folder
        self._launcher = Launcher(python, models, folder)
        self._running: dict[str, VllmServer] = {}

    def drafter(self, name: str, k: int = 4) -> dict[str, object]:
        """Return a speculation with a draft model."""
        return {
            "method": "draft_model",
            "model": str(self.models / name),
            "num_speculative_tokens": k,
        }

    def new(
        self,
        model: str,
        speculation: Speculation,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> VllmServer:
        """Return a server that has not been started, for who wants one of their own;
        with variables of its own.
        """
        folder = self._folder / f"server-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        return VllmServer(
            self._launcher,
            self.models / model,
            folder,
            speculation=speculation,
            arguments=arguments,
            environment=environment,
        )

    def running(self, model: str, *speculations: Speculation) -> list[VllmServer]:
        """Return a server with each of these speculations; some requests may have been
        made to it before.

        Where there would be too many, those that were started first end.
        """
        wanted = {
            json.dumps([model, speculation]): speculation
            for speculation in speculations
        }
        old = [key for key in self._running if key not in wanted]
        for key in old[: max(0, len(old) + len(wanted) - MOST_SERVERS)]:
            self._running.pop(key).stop()
        for key, speculation in wanted.items():
            if key not in self._running:
                self._running[key] = self.new(model, speculation)
                self._running[key].start()
        servers = [self._running[key] for key in wanted]
        for server in servers:
            server.wait_until_ready()
        return servers

    def stop(self) -> None:
        for server in self._running.values():
            server.stop()
        self._launcher.stop()


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Return the interpreter that vLLM runs in; without one there is nothing to
    test.
    """
    default = REPOSITORY / ".venv-vllm" / "bin" / "python"
    # Not resolved: a venv's interpreter is a link, and the venv is where the link is.
    python = Path(os.environ.get("SPECDEC_VLLM_PYTHON") or default).absolute()
    if not python.exists():
        pytest.fail(
            f"no vLLM: {python} does not exist; `make test-vllm` installs it",
            pytrace=False,
        )
    return python


@pytest.fixture(scope="session")
def servers(
    vllm_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """Return the servers, with models that are freshly made."""
    models = tmp_path_factory.mktemp("models")
    kept = Servers(vllm_python, models, tmp_path_factory.mktemp("servers"))
    try:
        yield kept
    finally:
        kept.stop()


@pytest.fixture(scope="module")
def server(servers: Servers) -> VllmServer:
    """Return a server whose draft model guesses four tokens, most of them well."""
    (running,) = servers.running("target", servers.drafter("draft-0.02"))
    return running


# --- exporters


@contextlib.contextmanager
def exporter(server: VllmServer, *flags: str) -> Iterator[RunningExporter]:
    """Run an exporter beside a server, which it is told the speculation of."""
    upstream = [
        f"--vllm.url={server.url}",
        *(f"--window={window}" for window in WINDOWS),
    ]
    upstream += [f"--poll.interval={POLL_INTERVAL}s", "--poll.timeout=900ms"]
    if server.speculation:
        upstream.append(f"--spec.config={json.dumps(server.speculation)}")
    with running_exporter(*upstream, *flags, fast=False) as running:
        yield running


@contextlib.contextmanager
def tap(server: VllmServer, *flags: str) -> Iterator[tuple[int, RunningExporter]]:
    """Run an exporter with a tap before the server; return the tap's port, and the
    exporter.
    """
    port = free_port()
    listens = f"--tap.listen-address={HOST}:{port}"
    types = "--requests.type-header=X-Request-Type"
    with exporter(server, listens, types, *flags) as running:
        yield port, running


def scrape_when(
    running: RunningExporter, condition: Callable[[Metrics], object]
) -> Metrics:
    """Return the first scrape for which the condition holds; fail if none does within
    four minutes.
    """
    return running.wait_for(
        lambda metrics: metrics if condition(metrics) else None, within=240
    )


def total(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """Return the sum over all series of a name that carry at least these labels; None
    if there is none.
    """
    values = metrics.values(name, **labels)
    if values:
        return math.fsum(values.values())
    return None


def by(metrics: Metrics, label: str, name: str, /, **labels: str) -> dict[str, float]:
    """Return the values of a name by a label that tells its series apart."""
    sums = {}
    for series, value in metrics.values(name, **labels).items():
        key = dict(series).get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return sums


@contextlib.contextmanager
def watched(running: RunningExporter) -> Iterator[list[Metrics]]:
    """Scrape an exporter four times a second for as long as the block runs: it has to
    answer each time.
    """
    scrapes = []
    end = threading.Event()

    def watch() -> None:
        while not end.wait(0.25):
            scrapes.append(running.metrics())

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(watch)
        try:
            yield scrapes
        finally:
            end.set()
        done.result()


# --- what was published, beside the truth

# The window that holds every request of a story, and the one that holds only its last
# seconds.
WHOLE = "5m"
RECENT = "10s"

COUNTERS = (
    "drafts_total",
    "draft_tokens_total",
    "accepted_tokens_total",
    "generation_tokens_total",
)
RATES = tuple(f"{name.removesuffix('_total')}_per_second" for name in COUNTERS)
MEASURES = (
    "window_drafts",
    "acceptance_ratio",
    "mean_acceptance_length",
    "expected_tokens_per_step",
    "mean_draft_length",
    "coverage_ratio",
    "position_decay_ratio",
)
LABELLED = {
    "position_acceptance_ratio": "position",
    "position_conditional_acceptance_ratio": "position",
    "mean_acceptance_length_at": "num_speculative_tokens",
}


@dataclass(frozen=True)
class Observation:
    """What the exporter published before and after some requests, and what these add up
    to.
    """

    earlier: Metrics
    scrape: Metrics
    truth: Truth

    def increase(self, label: str, name: str) -> dict[str, float]:
        """What the requests added to a counter, by a label."""
        began = by(self.earlier, label, name)
        return {
            key: value - began.get(key, 0.0)
            for key, value in by(self.scrape, label, name).items()
        }


def wait_until_up(running: RunningExporter) -> Metrics:
    """Let the exporter find the server, so that its windows begin before the requests
    do.
    """
    return scrape_when(running, is_up)


def observe(
    running: RunningExporter, answers: list[Told], before: Metrics
) -> Observation:
    """Let the exporter see the end of the requests and keep what it then publishes."""
    sums = truth(answers)

    def complete(scrape: Metrics) -> bool:
        """Tell whether the last token is in, which may come after the last draft where
        drafts are rare.
        """

        def increase(name: str) -> float:
            return (total(scrape, name) or 0) - (total(before, name) or 0)

        tokens = increase("generation_tokens_total")
        return (tokens, increase("drafts_total")) == (
            sums.completion_tokens,
            sums.drafts,
        )

    return Observation(before, scrape_when(running, complete), sums)


def is_up(scrape: Metrics) -> bool:
    return scrape.value("up") == 1
