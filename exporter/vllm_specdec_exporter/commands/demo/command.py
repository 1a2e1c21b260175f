"""`demo`: the whole thing in one terminal, with nothing to set up.

Starts the simulator and the exporter, and Prometheus and Alertmanager where they are installed, prints
their addresses and a line every few seconds, and takes everything down again at the end.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ...client.api import SnapshotError, get_metrics
from ...config.options import ConfigError
from ...config.values import parse_duration
from ...publish.wording import action_words
from ...serve.shutdown import Interruption
from ..simulate.scenario import SCENARIOS
from .rules import FOLDERS, rules, scaled

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ...observe.result import EngineResult

_HOST = "127.0.0.1"
#: How many times as fast as in production the alert rules count: a page comes in a minute, not in ten.
_HURRY = 10
#: What the exporter is told of the simulated server.
_SPECULATION = '{"method": "eagle3"}'
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_SHORTEST_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Program:
    """One process of the demo: what to call it, how to start it, and the page to look at."""

    name: str
    command: tuple[str, ...]
    port: int
    page: str = "/"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self.port}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `demo`."""
    parser.epilog = (
        "Exit codes: 0 ended by Ctrl-C, SIGTERM or --for; 1 a program did not start, or ended; 2 bad usage."
    )
    shown = "What the simulator plays. Default: tour."
    parser.add_argument("--scenario", default="tour", metavar="NAME", choices=SCENARIOS, help=shown)
    parser.add_argument("--speed", default="1", metavar="X", help="Simulated seconds per second. Default: 1.")
    parser.add_argument(
        "--for", dest="duration", metavar="DURATION", help="End by itself after this time. Default: never."
    )
    parser.add_argument(
        "--every", default="5s", metavar="DURATION", help="Time between two summary lines. Default: 5s."
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo until Ctrl-C, SIGTERM, or the given time; return the exit code."""
    duration = _duration("--for", args.duration) if args.duration else float("inf")
    every = _duration("--every", args.every)
    if every < _SHORTEST_EVERY:
        raise ConfigError(f'--every "{args.every}": at least {_SHORTEST_EVERY:g}s is needed')
    interruption = Interruption()
    interruption.listen()
    with tempfile.TemporaryDirectory(prefix="vllm-specdec-demo-") as folder, contextlib.ExitStack() as stack:
        programs = list(_programs(Path(folder), args.scenario, args.speed))
        try:
            running = [(program, _start(program, folder, interruption, stack)) for program in programs]
            _introduce(programs, args.scenario)
            return _watch(running, programs[1], duration, every)
        except KeyboardInterrupt:
            print("\nstopping")
            return 0


def _duration(flag: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(f'{flag} "{text}": {error}') from error


def _programs(folder: Path, scenario: str, speed: str) -> Iterator[Program]:
    """Yield what to start: simulator and exporter first, then what is installed."""
    taken: set[int] = set()
    this = (sys.executable, "-m", "vllm_specdec_exporter")
    simulator, exporter = (_port(wanted, taken) for wanted in (8000, 9850))
    yield Program(
        "simulated vLLM",
        (
            *(*this, "simulate", "--web.listen-address", f"{_HOST}:{simulator}"),
            *("--scenario", scenario, "--speed", speed),
        ),
        simulator,
        "/metrics",
    )
    yield Program(
        "exporter",
        (
            *this,
            *("serve", "--vllm.url", f"http://{_HOST}:{simulator}", "--spec.config", _SPECULATION),
            *("--web.listen-address", f"{_HOST}:{exporter}", "--poll.interval", "2s"),
            *("--window", "30s", "--window", "5m", "--judgement.window", "30s", "--log.level", "error"),
        ),
        exporter,
    )
    prometheus, alertmanager = shutil.which("prometheus"), shutil.which("prometheus-alertmanager")
    alerts = _port(9093, taken) if alertmanager else None
    if prometheus:
        port = _port(9090, taken)
        config = folder / "prometheus.yml"
        files = next((sorted(found.glob("*.yml")) for found in FOLDERS if found.is_dir()), [])
        hurried = rules({file.name: file.read_text("utf-8") for file in files}, _HURRY)
        for name, text in hurried.items():
            (folder / name).write_text(text, encoding="utf-8")
        config.write_text(_prometheus_config(simulator, exporter, alerts, list(hurried)), encoding="utf-8")
        yield Program(
            "Prometheus",
            (
                *(prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}"),
                *(f"--web.listen-address={_HOST}:{port}", "--log.level=error"),
                f"--rules.alert.resend-delay={scaled('1m', _HURRY)}",
            ),
            port,
            "/graph?g0.expr=vllm_specdec_estimated_speedup&g0.tab=0&g0.range_input=15m",
        )
    if alertmanager and alerts:
        config = folder / "alertmanager.yml"
        config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n", encoding="utf-8")
        yield Program(
            "Alertmanager",
            (
                *(alertmanager, f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}"),
                *(f"--web.listen-address={_HOST}:{alerts}", "--cluster.listen-address=", "--log.level=error"),
            ),
            alerts,
        )


def _prometheus_config(simulator: int, exporter: int, alertmanager: int | None, rule_files: list[str]) -> str:
    jobs = {"vllm": simulator, "vllm-specdec-exporter": exporter}
    document: dict[str, object] = {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": rule_files,
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"{_HOST}:{port}"]}]}
            for job, port in jobs.items()
        ],
    }
    if alertmanager is not None:
        targets = {"static_configs": [{"targets": [f"{_HOST}:{alertmanager}"]}]}
        document["alerting"] = {"alertmanagers": [targets]}
    return yaml.safe_dump(document, sort_keys=False)


def _port(wanted: int, taken: set[int]) -> int:
    """Return the usual port, or any free one where that is in use."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            found = int(probe.getsockname()[1])
            if found not in taken:
                taken.add(found)
                return found
    return _port(0, taken)


def _start(
    program: Program, folder: str, interruption: Interruption, stack: contextlib.ExitStack
) -> subprocess.Popen[bytes]:
    """Run the program until the end of `stack`; its output goes to a file, shown if it fails."""
    log = Path(folder) / f"{program.name.replace(' ', '-')}.log"
    with interruption.held(), log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            program.command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        stack.callback(_end, process)
    _await(program, process, log)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await(program: Program, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((_HOST, program.port), 1):
            return
        time.sleep(0.05)
    lines = log.read_text("utf-8", "replace").splitlines()[-5:]
    raise ConfigError(f"{program.name} did not start: {' / '.join(lines) or 'it said nothing'}")


def _introduce(programs: list[Program], scenario: str) -> None:
    print("Speculative decoding, simulated and judged. Ctrl-C ends it.\n")
    if scenario == "tour":
        print("  The tour is healthy for 2 minutes, then decays, and collapses after 5. For more at once:")
        print("  --scenario collapse (or idle, bypass, restart, k_change, saturation, ...), or --speed 3.")
        print('  With make: make demo ARGS="--scenario collapse"\n')
    for program in programs:
        print(f"  {program.name:<16}{program.url}{program.page}")
    names = {program.name for program in programs}
    for name, package in (("Prometheus", "prometheus"), ("Alertmanager", "prometheus-alertmanager")):
        if name not in names:
            print(f"  {name:<16}not installed (Debian and Ubuntu: apt-get install {package})")
    exporter = programs[1]
    prometheus = next((program for program in programs if program.name == "Prometheus"), None)
    if prometheus:
        print(f"  {'alerts':<16}{_alerts_page(prometheus.url)} (on a clock {_HURRY} times as fast as usual)")
        push = "dashboards --push YOUR-GRAFANA --grafana.token-file FILE"
        print(f"  {'dashboards':<16}{_called()} {push}")
        print(f"  {'':<16}with {prometheus.url} as its Prometheus data source")
    print(f"\n  try: curl -s {exporter.url}/metrics | grep -E 'payoff|speedup|recommendation'")
    print(f"       {_called()} check {programs[0].url} --spec.config '{_SPECULATION}'\n")
    sys.stdout.flush()


def _called() -> str:
    """Return how this program was called."""
    return (
        sys.argv[0]
        if not sys.argv[0].endswith(".py")
        else f"{sys.executable} -m {__package__.partition('.')[0]}"
    )


def _watch(
    running: list[tuple[Program, subprocess.Popen[bytes]]], exporter: Program, duration: float, every: float
) -> int:
    end = time.monotonic() + duration
    pause = 1.0  # the first line soon: the exporter has polled twice by then or says that it has not
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = every
        for program, process in running:
            if process.poll() is not None:
                print(f"{program.name} ended by itself with code {process.returncode}", file=sys.stderr)
                return 1
        clock, phase = time.strftime("%H:%M:%S"), _phase(running[0][0])
        print(f"{clock}  [{phase}] {_summary(exporter)}{_alerts(running)}", flush=True)
    return 0


def _alerts_page(url: str) -> str:
    """Return the page with the alerts: Debian's Prometheus has the classic one only."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/alerts", timeout=5):  # noqa: S310 - ours
        return f"{url}/alerts"
    return f"{url}/classic/alerts"


def _alerts(running: list[tuple[Program, subprocess.Popen[bytes]]]) -> str:
    """Return what fires, by severity, as Prometheus says."""
    url = next((program.url for program, _ in running if program.name == "Prometheus"), "")
    if not url:
        return ""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=2) as answer:  # noqa: S310 - ours
            found = [a["labels"] for a in json.load(answer)["data"]["alerts"] if a["state"] == "firing"]
    except OSError:
        return ""
    words = {"critical": "page", "warning": "ticket", "info": "hint"}
    parts = [
        f"{word}: {', '.join(names)}"
        for severity, word in words.items()
        if (
            names := sorted(
                {
                    one["alertname"].removeprefix("VLLMSpecDecode")
                    for one in found
                    if one["severity"] == severity
                }
            )
        )
    ]
    return f" | {'; '.join(parts)}" if parts else ""


def _phase(simulator: Program) -> str:
    """Return what the simulator plays at the moment."""
    try:
        with urllib.request.urlopen(f"{simulator.url}/simulator", timeout=2) as answer:  # noqa: S310 - ours
            return str(json.load(answer)["phase"])
    except OSError:
        return "restarting"


def _summary(exporter: Program) -> str:
    try:
        result = get_metrics(exporter.url)
    except SnapshotError as error:
        return str(error)
    target = result.targets[0]
    if not target.up:
        reason = target.failure.reason if target.failure else "not polled yet"
        return f"server down ({reason}): nothing derived is served"
    return " | ".join(_line(engine) for engine in target.engines)


def _line(engine: EngineResult) -> str:
    parts = [str(engine.activity.state or "unknown")]
    if engine.payoff.verdict is not None and engine.payoff.speedup is not None:
        parts[0] = (
            f"{engine.payoff.verdict.upper()} {engine.payoff.speedup:.2f}x, {action_words(engine.advice)}"
        )
    if engine.quality.level is not None:
        parts.append(f"acceptance {engine.quality.level}")
    measures = engine.window(engine.judged_window)
    if measures is not None and measures.mean_acceptance_length is not None:
        if measures.acceptance_ratio is not None:
            parts.append(f"{measures.acceptance_ratio:.0%}")
        parts.append(f"mean acceptance length {measures.mean_acceptance_length:.2f}")
    elif engine.activity.state is not None:
        parts.append(engine.activity.reason)
    return ", ".join(parts)
