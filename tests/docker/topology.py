"""docker-compose.yml without Docker: the same commands, files and environment as processes on this machine.

Read from the file, nothing is repeated here. What differs from Docker is what must: names of services become
127.0.0.1 with free ports, paths in a container become paths below a folder, and images become programs.
Intervals of Prometheus and Alertmanager become a second, which changes nothing but how long a test waits.
"""

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.compose import mounts, names, services
from docker.dockerfile import ROOT, stage
from docker.test_compose import PORTS
from support.ports import free_port
from support.programs import COMMAND, START_SECONDS, STOP_SECONDS, answers, clean_environment, find_program

_TEXT = {".yml", ".yaml"}

#: The image of the exporter listens by itself, as those of Prometheus and Alertmanager do.
_LISTEN = "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS"

_INTERVALS = re.compile(
    r"(?<=scrape_interval: )15s|(?<=evaluation_interval: )15s|(?<=group_wait: )\d+s|(?<=group_interval: )\d+m"
)

#: What Debian's Prometheus 2.42 has not, and what stands for it. Flags of the server: none.
_HEALTH_OF_OLD_PROMTOOL = ("promtool", "check", "ready")


@dataclass(frozen=True)
class Node:
    """One service as it runs here."""

    name: str
    service: Mapping[str, Any]  # as docker-compose.yml has it
    port: int  # on 127.0.0.1
    root: Path  # the folder that stands for the root of its container
    log: Path  # what it printed

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def lines(self) -> list[str]:
        """Return what it printed so far."""
        return self.log.read_text("utf-8", "replace").splitlines()


@dataclass(frozen=True)
class Topology:
    """All that runs, by service."""

    nodes: Mapping[str, Node]

    def addressed(self, text: str) -> str:
        """Return a text with the services' addresses put in the place of their names."""
        for node in self.nodes.values():
            for name in names(node.name, node.service):
                pattern = rf"(?<![\w.-]){re.escape(name)}:{PORTS[node.name]}(?!\d)"
                text = re.sub(pattern, f"127.0.0.1:{node.port}", text)
        return text

    def inside(self, node: Node, text: str) -> str:
        """Return a text as it is meant in a container: with its port, its paths, and the other services."""
        own = rf"(?:127\.0\.0\.1|0\.0\.0\.0):{PORTS[node.name]}(?!\d)"
        text = self.addressed(re.sub(own, f"127.0.0.1:{node.port}", text))
        for target in sorted(mounts(node.service), key=len, reverse=True):
            text = re.sub(rf"(?<![\w.-]){re.escape(target)}(?=[/\s]|$)", f"{node.root}{target}", text)
        return text

    def healthy(self, node: Node) -> bool:
        """Run the service's health check, or its image's, and return whether it succeeds."""
        test = node.service.get("healthcheck", {}).get("test") or ["CMD", *stage("").one("HEALTHCHECK").argv]
        _, *argv = [self.inside(node, word) for word in test]
        if tuple(argv[:3]) == _HEALTH_OF_OLD_PROMTOOL:
            (url,) = (word.removeprefix("--url=") for word in argv[3:])
            return answers(f"{url}/-/ready")
        programs = {"python": sys.executable, "vllm-specdec-exporter": COMMAND}
        argv[0] = programs.get(argv[0]) or find_program(argv[0], "prometheus-alertmanager")
        done = subprocess.run(argv, env=self.environment(node), capture_output=True, timeout=120)
        return done.returncode == 0

    def environment(self, node: Node) -> dict[str, str]:
        """Return the environment of a service's process."""
        listen = {_LISTEN: f"127.0.0.1:{node.port}"} if node.name == "exporter" else {}
        return clean_environment(**listen)

    def command(self, node: Node) -> list[str]:
        """Return what runs in the container of a service, as it is called here."""
        words = [self.inside(node, word) for word in node.service["command"]]
        listen = f"--web.listen-address=127.0.0.1:{node.port}"
        match node.service["image"].partition(":")[0]:
            case "prom/prometheus":
                program = find_program("prometheus", "prometheus")
                return [program, *words, listen, "--rules.alert.resend-delay=1s"]
            case "prom/alertmanager":
                program = find_program("prometheus-alertmanager", "prometheus-alertmanager")
                return [program, *words, listen]
        return [COMMAND, *words]


@contextlib.contextmanager
def started(folder: Path, *without: str) -> Iterator[Topology]:
    """Start what `docker compose up` starts in an empty folder, without some services; take it down again."""
    nodes = {
        name: Node(name, service, free_port(), folder / name, folder / f"{name}.log")
        for name, service in services().items()
        if name not in without
    }
    topology = Topology(nodes)
    for node in nodes.values():
        _fill(topology, node)
    with contextlib.ExitStack() as running:
        processes = {name: running.enter_context(_process(topology, node)) for name, node in nodes.items()}
        for name, node in nodes.items():
            end = time.monotonic() + START_SECONDS
            while not topology.healthy(node):
                assert processes[name].poll() is None, node.log.read_text("utf-8")
                assert time.monotonic() < end, f"{name} is not healthy: {node.log.read_text('utf-8')}"
                time.sleep(0.2)
        yield topology


def _fill(topology: Topology, node: Node) -> None:
    """Make what a service mounts: copies of files, with addresses put in, and empty volumes."""
    node.root.mkdir()
    for target, source in sorted(mounts(node.service).items()):
        place = Path(f"{node.root}{target}")
        if not source.startswith("./"):
            place.mkdir(parents=True)
            continue
        origin = ROOT / source
        for path in [origin] if origin.is_file() else sorted(origin.iterdir()):
            copy = place if origin.is_file() else place / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in _TEXT and not path.parent.samefile(ROOT / "alerts" / "rules"):
                text = _INTERVALS.sub("1s", topology.addressed(path.read_text("utf-8")))
                copy.write_text(text, encoding="utf-8")
            else:
                shutil.copy(path, copy)


@contextlib.contextmanager
def _process(topology: Topology, node: Node) -> Iterator[subprocess.Popen[bytes]]:
    with node.log.open("wb") as output:
        process = subprocess.Popen(
            topology.command(node),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=node.root,
            env=topology.environment(node),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
