"""A real vLLM server as a subprocess, requests to it, and the truth that its answers
carry.

The truth is the record of each request in its answer
(`--per-request-spec-decode-metrics detailed`), which vLLM keeps beside the counters of
`/metrics` and not through them.
"""

import contextlib
import getpass
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

from support.ports import free_port
from support.programs import answers, eventually

#: vLLM's speculative config; `None` for none.
Speculation = dict[str, object] | None

MODEL_NAME = "tiny-llama"
HOST = "127.0.0.1"
READY_TIMEOUT = 300.0
STOP_TIMEOUT = 20.0
REQUEST_TIMEOUT = 60.0
LOG_INTERVAL = 2.0

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # The model runs in the process of its engine: a process less to start.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
    # Two threads of the n-gram drafter on two busy cores wait for each other.
    "NUMBA_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Without this plugin the sampler of 0.32 reads temperatures from memory that nobody
    # has written.
    "PYTHONPATH": str(Path(__file__).with_name("plugin")),
    # vLLM's own summary lines come every 10 s by default, which the tests would have to
    # wait for.
    "VLLM_LOG_STATS_INTERVAL": str(LOG_INTERVAL),
}

# Text that repeats itself, so that looking the last tokens up in the prompt finds a
# continuation.
REPETITIVE_PROMPTS = (
    "def add(left, right):\n    return left + right\n\n" * 6,
    "for index in range(10):\n    print(index, add(index, index))\n" * 6,
    "The quick brown fox jumps over the lazy dog. " * 8,
    "| Paris | France | Seine | 2102650 |\n| London | England | Thames | 8799800 |\n"
    * 3,
    '{"name": "request", "prompt": "hello", "max_tokens": 64}\n' * 5,
    (
        "On Monday it rained. On Tuesday the sun shone. On Wednesday the wind took the "
        "hat. "
    )
    * 4,
)

LOG_LINE = re.compile(
    r"SpecDecoding metrics: .*?Accepted: (?P<accepted>\d+) tokens, Drafted: "
    r"(?P<drafted>\d+) tokens"
)


class ServerError(RuntimeError):
    """The server did not start, or answered a request with something else than an
    answer.
    """


