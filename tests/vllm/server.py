"""A real vLLM server as a subprocess, requests to it, and the truth that its answers carry.

The truth is the per-request record that vLLM puts into each answer when it was started with
`--per-request-spec-decode-metrics detailed`. It is kept by the scheduler per request, beside the
counters of `/metrics` and not through them, so the sum over all requests checks the counters, and
whoever republishes them, from the outside.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from support.ports import free_port

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

MODEL_NAME = "tiny-llama"
HOST = "127.0.0.1"
READY_TIMEOUT = 180.0
STOP_TIMEOUT = 20.0
REQUEST_TIMEOUT = 60.0
LOG_INTERVAL = 2.0

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # Two threads of the n-gram drafter on two busy cores wait for each other.
    "NUMBA_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Without this plugin the sampler of 0.32 reads temperatures from memory that nobody has written.
    "PYTHONPATH": str(Path(__file__).with_name("plugin")),
    # vLLM's own summary lines come every 10 s by default, which the tests would have to wait for.
    "VLLM_LOG_STATS_INTERVAL": str(LOG_INTERVAL),
}

# `vllm serve`, whose defaults are the ones that deployments have: with two engines it starts two
# API servers, where the older way of starting one as a module keeps to one. The command looks its
# version up under the distribution name `vllm`, which the CPU build does not have.
LAUNCHER = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: real("vllm-cpu" if name == "vllm" else name)
from vllm.entrypoints.cli.main import main
main()
"""

# Text that repeats itself, so that looking the last tokens up in the prompt finds a continuation.
REPETITIVE_PROMPTS = (
    "def add(left, right):\n    return left + right\n\n" * 6,
    "for index in range(10):\n    print(index, add(index, index))\n" * 6,
    "The quick brown fox jumps over the lazy dog. " * 8,
    "| Paris | France | Seine | 2102650 |\n| London | England | Thames | 8799800 |\n" * 3,
    '{"name": "request", "prompt": "hello", "max_tokens": 64}\n' * 5,
    "On Monday it rained. On Tuesday the sun shone. On Wednesday the wind took the hat. " * 4,
)

LOG_LINE = re.compile(
    r"SpecDecoding metrics: .*?Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens"
)


class ServerError(RuntimeError):
    """The server did not start, or answered a request with something else than an answer."""


class VllmServer:
    """One vLLM server: started, waited for and stopped, with all of its processes.

    The port stays the same over a restart, as it does for a container that is restarted in place.
    Each life writes a log file of its own into `directory`.
    """

    def __init__(
        self,
        python: Path,
        model: Path,
        directory: Path,
        *,
        speculation: Mapping[str, object] | None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self._python = python
        self._model = model
        self._directory = directory
        self._speculation = speculation
        self._arguments = tuple(arguments)
        self._lives = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = directory / "vllm-0.log"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the processes and return at once; the port refuses until the model is loaded."""
        if self._process is not None:
            raise ServerError("the server is already running")
        self._directory.mkdir(parents=True, exist_ok=True)
        self.log_file = self._directory / f"vllm-{next(self._lives)}.log"
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment(),
                # A group of its own, because the engines are processes of their own and outlive an
                # API server that is killed.
                start_new_session=True,
            )

    def wait_until_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait for `/health`; fail with the end of the log if the server dies or is too slow."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerError(f"vLLM ended while it started:\n{self._log_tail()}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.25)
        raise ServerError(f"vLLM is not ready after {timeout:.0f} s:\n{self._log_tail()}")

    def stop(self) -> None:
        """Stop all processes of the server: politely at first, then not."""
        process, self._process = self._process, None
        if process is None:
            return
        self._signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
        # Also after a polite end: an engine may have stayed behind.
        self._signal_group(process.pid, signal.SIGKILL)
        process.wait(STOP_TIMEOUT)

    def restart(self, *, speculation: Mapping[str, object] | None) -> None:
        """Replace the server by one with another speculation on the same port; return at once."""
        self.stop()
        self._speculation = speculation
        self.start()

    def version(self) -> str:
        """Return what the server says about its version."""
        with urllib.request.urlopen(f"{self.url}/version", timeout=10) as answer:
            return str(json.load(answer)["version"])

    def metrics(self) -> str:
        """Return the server's own `/metrics`."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def logged(self) -> tuple[int, int]:
        """Return accepted and drafted tokens, summed over the log's `SpecDecoding metrics` lines.

        The lines of the present life only, each over the interval since the line before it.
        """
        lines = [
            match
            for line in self.log_file.read_text(errors="replace").splitlines()
            if (match := LOG_LINE.search(line))
        ]
        return (
            sum(int(line["accepted"]) for line in lines),
            sum(int(line["drafted"]) for line in lines),
        )

    def _command(self) -> list[str]:
        command = [str(self._python), "-c", LAUNCHER, "serve", str(self._model)]
        command += ["--served-model-name", MODEL_NAME]
        command += ["--host", HOST, "--port", str(self.port)]
        command += ["--enforce-eager", "--max-model-len", "1024", *self._arguments]
        if self._speculation is not None:
            command += ["--speculative-config", json.dumps(self._speculation)]
            # Without speculation the server refuses this flag.
            command += ["--per-request-spec-decode-metrics", "detailed"]
        return command

    @staticmethod
    def _environment() -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("VLLM_", "PROMETHEUS_", "PYTHON", "PYTEST_"))
        }
        return inherited | ENVIRONMENT

    @staticmethod
    def _signal_group(group: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)

    def _log_tail(self) -> str:
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-40:])


