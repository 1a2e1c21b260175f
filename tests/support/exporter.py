"""The real exporter as a process, a client for it, and servers to point it at that
misbehave on demand.
"""

import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import yaml
from prometheus_client.parser import text_string_to_metric_families

from support.programs import COMMAND, clean_environment, eventually
from vllm_specdec_exporter.publish.metrics import METRICS, Kind, MetricScope

T = TypeVar("T")


#: A free port.
LISTEN = ("--web.listen-address", "127.0.0.1:0")

#: Nothing listens there: for tests that are not about the server.
NO_SERVER = ("--vllm.url", "http://127.0.0.1:1")

#: Fast enough for tests, with room for a busy machine.
FAST: Mapping[str, str] = {
    "--poll.interval": "500ms",
    "--poll.timeout": "480ms",
    **dict([LISTEN]),
}


# --- a client


@dataclass(frozen=True)
class Answer:
    """An answer of the exporter."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()


def request(
    url: str,
    method: str = "GET",
    timeout: float = 10.0,
    source: str = "",
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Answer:
    """Ask for `url` over a connection of its own, from `source`; underscores in header
    names mean dashes.
    """
    parts = urlsplit(url)
    address = (parts.hostname, parts.port)
    options: Any = {"timeout": timeout}
    if source:
        options["source_address"] = (source, 0)
    if tls:
        connection = http.client.HTTPSConnection(*address, context=tls, **options)
    else:
        connection = http.client.HTTPConnection(*address, **options)
    begin = time.monotonic()
    try:
        path = parts.path
        if parts.query:
            path += f"?{parts.query}"
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    lowered = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, lowered, content, time.monotonic() - begin)


Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The samples of one exposition, by name (without the prefix) and labels."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix("vllm_specdec_")
                series = self.samples.setdefault(name, {})
                key = tuple(sorted(sample.labels.items()))
                assert key not in series, f"{sample.name}{key} occurs twice"
                series[key] = sample.value

    def value(self, name: str, /, **labels: str) -> float | None:
        """The value of the one series of this name that has these labels, `None` where
        there is none.
        """
        series = self.values(name, **labels)
        assert len(series) < 2, f"several series: {series}"
        return next(iter(series.values()), None)

    def values(self, name: str, /, **labels: str) -> dict[Labels, float]:
        """Every series of this name that has these labels."""
        wanted = set(labels.items())
        return {
            key: value
            for key, value in self.samples.get(name, {}).items()
            if wanted <= set(key)
        }

    def total(self, name: str, /, **labels: str) -> float:
        """The sum over every series of this name that has these labels, 0 for none."""
        return sum(self.values(name, **labels).values())

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of every series of this name."""
        return list(map(dict, self.samples.get(name, {})))

    def one_hot(self, name: str, /, **labels: str) -> list[str]:
        """Which states of this one-hot metric are 1."""
        state_label = next(row.labels[0] for row in METRICS if row.name == name)
        return [
            dict(key)[state_label]
            for key, value in self.values(name, **labels).items()
            if value == 1
        ]

    def errors(self, **labels: str) -> dict[str, float]:
        """The poll errors that occurred, by reason."""
        series = self.values("poll_errors_total", **labels)
        return {dict(key)["reason"]: value for key, value in series.items() if value}

    def of_engines(self, **labels: str) -> set[str]:
        """The names of samples with these labels that say something of an engine."""
        return {
            name
            for name in self.samples
            if name in ENGINE_SAMPLES and self.values(name, **labels)
        }


def _sample_names() -> Iterator[str]:
    for row in METRICS:
        if row.scope in (MetricScope.ENGINE, MetricScope.WINDOW):
            if row.kind is Kind.HISTOGRAM:
                yield from (f"{row.name}_{part}" for part in ("bucket", "count", "sum"))
            else:
                yield row.name


#: Samples that hang on an engine or on one of its windows: none of them may outlive a
#: failed poll.
ENGINE_SAMPLES = frozenset(_sample_names())


# --- the exporter


_LOGFMT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^\s"=\\]+)(?: |$)')


def parse_logfmt(line: str) -> dict[str, str]:
    """Return the fields of a logfmt line; fail where it is none."""
    fields: dict[str, str] = {}
    position = 0
    while position < len(line):
        match = _LOGFMT.match(line, position)
        assert match is not None, f"not logfmt from character {position} on: {line!r}"
        assert match[1] not in fields, f"{match[1]} occurs twice: {line!r}"
        value = match[2]
        fields[match[1]] = json.loads(value) if value.startswith('"') else value
        position = match.end()
    return fields


def write_config(path: Path, config: object) -> None:
    """Write a configuration file: text as it is, everything else as YAML."""
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))


