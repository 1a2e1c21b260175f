"""`demo`: simulator and exporter, and Prometheus and Alertmanager if installed, in one
terminal.

Prints their addresses and a summary every few seconds, and stops them all at the end.
"""

import argparse
import contextlib
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..client import SnapshotError, get_metrics
from ..config.options import ConfigError
from ..observe.result import EngineResult
from ..publish.wording import headline, to_do
from ..runtime.shutdown import Interruption
from .arguments import add_flag, seconds_of
from .simulate.simulation import SCENARIOS
from .simulate.speculation import HARDWARE, METHOD, MODEL_SIZE

_HOST = "127.0.0.1"
#: Factor by which the durations in alert rules are divided: an alert fires after a
#: minute, not after ten.
_SPEEDUP = 10
#: The exporter's flags for what is simulated.
_SIMULATED = (
    "--spec.config",
    json.dumps({"method": METHOD}),
    "--cost.hardware",
    HARDWARE,
    "--cost.model",
    MODEL_SIZE,
)
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_MIN_INTERVAL = 0.5

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smhd])\b")
#: Ranges, subqueries and offsets of an expression, but not the windows in the names of
#: recorded series.
_IN_EXPRESSION = re.compile(r"(?<=\[)[\dsmhd:]+(?=\])|(?<=offset )\d+[smhd]")

#: Folders of alert rules: in the installed package, or in the source tree.
_RULE_FOLDERS = (
    Path(__file__).parents[1] / "rules",
    Path(__file__).parents[3] / "alerts" / "rules",
)