class Launcher:
    """The process that makes the models and starts the servers; see `launch.py`."""

    def __init__(self, python: Path, models: Path, folder: Path) -> None:
        foreign = ("VLLM_", "PROMETHEUS_", "PYTHON", "PYTEST_")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(foreign)
        }
        self._log_file = folder / "launcher.log"
        # For sockets, which servers leave behind, and whose paths must be short. What
        # is compiled is kept.
        self._scratch = tempfile.TemporaryDirectory(
            prefix="vllm-", ignore_cleanup_errors=True
        )
        compiled = f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
        places = {"TMPDIR": self._scratch.name, "TORCHINDUCTOR_CACHE_DIR": compiled}
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [python, Path(__file__).with_name("launch.py"), models],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=inherited | ENVIRONMENT | places,
            )

    def start(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> int:
        """Start a server and return the ID of its process, which leads a group."""
        wanted = (arguments, str(log), dict(environment))
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log_file.read_text(errors="replace")
        return int(answer)

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._scratch.cleanup()


class VllmServer:
    """One vLLM server: started, waited for and stopped, with all of its processes.

    The port stays the same over a restart, as it does for a container that is restarted
    in place. Each life writes a log file of its own into `directory`.
    """

    def __init__(
        self,
        launcher: Launcher,
        model: Path,
        directory: Path,
        *,
        speculation: Speculation,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.speculation = speculation
        self._launcher = launcher
        self._model = model
        self._directory = directory
        self._arguments = tuple(arguments)
        self._environment = environment or {}
        self._lives = count(1)
        self._process: int | None = None
        self._log_file = directory / "vllm-0.log"

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the processes and return at once; the port refuses until the model is
        loaded.
        """
        assert self._process is None, "the server is already running"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log_file = self._directory / f"vllm-{next(self._lives)}.log"
        # `serve` has the defaults of deployments: with two engines it starts two API
        # servers.
        command = ["serve", str(self._model), "--served-model-name", MODEL_NAME]
        command += ["--host", HOST, "--port", str(self.port)]
        # Without AVX-512, bfloat16 is multiplied one token at a time, so verification
        # is not cheaper than generation; and each kind of processor rounds it
        # differently and accepts other drafts.
        command += [
            "--dtype",
            "float32",
            "--enforce-eager",
            "--max-model-len",
            "1024",
            *self._arguments,
        ]
        if self.speculation is not None:
            command += ["--speculative-config", json.dumps(self.speculation)]
            # Without speculation the server refuses this flag.
            command += ["--per-request-spec-decode-metrics", "detailed"]
        self._process = self._launcher.start(command, self._log_file, self._environment)

    def wait_until_ready(self) -> None:
        """Wait for `/health`; fail with the end of the log if the server dies or is too
        slow.
        """
        deadline = time.monotonic() + READY_TIMEOUT
        while not answers(f"{self.url}/health"):
            ended = self._process is None or not _lives(self._process)
            tail = "\n".join(self._log().splitlines()[-40:])
            if ended:
                raise ServerError(f"vLLM ended while it started:\n{tail}")
            if time.monotonic() > deadline:
                raise ServerError(f"vLLM is not ready:\n{tail}")
            time.sleep(0.25)

    def stop(self) -> None:
        """Stop all processes of the server: politely at first, then not."""
        process = self._process
        self._process = None
        if process is None:
            return
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            eventually(lambda: not _lives(process), STOP_TIMEOUT)
        # Also after a polite end: an engine may have stayed behind.
        _signal_group(process, signal.SIGKILL)
        eventually(lambda: not _lives(process), STOP_TIMEOUT)

    def restart(self, speculation: Speculation) -> None:
        """Replace the server by one with another speculation on the same port; return
        at once.
        """
        self.stop()
        self.speculation = speculation
        self.start()

    def version(self) -> str:
        """Return what the server says about its version."""
        return str(json.loads(self._get("/version"))["version"])

    def metrics(self) -> str:
        """Return the server's own `/metrics`."""
        return self._get("/metrics")

    def logged(self) -> tuple[int, int]:
        """Return accepted and drafted tokens, summed over the log's `SpecDecoding
        metrics` lines.

        The lines of the present life only, each over the interval since the line before
        it.
        """
        accepted = 0
        drafted = 0
        for line in LOG_LINE.finditer(self._log()):
            accepted += int(line["accepted"])
            drafted += int(line["drafted"])
        return accepted, drafted

    def polls(self) -> int:
        """Return how often the server was asked for its metrics in this life."""
        return self._log().count("GET /metrics")

    def wait_until_watched(self, process: subprocess.Popen[str], polls: int) -> None:
        """Wait until it has answered two polls more: the look before the watch, and its
        first sample.
        """

        def watched() -> bool:
            assert process.poll() is None, process.communicate()
            return self.polls() >= polls + 2

        eventually(watched)

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    def _log(self) -> str:
        if self._log_file.exists():
            return self._log_file.read_text(errors="replace")
        return ""


def _lives(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


# --- requests


@dataclass(frozen=True)
class Ask:
    """A request to make."""

    prompt: str
    temperature: float | None = 0.0
    kind: str = ""  # what the client calls its type, in a header; empty for none
    api: str = "completions"
    stream: bool = True
    #: Whether the last event of a stream is to carry usage and speculation.
    include_usage: bool = True
    choices: int = 1
    seed: int = 0
    max_tokens: int = 48
    stop_strings: tuple[str, ...] = ()

    def body(self) -> bytes:
        """Return it as JSON."""
        body = {
            "model": MODEL_NAME,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "seed": self.seed,
            "stream": self.stream,
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.stop_strings:
            body["stop"] = self.stop_strings
        if self.choices != 1:
            body["n"] = self.choices
        if self.stream and self.include_usage:
            body["stream_options"] = {"include_usage": True}
        if self.api == "chat":
            body["messages"] = [{"role": "user", "content": self.prompt}]
        else:
            body["prompt"] = self.prompt
        return json.dumps(body).encode()

    @property
    def path(self) -> str:
        if self.api == "chat":
            return "/v1/chat/completions"
        return "/v1/completions"


@dataclass(frozen=True)
class Told:
    """What the client of a finished request was told."""

    ask: Ask
    #: VLLM's, of the speculation; `None` if the server has none, see `truth`.
    record: dict[str, Any] | None
    tokens: int | None  # how many were generated, if the answer says so
    ttft: float | None = None  # seconds until the first token of a stream
    decode_seconds: float = 0.0  # between the first and the last token of a stream

    @property
    def ratio(self) -> float | None:
        """The share of the drafted tokens that was accepted; `None` where none was
        drafted.
        """
        if not self.record or not self.record["num_draft_tokens"]:
            return None
        return float(
            self.record["num_accepted_draft_tokens"] / self.record["num_draft_tokens"]
        )

    @property
    def per_token(self) -> float:
        """Seconds per output token behind the first."""
        return self.decode_seconds / (self.tokens - 1)


def send(port: int, ask: Ask) -> Told:
    """Make a request, and read from the answer what it tells."""
    connection = http.client.HTTPConnection(HOST, port, timeout=REQUEST_TIMEOUT)
    headers = {"Content-Type": "application/json"}
    if ask.kind:
        headers["X-Request-Type"] = ask.kind
    try:
        started = time.monotonic()
        connection.request("POST", ask.path, ask.body(), headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ServerError(
                f"{ask.path} answered {answer.status}: {answer.read(2000)!r}"
            )
        if not ask.stream:
            return _told(ask, json.loads(answer.read()))
        times = []
        last = {}
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            last = json.loads(line.removeprefix(b"data: "))
            if "error" in last:
                raise ServerError(f"the stream failed: {last['error']}")
            # A chat stream opens with an event that carries no token yet.
            if any("role" not in choice.get("delta", {}) for choice in last["choices"]):
                # also without text: a token may end within a character
                times.append(time.monotonic())
        return _told(ask, last, times[0] - started, times[-1] - times[0])
    finally:
        connection.close()


def _told(ask: Ask, document: dict[str, Any], *more: Any) -> Told:
    record = (document.get("metrics") or {}).get("speculative_decoding")
    return Told(
        ask, record, (document.get("usage") or {}).get("completion_tokens"), *more
    )


def send_all(
    port: int,
    asks: Sequence[Ask],
    concurrency: int = 3,
    stop: threading.Event | None = None,
) -> list[Told]:
    """Make requests, `concurrency` at a time; none any more once `stop` is set."""

    def one(ask: Ask) -> Told | None:
        if stop is not None and stop.is_set():
            return None
        return send(port, ask)

    with ThreadPoolExecutor(concurrency) as pool:
        return [answer for answer in pool.map(one, asks) if answer is not None]


def drive(
    server: VllmServer,
    number: int,
    *,
    concurrency: int = 4,
    prompts: Sequence[str] = REPETITIVE_PROMPTS,
    stop: threading.Event | None = None,
    **ask: Any,
) -> list[Told]:
    """Make requests, each with prompt and seed by its number, and return what their
    clients were told.
    """
    ask = {"max_tokens": 80, **ask}
    asks = [
        Ask(prompts[index % len(prompts)], seed=index, **ask) for index in range(number)
    ]
    return send_all(server.port, asks, concurrency, stop)


# --- the truth


@dataclass(frozen=True)
class Truth:
    """What a set of requests adds up to; `accepted_per_draft[j]`: drafts of which j
    tokens were accepted.
    """

    completion_tokens: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    accepted_per_draft: tuple[int, ...]
    requests: int = 0

    @property
    def acceptance(self) -> float:
        return self.accepted_tokens / self.draft_tokens

    @property
    def counters(self) -> list[int]:
        """What the exporter's counters must say, in the order of `COUNTERS`."""
        return [
            self.drafts,
            self.draft_tokens,
            self.accepted_tokens,
            self.completion_tokens,
        ]


def truth(answers: Iterable[Told]) -> Truth:
    """Add the records up: the sums equal the server's counters, with tokens accepted
    behind a request's end.

    vLLM counts, but gives no record to, requests that end at a stop string, have
    several choices, or whose client went away.
    """
    answers = list(answers)
    records = [answer.record for answer in answers if answer.record is not None]
    depth = max((len(record["acceptance_histogram"]) for record in records), default=1)
    per_draft = [0] * depth
    for record in records:
        # Missing when the request had no draft at all.
        steps = record.get("per_step_accepted") or ()
        drafted = sum(record.get("per_step_drafted") or ())
        histogram = record["acceptance_histogram"]
        counts = [steps.count(accepted) for accepted in range(len(histogram))]
        assert (counts, drafted) == (histogram, record["num_draft_tokens"]), record
        for accepted, drafts in enumerate(histogram):
            per_draft[accepted] += drafts
    return Truth(
        sum(answer.tokens or 0 for answer in answers),
        sum(record["num_spec_steps"] for record in records),
        draft_tokens=sum(record["num_draft_tokens"] for record in records),
        accepted_tokens=sum(record["num_accepted_draft_tokens"] for record in records),
        accepted_per_position=tuple(
            sum(per_draft[position:]) for position in range(1, depth)
        ),
        accepted_per_draft=tuple(per_draft),
        requests=len(answers),
    )