@dataclass(frozen=True)
class Speculation:
    """vLLM's record of the speculation for one request."""

    histogram: tuple[int, ...]
    """At index j, in how many drafts j tokens were accepted."""
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_by_step: tuple[int, ...]
    drafted_by_step: tuple[int, ...]

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            histogram=tuple(record["acceptance_histogram"]),
            drafts=record["num_spec_steps"],
            draft_tokens=record["num_draft_tokens"],
            accepted_tokens=record["num_accepted_draft_tokens"],
            # Missing when the request had no draft at all.
            accepted_by_step=tuple(record.get("per_step_accepted") or ()),
            drafted_by_step=tuple(record.get("per_step_drafted") or ()),
        )


@dataclass(frozen=True)
class RequestRecord:
    """One finished request, as its client saw it."""

    temperature: float
    prompt_tokens: int
    completion_tokens: int
    ttft_seconds: float
    decode_seconds: float
    chunks: int
    text: str
    speculation: Speculation | None
    """None if the server does not speculate, or has no record; see `truth`."""


@dataclass(frozen=True)
class Truth:
    """What a set of requests adds up to."""

    requests: int
    completion_tokens: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    accepted_per_draft: tuple[int, ...]
    """At index j, in how many drafts j tokens were accepted."""


def truth(records: Iterable[RequestRecord]) -> Truth:
    """Add the records up.

    The sums equal the server's counters exactly (vLLM 0.32.0; n-gram and draft model, any
    temperature, completions and chat, one engine and two): the scheduler writes both in the same
    place, from the same numbers. That includes what one would rather not have in there, such as
    tokens accepted behind the end of a request; so accepted tokens + drafts can exceed the
    completion tokens. They differ by the requests that vLLM gives no record to, though they count:

    - a request that ends at a stop *string*: the front end finds it in the text and cuts the
      request off before the scheduler has finished with it. The generated tokens also count what
      the last step wrote behind the stop string, which the usage does not. (Ends that the
      scheduler itself sees, by length, end-of-sequence or stop token, are exact.)
    - a request for more than one choice (`n` > 1);
    - a request whose client went away.

    `drive` sends none of these unless it is told to.
    """
    records = list(records)
    speculations = [record.speculation for record in records if record.speculation is not None]
    depth = max((len(speculation.histogram) for speculation in speculations), default=1)
    per_draft = [0] * depth
    for speculation in speculations:
        _check_consistent(speculation)
        for accepted, drafts in enumerate(speculation.histogram):
            per_draft[accepted] += drafts
    return Truth(
        requests=len(records),
        completion_tokens=sum(record.completion_tokens for record in records),
        drafts=sum(speculation.drafts for speculation in speculations),
        draft_tokens=sum(speculation.draft_tokens for speculation in speculations),
        accepted_tokens=sum(speculation.accepted_tokens for speculation in speculations),
        accepted_per_position=tuple(sum(per_draft[depth:]) for depth in range(1, depth)),
        accepted_per_draft=tuple(per_draft),
    )


