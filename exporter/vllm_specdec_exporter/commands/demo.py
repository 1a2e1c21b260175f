"""`demo`: simulator and exporter, and Prometheus and Alertmanager if installed, in one
terminal.

Prints their addresses and a summary every few seconds, and stops them all at the end.
"""

import argparse
import contextlib
import json
import math
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..client import SnapshotError, get_metrics
from ..config.options import ConfigError
from ..config.values import duration
from ..observe.result import EngineResult
from ..publish.wording import headline, to_do
from ..runtime.shutdown import Interruption
from .arguments import add_flag
from .exit_codes import FINE, PROBLEM, USAGE
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
_SELF = (sys.executable, "-m", "vllm_specdec_exporter")
_QUIET = "--log.level=error"
#: The ports that the documents name: of the simulator, the exporter, Prometheus and
#: Alertmanager.
_USUAL_PORTS = (8000, 9850, 9090, 9093)
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_MIN_INTERVAL = 0.5

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smhd])\b")
#: The durations of a rule file: ranges, subqueries and offsets of its expressions, and
#: the times of its rules; but not the windows in the names of recorded series.
_IN_RULES = re.compile(
    r"(?<=\[)[\dsmhd:]+(?=\])|(?<=offset )\d+[smhd]"
    r"|(?<= for: )\d+[smhd]|(?<= keep_firing_for: )\d+[smhd]|(?<= interval: )\d+[smhd]"
)

#: Folders of alert rules: in the installed package, or in the source tree.
_RULE_FOLDERS = (
    Path(__file__).parents[1] / "rules",
    Path(__file__).parents[3] / "alerts" / "rules",
)


