"""docker-compose.yml in real containers: up, healthy, a collapse that reaches `act`,
and data that stays.

The clock runs `FACTOR` times as fast, as in tests/paging; and Grafana is left out,
because Debian has none.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from alertmanager.bundle import make_faster
from docker.compose import COMPOSE, DOTENV, raw
from support.ports import free_port
from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.commands.demo import faster, faster_rules

FACTOR = 60.0
_PUBLISHED = ("VLLM", "EXPORTER", "PROMETHEUS", "ALERTMANAGER")
#: Seconds, for machines that are busy; it takes a tenth of it.
_PATIENCE = 240.0


class Stack:
    """The project in a folder of its own, with the files that it mounts.

    Args:
        folder: does not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        ports = {name: str(free_port()) for name in _PUBLISHED}
        self._environment = {
            **os.environ,
            **{f"{name}_PORT": port for name, port in ports.items()},
        }
        self._urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self._folder = folder
        shutil.copytree(ROOT / "alerts", folder / "alerts")
        shutil.copy(DOTENV, folder)
        (folder / COMPOSE.name).write_text(yaml.safe_dump(_document()), "utf-8")
        for path in (folder / "alerts/rules").glob("*.yml"):
            path.write_text(faster_rules(text_of(path), FACTOR), "utf-8")
        prometheus = folder / "alerts/prometheus.yml"
        prometheus.write_text(
            re.sub(r"_interval: 15s", "_interval: 1s", text_of(prometheus)), "utf-8"
        )
        alertmanager = folder / "alerts/alertmanager.compose.yml"
        config = data_of(alertmanager)
        make_faster(config, FACTOR)
        alertmanager.write_text(yaml.safe_dump(config), "utf-8")

    def compose(self, *arguments: str) -> str:
        """Run podman-compose, and return what it prints."""
        return self._run("podman-compose", "--profile", "simulator", *arguments)

    def podman(self, *arguments: str) -> str:
        """Run podman, and return what it prints."""
        return self._run("podman", *arguments)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def up(self) -> None:
        """Start the containers, and wait until the health check of each succeeds."""
        self.compose("up", "--detach", "--no-build")
        names = self.containers()
        assert len(names) == len(_document()["services"]), names
        for name in names:
            within(
                _PATIENCE, f"healthy: {name}", lambda name=name: self._is_healthy(name)
            )

    def _is_healthy(self, name: str) -> bool:
        command = ("podman", "healthcheck", "run", name)
        return subprocess.run(command, capture_output=True).returncode == 0

    def containers(self) -> list[str]:
        """Return the names of the containers."""
        project = f"label=io.podman.compose.project={raw()['name']}"
        names = self.podman("ps", f"--filter={project}", "--format={{.Names}}")
        return names.split()

    def _container(self, service: str) -> str:
        pattern = re.compile(rf"[_-]{service}[_-]")
        (name,) = filter(pattern.search, self.containers())
        return name

    def get(self, server: str, path: str, **query: str) -> Any:
        """Return the JSON of an answer."""
        url = f"{self._urls[server]}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)

    def post(self, server: str, path: str, document: object) -> None:
        """Send JSON."""
        headers = {"Content-Type": "application/json"}
        body = json.dumps(document).encode()
        request = urllib.request.Request(f"{self._urls[server]}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=30):
            pass

    def value(self, query: str, moment: float) -> list[Any]:
        """Return the result of a query in Prometheus, at a time in Unix seconds."""
        answer = self.get(
            "PROMETHEUS", "/api/v1/query", query=query, time=f"{moment:.3f}"
        )
        return list(answer["data"]["result"])

    def not_green(self) -> list[str]:
        """Return what is wrong with targets and rules; a list that says so as long as
        there are none.
        """
        targets = self.get("PROMETHEUS", "/api/v1/targets")["data"]["activeTargets"]
        groups = self.get("PROMETHEUS", "/api/v1/rules")["data"]["groups"]
        rules = list(chain.from_iterable(group["rules"] for group in groups))
        wrong = [target["scrapeUrl"] for target in targets if target["health"] != "up"]
        wrong += [
            f"{rule['name']}: {rule.get('lastError')}"
            for rule in rules
            if rule["health"] != "ok"
        ]
        # Right after a start Prometheus has loaded neither.
        if len(targets) == 2 and len(rules) > 50:
            return wrong
        return ["no targets or rules"]

    def actions(self) -> list[dict[str, Any]]:
        """Return the events that `act` logged."""
        lines = self.podman("logs", self._container("act")).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def peak(self) -> float:
        """Return the most memory that the exporter's process has had, in MiB."""
        name = self._container("exporter")
        process = self.podman("inspect", "--format", "{{.State.Pid}}", name).strip()
        status = Path(f"/proc/{process}/status")
        (kibibytes,) = re.findall(r"(?m)^VmHWM:\s+(\d+) kB", text_of(status))
        return int(kibibytes) / 1024


def _document() -> dict[str, Any]:
    """Return docker-compose.yml without Grafana, GPUs and building; the exporter has
    shorter windows.
    """
    document = json.loads(json.dumps(raw()))
    kept = {
        name: service
        for name, service in document["services"].items()
        if name != "grafana" and "-gpu" not in name
    }
    for service in kept.values():
        # The images here are built, so they have no digest.
        service["image"] = service["image"].partition("@")[0]
        service.pop("build", None)
        service.pop("pull_policy", None)
    window = faster("5m", FACTOR)
    kept["exporter"]["command"] += [
        "--poll.interval=500ms",
        f"--window={window}",
        f"--judgement.window={window}",
    ]
    return {**{key: document[key] for key in ("name", "volumes")}, "services": kept}


def within(seconds: float, title: str, condition: Callable[[], object]) -> float:
    """Wait until a condition holds, and return the seconds that it took.

    Raises:
        AssertionError: it does not hold in time; `title` is in the message.
    """
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {title}"
        time.sleep(0.5)
    return time.monotonic() - began


def say(text: str) -> None:
    """Print a line below the step of run.sh."""
    print(f"          {text}", flush=True)


def main(folder: Path, promised: float) -> None:
    """Run the whole story; AssertionError for what is not as it should be."""
    stack = Stack(folder)
    began = time.monotonic()
    stack.up()
    say(
        f"up and healthy after {time.monotonic() - began:.1f} s: "
        f"{', '.join(stack.containers())}"
    )
    within(_PATIENCE, "targets and rules are green", lambda: not stack.not_green())
    silence = {
        "matchers": [{"name": "alertname", "value": "X", "isRegex": False}],
        "comment": "kept",
        "createdBy": "test",
        "startsAt": "2026-01-01T00:00:00Z",
        "endsAt": "2126-01-01T00:00:00Z",
    }
    stack.post("ALERTMANAGER", "/api/v2/silences", silence)
    stack.post("VLLM", "/simulator/phase", {"phase": "collapse"})
    took = within(
        _PATIENCE,
        "a decision of act",
        lambda: any(action["event"] == "would_act" for action in stack.actions()),
    )
    say(
        f"a collapse reached act after {took:.1f} s, which are "
        f"{took * FACTOR / 60:.0f} minutes in production"
    )
    assert not stack.not_green(), stack.not_green()
    peak = stack.peak()
    moment = time.time()
    say(f"memory of the exporter: at most {peak:.1f} MiB")
    assert peak < promised, peak
    pages = 'ALERTS{alertstate="firing",severity="critical"}'
    assert stack.value(pages, moment)

    stack.compose("down")
    assert not stack.containers()
    stack.up()
    # At the time before, when the page fired: what is stored says so still.
    assert stack.value(pages, moment), "Prometheus has lost its data"
    kept = stack.get("ALERTMANAGER", "/api/v2/silences")
    assert [silence["comment"] for silence in kept] == ["kept"], (
        "Alertmanager has lost its data"
    )
    say("data survived down and up")
    stack.compose("down", "--volumes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