def _check_consistent(speculation: Speculation) -> None:
    """Fail if the two forms in which a record states the same thing disagree."""
    steps = speculation.accepted_by_step
    by_step = tuple(steps.count(accepted) for accepted in range(len(speculation.histogram)))
    drafted = sum(speculation.drafted_by_step)
    if by_step != speculation.histogram or drafted != speculation.draft_tokens:
        raise ServerError(f"a request's record contradicts itself: {speculation}")


def polls(server: VllmServer) -> int:
    """Return how often the server was asked for its metrics in this life."""
    return server.log_file.read_text(errors="replace").count("GET /metrics")


def wait_until_watched(
    server: VllmServer, process: subprocess.Popen[str], before: int = 0, within: float = 30.0
) -> None:
    """Wait until the server has answered two polls more: the look before the watch, and its first sample."""
    deadline = time.monotonic() + within
    while polls(server) < before + 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the server is not polled"
        time.sleep(0.05)


def drive(
    server: VllmServer,
    *,
    number: int,
    temperature: float,
    concurrency: int = 4,
    max_tokens: int = 80,
    ignore_eos: bool = True,
    api: Literal["completions", "chat"] = "completions",
    prompts: Sequence[str] = REPETITIVE_PROMPTS,
    stop_at: str | None = None,
    stop: threading.Event | None = None,
) -> list[RequestRecord]:
    """Send requests and return the records of all of them, each of them answered to its end.

    Each uses prompt and seed by its number. No new request is sent once `stop` is set. `stop_at` is a string
    at which an answer ends; see `truth` for what that does to the record.
    """

    def one(index: int) -> RequestRecord | None:
        if stop is not None and stop.is_set():
            return None
        prompt = prompts[index % len(prompts)]
        body: dict[str, object] = {
            "model": MODEL_NAME,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "ignore_eos": ignore_eos,
            "seed": index,
            "stream": True,
            # The last event of a stream carries usage and speculation only if asked.
            "stream_options": {"include_usage": True},
        }
        if stop_at is not None:
            body["stop"] = [stop_at]
        if api == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
            path = "/v1/chat/completions"
        else:
            body["prompt"] = prompt
            path = "/v1/completions"
        return _request(server.port, path, body, temperature)

    with ThreadPoolExecutor(concurrency) as pool:
        return [record for record in pool.map(one, range(number)) if record is not None]


def _request(port: int, path: str, body: Mapping[str, object], temperature: float) -> RequestRecord:
    connection = http.client.HTTPConnection(HOST, port, timeout=REQUEST_TIMEOUT)
    try:
        started = time.monotonic()
        connection.request("POST", path, json.dumps(body), headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ServerError(f"{path} answered {answer.status}: {answer.read(2000)!r}")
        return _read_stream(answer, started, temperature)
    finally:
        connection.close()


def _read_stream(answer: Iterable[bytes], started: float, temperature: float) -> RequestRecord:
    first = last = started
    texts: list[str] = []
    summary: Mapping[str, Any] | None = None
    for line in answer:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line.removeprefix(b"data: "))
        if "error" in event:
            raise ServerError(f"the stream failed: {event['error']}")
        if event.get("usage"):
            summary = event
        # A chat stream opens with an event that carries no token yet.
        elif any("role" not in choice.get("delta", {}) for choice in event["choices"]):
            # Also without text: a token may end within a character.
            last = time.monotonic()
            first = first if texts else last
            texts.append("".join(_text(choice) for choice in event["choices"]))
    if summary is None:
        raise ServerError("the stream ended without usage")
    metrics = summary.get("metrics") or {}
    speculation = metrics.get("speculative_decoding")
    return RequestRecord(
        temperature=temperature,
        prompt_tokens=summary["usage"]["prompt_tokens"],
        completion_tokens=summary["usage"]["completion_tokens"],
        ttft_seconds=first - started,
        decode_seconds=last - first,
        chunks=len(texts),
        text="".join(texts),
        speculation=None if speculation is None else Speculation.parse(speculation),
    )


def _text(choice: Mapping[str, Any]) -> str:
    return str(choice.get("text") or choice.get("delta", {}).get("content") or "")