class Program(Struct, frozen=True):
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
        f"Exit codes: {FINE} stopped by Ctrl-C, SIGTERM or --for; {PROBLEM} a program "
        f"did not start or exited; {USAGE} bad usage."
    )
    scenario = "Scenario of the simulator."
    add = partial(add_flag, parser)
    add("--scenario NAME", scenario, "tour", choices=SCENARIOS)
    add("--speed X", "Simulated seconds per second.", "1")
    add(
        "--for DURATION",
        "Stop after this time. Default: never.",
        parse=duration(0.0),
        dest="duration",
    )
    add(
        "--every DURATION",
        "Interval of the summary lines.",
        "5s",
        duration(_MIN_INTERVAL),
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo until Ctrl-C, SIGTERM, or the given time; return the exit code."""
    seconds = math.inf if args.duration is None else args.duration
    interruption = Interruption()
    interruption.listen()
    with (
        tempfile.TemporaryDirectory(prefix="vllm-specdec-demo-") as folder,
        contextlib.ExitStack() as stack,
    ):
        programs = _programs(Path(folder), args.scenario, args.speed)
        running = []
        try:
            for program in programs:
                process = _start(program, folder, interruption, stack)
                running.append((program, process))
            _print_introduction(programs, args.scenario)
            return _watch(running, seconds, args.every)
        except KeyboardInterrupt:
            print("\nstopping")
            return FINE


def _programs(folder: Path, scenario: str, speed: str) -> list[Program]:
    """Return the programs: simulator and exporter first, then those that are installed.

    Their files are written to `folder`.
    """
    ports = _free_ports()
    simulator = Program(
        "simulated vLLM",
        (
            *_SELF,
            "simulate",
            f"--web.listen-address={_HOST}:{ports[0]}",
            f"--scenario={scenario}",
            f"--speed={speed}",
        ),
        port=ports[0],
        page="/metrics",
    )
    exporter = Program(
        "exporter",
        (
            *_SELF,
            "serve",
            f"--vllm.url={simulator.url}",
            *_SIMULATED,
            f"--web.listen-address={_HOST}:{ports[1]}",
            "--poll.interval=2s",
            "--window=30s",
            "--window=5m",
            "--judgement.window=30s",
            _QUIET,
        ),
        port=ports[1],
    )
    programs = [simulator, exporter]
    prometheus = shutil.which("prometheus")
    if prometheus:
        programs.append(_prometheus(prometheus, ports, folder))
    alertmanager = shutil.which("prometheus-alertmanager")
    if alertmanager:
        programs.append(_alertmanager(alertmanager, ports[3], folder))
    return programs


_PROMETHEUS = """\
global: {{scrape_interval: 5s, evaluation_interval: 5s}}
rule_files: [rules/*.yml]
scrape_configs:
- job_name: vllm
  static_configs: [targets: ["{host}:{ports[0]}"]]
- job_name: vllm-specdec-exporter
  static_configs: [targets: ["{host}:{ports[1]}"]]
alerting:
  alertmanagers:
  - static_configs: [targets: ["{host}:{ports[3]}"]]
"""


def _prometheus(executable: str, ports: list[int], folder: Path) -> Program:
    config = folder / "prometheus.yml"
    config.write_text(_PROMETHEUS.format(host=_HOST, ports=ports), "utf-8")
    rules = folder / "rules"
    rules.mkdir()
    source = next(filter(Path.is_dir, _RULE_FOLDERS), rules)
    for file in source.glob("*.yml"):
        text = faster_rules(file.read_text("utf-8"), _SPEEDUP)
        (rules / file.name).write_text(text, "utf-8")
    return Program(
        "Prometheus",
        (
            executable,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address={_HOST}:{ports[2]}",
            f"--rules.alert.resend-delay={faster('1m', _SPEEDUP)}",
            _QUIET,
        ),
        port=ports[2],
        page=(
            "/graph?g0.expr=vllm_specdec_estimated_speedup&g0.tab=0&g0.range_input=15m"
        ),
    )


def _alertmanager(executable: str, port: int, folder: Path) -> Program:
    config = folder / "alertmanager.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n", "utf-8")
    return Program(
        "Alertmanager",
        (
            executable,
            f"--config.file={config}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={_HOST}:{port}",
            "--cluster.listen-address=",
            _QUIET,
        ),
        port=port,
    )


def _free_ports() -> list[int]:
    """Return the usual ports, with a free one for each that is in use."""
    ports = []
    # All are held until the last is chosen, so that none is chosen twice.
    with contextlib.ExitStack() as stack:
        for port in _USUAL_PORTS:
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                probe.bind((_HOST, 0))
            ports.append(int(probe.getsockname()[1]))
    return ports


def _start(
    program: Program,
    folder: str,
    interruption: Interruption,
    stack: contextlib.ExitStack,
) -> subprocess.Popen[bytes]:
    """Run a program until the end of `stack`; ConfigError with the end of its output if
    it does not start.
    """
    log = Path(folder) / f"{program.name.replace(' ', '-')}.log"
    # Held: an interruption before `callback` would leave the process running.
    with interruption.held(), log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            program.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches this process only, which stops the others in order.
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


_INTRODUCTION = """\
A simulated vLLM with speculative decoding, and the exporter. Stop them with Ctrl-C.
"""
_TOUR = """\
  The tour is healthy for 2 minutes, then decays, and collapses after 5. To see more \
sooner:
  --scenario collapse (or idle, bypass, restart, k_change, saturation, ...), or \
--speed 3.
  With make: make demo ARGS="--scenario collapse"
"""
#: Debian's packages of the programs that may be missing.
_PACKAGES = {"Prometheus": "prometheus", "Alertmanager": "prometheus-alertmanager"}


def _print_introduction(programs: list[Program], scenario: str) -> None:
    print(_INTRODUCTION)
    if scenario == "tour":
        print(_TOUR)
    urls = {program.name: program.url for program in programs}
    lines = {program.name: f"{program.url}{program.page}" for program in programs}
    for name, package in _PACKAGES.items():
        install = f"Debian and Ubuntu: apt-get install {package}"
        lines.setdefault(name, f"not installed ({install})")
    # As this program was called.
    command = sys.argv[0]
    if command.endswith(".py"):
        command = f"{sys.executable} -m {__package__.partition('.')[0]}"
    if "Prometheus" in urls:
        lines["alerts"] = (
            "in Prometheus, under Alerts (durations in the rules are divided by "
            f"{_SPEEDUP})"
        )
        lines["dashboards"] = (
            f"{command} dashboards --out DIR\n{'':<18}to import into a Grafana with "
            f"{urls['Prometheus']} as its Prometheus data source"
        )
    for name, text in lines.items():
        print(f"  {name:<16}{text}")
    metrics = f"{urls['exporter']}/metrics"
    print(f"\n  try: curl -s {metrics} | grep -E 'payoff|speedup|recommendation'")
    server = urls["simulated vLLM"]
    print(f"       {command} check {server} {shlex.join(_SIMULATED)}\n", flush=True)


def _watch(
    running: list[tuple[Program, subprocess.Popen[bytes]]],
    seconds: float,
    every: float,
) -> int:
    urls = {program.name: program.url for program, _ in running}
    end = time.monotonic() + seconds
    pause = 1.0
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = every
        for program, process in running:
            if process.poll() is not None:
                why = f"{program.name} exited with code {process.returncode}"
                print(why, file=sys.stderr)
                return PROBLEM
        clock = time.strftime("%H:%M:%S")
        phase = _phase(urls["simulated vLLM"])
        summary = _summary(urls["exporter"])
        alerts = _alerts(urls.get("Prometheus"))
        print(f"{clock}  [{phase}] {summary}{alerts}", flush=True)
    return FINE


def _alerts(prometheus: str | None) -> str:
    """Return the alerts that fire, empty without Prometheus or while it starts."""
    if prometheus is None:
        return ""
    try:
        alerts = _get_json(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
    except OSError:
        return ""
    firing = set()
    for alert in alerts:
        labels = alert["labels"]
        # The watchdog always fires, with the severity "none".
        if alert["state"] == "firing" and labels["severity"] != "none":
            firing.add(labels["alertname"].removeprefix("VLLMSpecDecode"))
    return f" | firing: {', '.join(sorted(firing))}" if firing else ""


def _phase(simulator: str) -> str:
    try:
        return str(_get_json(f"{simulator}/simulator")["phase"])
    except OSError:
        return "restarting"


def _get_json(url: str) -> Any:
    # Only URLs of this demo come here.
    with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310
        return json.load(response)


def _summary(exporter: str) -> str:
    try:
        result = get_metrics(exporter)
    except SnapshotError as error:
        return str(error)
    target = result.targets[0]
    if not target.up:
        reason = target.failure.reason if target.failure else "not polled yet"
        return f"server down ({reason}): no derived metrics"
    return " | ".join(_line(engine) for engine in target.engines)


def _line(engine: EngineResult) -> str:
    payoff = engine.payoff
    if payoff.verdict is None:
        return f"{engine.activity.state or 'unknown'}, {engine.activity.reason}"
    verdict = headline(payoff)
    if payoff.speedup is not None:
        verdict += f" {payoff.speedup:.2f}x"
    parts = [verdict, to_do(engine), f"acceptance {engine.quality.level}"]
    measures = engine.window(engine.judged_window)
    if measures is not None and measures.acceptance_ratio is not None:
        parts.append(f"{measures.acceptance_ratio:.0%}")
        parts.append(f"mean acceptance length {measures.mean_acceptance_length:.2f}")
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
    return _IN_RULES.sub(lambda match: faster(match[0], factor), text)