@dataclass(frozen=True, slots=True)
class Program:
    """One process of the demo: name, command line, port, and path of its page."""

    name: str
    command: tuple[str, ...]
    port: int
    page: str = "/"

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{_HOST}:{self.port}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `demo` to `parser`."""
    parser.epilog = (
        "Exit codes: 0 stopped by Ctrl-C, SIGTERM or --for; 1 a program did not start "
        "or exited; 2 bad usage."
    )
    add_flag(
        parser,
        "--scenario NAME",
        "Scenario of the simulator.",
        "tour",
        choices=SCENARIOS,
    )
    add_flag(parser, "--speed X", "Simulated seconds per second.", "1")
    add_flag(
        parser,
        "--for DURATION",
        "Stop after this time. Default: never.",
        dest="duration",
    )
    add_flag(parser, "--every DURATION", "Interval of the summary lines.", "5s")


def run(args: argparse.Namespace) -> int:
    """Run the demo until Ctrl-C, SIGTERM, or the given time; return the exit code."""
    if args.duration:
        duration = seconds_of("--for", args.duration, 0.0)
    else:
        duration = float("inf")
    every = seconds_of("--every", args.every, _MIN_INTERVAL)
    interruption = Interruption()
    interruption.listen()
    with (
        tempfile.TemporaryDirectory(prefix="vllm-specdec-demo-") as folder,
        contextlib.ExitStack() as stack,
    ):
        programs = list(_programs(Path(folder), args.scenario, args.speed))
        try:
            running = [
                (program, _start(program, folder, interruption, stack))
                for program in programs
            ]
            _print_introduction(programs, args.scenario)
            return _watch(running, programs[1], duration, every)
        except KeyboardInterrupt:
            print("\nstopping")
            return 0


def _programs(folder: Path, scenario: str, speed: str) -> Iterator[Program]:
    """Yield the programs: simulator and exporter first, then those that are installed."""
    taken: set[int] = set()
    command: tuple[str, ...]
    quiet = "--log.level=error"
    this = (sys.executable, "-m", "vllm_specdec_exporter")
    simulator, exporter = (_port(wanted, taken) for wanted in (8000, 9850))
    command = (*this, "simulate", "--web.listen-address", f"{_HOST}:{simulator}")
    command += ("--scenario", scenario, "--speed", speed)
    yield Program("simulated vLLM", command, simulator, "/metrics")
    command = (*this, "serve", "--vllm.url", f"http://{_HOST}:{simulator}", *_SIMULATED)
    command += (f"--web.listen-address={_HOST}:{exporter}", "--poll.interval=2s", quiet)
    command += ("--window=30s", "--window=5m", "--judgement.window=30s")
    yield Program("exporter", command, exporter)
    prometheus = shutil.which("prometheus")
    alertmanager = shutil.which("prometheus-alertmanager")
    alerts = _port(9093, taken) if alertmanager else None
    if prometheus:
        port = _port(9090, taken)
        config = folder / "prometheus.yml"
        rules = folder / "rules"
        config.write_text(
            _prometheus_config(simulator, exporter, alerts), encoding="utf-8"
        )
        rules.mkdir()
        for file in next(
            (rules_of.glob("*.yml") for rules_of in _RULE_FOLDERS if rules_of.is_dir()),
            (),
        ):
            (rules / file.name).write_text(
                faster_rules(file.read_text("utf-8"), _SPEEDUP), encoding="utf-8"
            )
        command = (
            prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
        )
        command += (f"--web.listen-address={_HOST}:{port}", quiet)
        command += (f"--rules.alert.resend-delay={faster('1m', _SPEEDUP)}",)
        page = (
            "/graph?g0.expr=vllm_specdec_estimated_speedup&g0.tab=0&g0.range_input=15m"
        )
        yield Program("Prometheus", command, port, page)
    if alertmanager and alerts:
        config = folder / "alertmanager.yml"
        config.write_text(
            "route: {receiver: none}\nreceivers: [{name: none}]\n", encoding="utf-8"
        )
        command = (
            alertmanager,
            f"--config.file={config}",
            f"--storage.path={folder / 'alertmanager'}",
        )
        command += (
            f"--web.listen-address={_HOST}:{alerts}",
            "--cluster.listen-address=",
            quiet,
        )
        yield Program("Alertmanager", command, alerts)


def _prometheus_config(simulator: int, exporter: int, alertmanager: int | None) -> str:
    jobs = {"vllm": simulator, "vllm-specdec-exporter": exporter}
    alertmanagers = [f"{_HOST}:{alertmanager}"] if alertmanager else []
    document = {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": ["rules/*.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"{_HOST}:{port}"]}]}
            for job, port in jobs.items()
        ],
        "alerting": {
            "alertmanagers": [{"static_configs": [{"targets": alertmanagers}]}]
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


def _port(wanted: int, taken: set[int]) -> int:
    """Return the default port, or a free one if that is in use."""
    for tried in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, tried))
            except OSError:
                continue
            port = int(probe.getsockname()[1])
            if port not in taken:
                taken.add(port)
                return port
    return _port(0, taken)


def _start(
    program: Program,
    folder: str,
    interruption: Interruption,
    stack: contextlib.ExitStack,
) -> subprocess.Popen[bytes]:
    """Run a program until the end of `stack`; its output is shown if it does not start."""
    log = Path(folder) / f"{program.name.replace(' ', '-')}.log"
    with interruption.held(), log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            program.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(_stop, process)
    _wait_until_listening(program, process, log)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_listening(
    program: Program, process: subprocess.Popen[bytes], log: Path
) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((_HOST, program.port), 1),
        ):
            return
        time.sleep(0.05)
    lines = log.read_text("utf-8", "replace").splitlines()[-5:]
    raise ConfigError(
        f"{program.name} did not start: {' / '.join(lines) or 'no output'}"
    )


def _print_introduction(programs: list[Program], scenario: str) -> None:
    print(
        "A simulated vLLM with speculative decoding, and the exporter. Stop them "
        "with Ctrl-C.\n"
    )
    if scenario == "tour":
        print(
            "  The tour is healthy for 2 minutes, then decays, and collapses after "
            "5. To see more sooner:"
        )
        print(
            "  --scenario collapse (or idle, bypass, restart, k_change, "
            "saturation, ...), or --speed 3."
        )
        print('  With make: make demo ARGS="--scenario collapse"\n')
    for program in programs:
        print(f"  {program.name:<16}{program.url}{program.page}")
    names = [program.name for program in programs]
    for name, package in (
        ("Prometheus", "prometheus"),
        ("Alertmanager", "prometheus-alertmanager"),
    ):
        if name not in names:
            print(
                f"  {name:<16}not installed (Debian and Ubuntu: apt-get install "
                f"{package})"
            )
    exporter = programs[1]
    prometheus = next(
        (program for program in programs if program.name == "Prometheus"), None
    )
    if prometheus:
        page = _alerts_page(prometheus.url)
        print(
            f"  {'alerts':<16}{page} (durations in the rules are divided by {_SPEEDUP})"
        )
        print(f"  {'dashboards':<16}{_command()} dashboards --out DIR")
        print(
            f"  {'':<16}to import into a Grafana with {prometheus.url} as its "
            "Prometheus data source"
        )
    print(
        f"\n  try: curl -s {exporter.url}/metrics | grep -E "
        "'payoff|speedup|recommendation'"
    )
    print(f"       {_command()} check {programs[0].url} {shlex.join(_SIMULATED)}\n")
    sys.stdout.flush()


def _command() -> str:
    """Return the command that started this program."""
    if sys.argv[0].endswith(".py"):
        return f"{sys.executable} -m {__package__.partition('.')[0]}"
    return sys.argv[0]


def _watch(
    running: list[tuple[Program, subprocess.Popen[bytes]]],
    exporter: Program,
    duration: float,
    every: float,
) -> int:
    end = time.monotonic() + duration
    pause = 1.0
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = every
        for program, process in running:
            if process.poll() is not None:
                print(
                    f"{program.name} exited with code {process.returncode}",
                    file=sys.stderr,
                )
                return 1
        clock = time.strftime("%H:%M:%S")
        phase = _phase(running[0][0])
        print(f"{clock}  [{phase}] {_summary(exporter)}{_alerts(running)}", flush=True)
    return 0


def _alerts_page(url: str) -> str:
    """Return the page of the alerts; Debian's Prometheus has only the classic one."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"{url}/alerts", timeout=5),
    ):
        return f"{url}/alerts"
    return f"{url}/classic/alerts"