@dataclass
class RunningExporter:
    """An exporter process."""

    process: subprocess.Popen[bytes]
    log_file: Path
    config_file: Path
    url: str = ""
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        self.pid = self.process.pid

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    def descriptors(self) -> int:
        """Return how many files and connections the process has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def get(self, path: str, **headers: str) -> Answer:
        return request(self.url + path, **headers)

    def post(self, path: str) -> Answer:
        return request(self.url + path, "POST")

    def metrics(self, *names: str) -> Metrics:
        """Return what /metrics says, of all series or of those with these names
        (without the prefix).
        """
        query = "&".join(f"name[]=vllm_specdec_{name}" for name in names)
        url = f"{self.url}/metrics?{query}"
        # Longer than any needs: how soon it comes is asked with `request`.
        return Metrics(request(url, timeout=60).text)

    def snapshot(self, query: str = "") -> dict[str, Any]:
        answer = self.get(f"/api/v1/snapshot{query}")
        assert answer.status == 200, answer.text
        return dict(json.loads(answer.body))

    def configure(self, config: object) -> None:
        """Replace the configuration, as `write_config` does."""
        write_config(self.config_file, config)

    def wait_for(
        self, condition: Callable[[Metrics], T], *names: str, within: float = 180.0
    ) -> T:
        """Return what `condition` returns of /metrics once that is true."""
        return eventually(lambda: condition(self.metrics(*names)), within)

    def metrics_when(self, condition: Callable[[Metrics], object]) -> Metrics:
        """Return what /metrics says once the condition holds for it."""
        return self.wait_for(lambda metrics: metrics if condition(metrics) else None)

    def wait_until_up(self) -> None:
        self.wait_for(lambda metrics: set(metrics.values("up").values()) == {1.0}, "up")

    def log(self) -> str:
        return self.log_file.read_text()

    def log_lines(self, message: str = "") -> list[dict[str, str]]:
        """The fields of the whole log lines so far, of those with this message if one
        is given.
        """
        lines = list(map(parse_logfmt, self.log().split("\n")[:-1]))
        return [line for line in lines if message in ("", line["msg"])]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds until then."""
        begin = time.monotonic()
        self.send(number)
        code = self.process.wait(timeout=20)
        return code, time.monotonic() - begin

    def assert_ends(
        self, within: float, number: signal.Signals = signal.SIGTERM
    ) -> None:
        """Send a signal, and see that the process ends in so many seconds as its log
        says, without error.
        """
        code, seconds = self.terminate(number)
        assert code == 0
        assert seconds < within
        assert self.log_lines()[-1]["msg"] == "stopping"
        assert "Traceback" not in self.log()


@contextlib.contextmanager
def running_exporter(
    *args: str,
    env: Mapping[str, str] | None = None,
    config: object = None,
    fast: bool = True,
    command: tuple[str, ...] = (COMMAND,),
) -> Iterator[RunningExporter]:
    """Run the real command with `args` on a free port until it listens, and end it
    afterwards.

    A `config` is text, or an object to write as YAML; `fast` adds the flags of `FAST`
    that are not given.
    """
    with tempfile.TemporaryDirectory() as directory:
        log_file = Path(directory, "log")
        config_file = Path(directory, "config.yml")
        defaults: Mapping[str, str] = {}
        if fast:
            defaults = FAST
        elif config is None:
            defaults = dict([LISTEN])
        arguments = [*command, *args]
        given = {str(argument).partition("=")[0] for argument in args}
        for flag, value in defaults.items():
            if flag not in given:
                arguments += [flag, value]
        config_file.touch()
        if config is not None:
            write_config(config_file, config)
            arguments += ["--config.file", str(config_file)]
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(**(env or {})),
            )
        exporter = RunningExporter(process, log_file, config_file)
        try:
            exporter.url = eventually(lambda: _listens(exporter), 120)
            yield exporter
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(timeout=20)


def _listens(exporter: RunningExporter) -> str:
    """Return where the exporter listens once it does: as its log says, or else as its
    flag does.
    """
    log, command = exporter.log(), list(map(str, exporter.process.args))
    assert exporter.process.poll() is None, f"it ended: {log}"
    if "--web.listen-address" in command:
        address = command[command.index("--web.listen-address") + 1]
    else:
        address = ":0"
    if not address.endswith(":0"):
        host, port = address.split(":")
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=1),
        ):
            return f"http://{address}"
        return ""
    listening = re.search(
        r'msg(?:=|": ?")listening.*address(?:=|": ?")([^\s"]+).*\n', log
    )
    if listening:
        return f"http://{listening[1]}"
    return ""