def _alerts(running: list[tuple[Program, subprocess.Popen[bytes]]]) -> str:
    url = next(
        (program.url for program, _ in running if program.name == "Prometheus"), ""
    )
    if not url:
        return ""
    try:
        alerts = _get_json(f"{url}/api/v1/alerts")["data"]["alerts"]
    except OSError:
        return ""
    firing = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
    words = {"critical": "page", "warning": "ticket", "info": "hint"}
    parts = []
    for severity, word in words.items():
        names = {
            labels["alertname"] for labels in firing if labels["severity"] == severity
        }
        if names:
            short = sorted(name.removeprefix("VLLMSpecDecode") for name in names)
            parts.append(f"{word}: {', '.join(short)}")
    if parts:
        return f" | {'; '.join(parts)}"
    return ""


def _phase(simulator: Program) -> str:
    try:
        return str(_get_json(f"{simulator.url}/simulator")["phase"])
    except OSError:
        return "restarting"


def _get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - a URL of this demo
        return json.load(response)


def _summary(exporter: Program) -> str:
    try:
        result = get_metrics(exporter.url)
    except SnapshotError as error:
        return str(error)
    target = result.targets[0]
    if not target.up:
        reason = target.failure.reason if target.failure else "not polled yet"
        return f"server down ({reason}): no derived metrics"
    return " | ".join(_line(engine) for engine in target.engines)


def _line(engine: EngineResult) -> str:
    parts = [str(engine.activity.state or "unknown")]
    if engine.payoff.verdict is not None:
        if engine.payoff.speedup is None:
            speedup = ""
        else:
            speedup = f" {engine.payoff.speedup:.2f}x"
        parts[0] = f"{headline(engine.payoff)}{speedup}, {to_do(engine)}"
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


def faster(duration: str, factor: float) -> str:
    """Return a text with its durations divided by `factor`, at least a millisecond
    each.
    """

    def divide(match: re.Match[str]) -> str:
        seconds = float(match["number"]) * _UNITS[match["unit"]] / factor
        return f"{max(1, round(1000 * seconds))}ms"

    return _DURATION.sub(divide, duration)


def faster_rules(text: str, factor: float) -> str:
    """Return a rule file with all durations divided by `factor`, so that alerts fire
    sooner.
    """
    document: dict[str, Any] = yaml.safe_load(text)
    for group in document["groups"]:
        if "interval" in group:
            group["interval"] = faster(group["interval"], factor)
        for rule in group["rules"]:
            rule["expr"] = _IN_EXPRESSION.sub(
                lambda match: faster(match[0], factor), rule["expr"]
            )
            for key in ("for", "keep_firing_for"):
                if key in rule:
                    rule[key] = faster(rule[key], factor)
    return yaml.safe_dump(document)
