"""`demo`: the real command, with the Prometheus and Alertmanager that are installed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.commands import run
from support.programs import COMMAND, answers, clean_environment, find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECONDS = 40.0
PROGRAMS = ("simulated vLLM", "exporter", "Prometheus", "Alertmanager")
USUAL_PORTS = (8000, 9850, 9090, 9093)


@dataclass
class Demo:
    """A demo that runs, what it has said so far, and the folder for its temporary files."""

    process: subprocess.Popen[bytes]
    log: Path
    temporary: Path

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    @property
    def pages(self) -> dict[str, str]:
        """The address of each program, as printed."""
        return dict(re.findall(r"^  (\w[\w ]*?) +(http://\S+)$", self.said, re.MULTILINE))

    @property
    def children(self) -> set[int]:
        """The processes that it started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in path.read_text().split()} if path.exists() else set()

    @property
    def summaries(self) -> list[str]:
        """The lines that it prints as time goes by, without their time."""
        return re.findall(r"^\d\d:\d\d:\d\d  (.*)$", self.said, re.MULTILINE)

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until something holds, while the demo runs."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None, f"the demo ended while waiting for {what}: {self.said}"
            assert time.monotonic() < end, f"no {what} after {SECONDS:g} s: {self.said}"
            time.sleep(0.05)

    def wait_until_introduced(self) -> None:
        self.wait("introduction", lambda: "\n  try: " in self.said)

    def port(self, program: str) -> int:
        """The port that a program was given."""
        return urllib.parse.urlsplit(self.pages[program]).port or 0


@contextlib.contextmanager
def demo(folder: Path, *flags: str, command: Sequence[str] = (COMMAND,)) -> Iterator[Demo]:
    """Run a demo whose temporary files go to `folder`."""
    for program, package in (
        ("prometheus", "prometheus"),
        ("prometheus-alertmanager", "prometheus-alertmanager"),
    ):
        find_program(program, package)
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "demo", *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=clean_environment(TMPDIR=str(temporary)),
        )
    found = Demo(process, log, temporary)
    children: set[int] = set()
    try:
        yield found
    finally:
        children = found.children
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            for pid in (*children, process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


def alive(pids: set[int]) -> set[int]:
    """Those of some processes that still run."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def ask(url: str) -> str:
    """The answer of an address."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


# --- a demo that ends by itself


@dataclass(frozen=True)
class Seen:
    """What was seen of a demo that ended by itself."""

    said: str
    code: int
    summaries: list[str]
    pages: dict[str, bool]
    series: set[str]
    jobs: dict[str, str]
    alertmanagers: int
    left_processes: set[int]
    left_files: list[str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A demo of ten seconds, looked at while it ran and after it had ended."""
    with demo(tmp_path_factory.mktemp("demo"), "--for", "10s", "--every", "2s") as found:
        found.wait_until_introduced()
        children = found.children
        pages = {name: answers(url) for name, url in found.pages.items()}
        base = f"http://127.0.0.1:{found.port('Prometheus')}/api/v1"
        query = urllib.parse.urlencode({"match[]": '{__name__=~"vllm_specdec_.+"}'})

        def names() -> set[str]:
            return {series["__name__"] for series in json.loads(ask(f"{base}/series?{query}"))["data"]}

        def jobs() -> dict[str, str]:
            targets = json.loads(ask(f"{base}/targets"))["data"]["activeTargets"]
            return {target["labels"]["job"]: target["health"] for target in targets}

        found.wait("series in Prometheus", lambda: "vllm_specdec_acceptance_ratio" in names())
        found.wait("scrape of every job", lambda: "unknown" not in jobs().values())
        managers = json.loads(ask(f"{base}/alertmanagers"))["data"]["activeAlertmanagers"]
        series, health = names(), jobs()
        code = found.process.wait(SECONDS)
        return Seen(
            found.said,
            code,
            found.summaries,
            pages,
            series,
            health,
            len(managers),
            alive(children),
            [str(path) for path in found.temporary.rglob("*")],
        )


def test_every_program_is_introduced_and_answers(seen: Seen) -> None:
    """Each has an address, and there is a page at it."""
    assert dict.fromkeys(PROGRAMS, True) == seen.pages


#: What the suggested check is told, as the exporter of the demo is.
SPECULATION = re.escape(""" --spec.config '{"method": "eagle3"}'""")


def test_prometheus_has_the_series(seen: Seen) -> None:
    """Both the simulated server and the exporter are scraped, and the derived series are there."""
    assert seen.jobs == {"vllm": "up", "vllm-specdec-exporter": "up"}
    assert seen.series >= {"vllm_specdec_up", "vllm_specdec_activity", "vllm_specdec_mean_acceptance_length"}
    assert seen.alertmanagers == 1


def test_the_summary_tells_how_it_stands(seen: Seen) -> None:
    """A line soon, then one every two seconds and one at the end, the last with state and values."""
    assert 5 <= len(seen.summaries) <= 6
    assert [line for line in seen.summaries if not line.startswith("[healthy] ")] == []
    assert re.match(
        r"\[healthy\] (HARMFUL|MARGINAL|BENEFICIAL) \d\.\d\dx, [a-z][^,]+, "
        r"acceptance (poor|fair|healthy|optimal), \d+%, mean acceptance length \d\.\d\d$",
        seen.summaries[-1],
    )


def test_a_demo_that_ends_by_itself_leaves_nothing_behind(seen: Seen) -> None:
    """Its code is 0, and neither a process nor a file is left; nothing went wrong on the way."""
    assert (0, set(), []) == (seen.code, seen.left_processes, seen.left_files)
    assert "Traceback" not in seen.said


def test_the_hints_can_be_typed_as_they_stand(seen: Seen) -> None:
    """The two commands that it suggests name the command as it was called, and the addresses in use."""
    assert re.search(
        r"try: curl -s http://127\.0\.0\.1:\d+/metrics \| grep -E 'payoff\|speedup\|recommendation'\n",
        seen.said,
    )
    assert re.search(
        rf"^ +{re.escape(COMMAND)} check http://127\.0\.0\.1:\d+{SPECULATION}\n", seen.said, re.MULTILINE
    )


def test_the_hint_works_however_the_demo_was_started(tmp_path: Path) -> None:
    """Whoever started it by `python -m` can type the suggested command too."""
    with demo(tmp_path, command=(sys.executable, "-m", "vllm_specdec_exporter")) as found:
        found.wait_until_introduced()
        found.wait("hint", lambda: re.search(rf"check http://\S+{SPECULATION}\n", found.said))
        hint = re.search(rf"^ +(\S.*) check http://\S+{SPECULATION}$", found.said, re.MULTILINE)
        assert hint is not None
        done = subprocess.run(
            ["bash", "-c", f"{hint[1]} check --version"], capture_output=True, text=True, timeout=20
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_first_summary_does_not_wait_for_its_turn(tmp_path: Path) -> None:
    """Whoever asked for a line a minute sees after a second that it works."""
    with demo(tmp_path, "--every", "10m") as found:
        found.wait_until_introduced()
        began = time.monotonic()
        found.wait("summary", lambda: found.summaries)
        assert time.monotonic() - began < 5


# --- a demo that is stopped


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
def test_a_demo_that_is_stopped_leaves_nothing_behind(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Ctrl-C, once or twice, and SIGTERM end it with code 0, without a process, a file or a traceback."""
    with demo(tmp_path) as found:
        found.wait_until_introduced()
        children = found.children
        assert len(children) == len(PROGRAMS)
        for number in numbers:
            found.process.send_signal(number)
            time.sleep(0.1)  # a person's second Ctrl-C
        code = found.process.wait(SECONDS)
        assert (set(), []) == (alive(children), list(found.temporary.rglob("*")))
        assert "Traceback" not in found.said
        # The shell's code for an interrupted program is right where even the clearing up was interrupted.
        assert code in ((0,) if len(numbers) == 1 else (0, 130))


def test_a_demo_that_is_stopped_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whoever changes his mind at once is not left with half of it."""
    with demo(tmp_path) as found:
        found.wait("child", lambda: found.children)
        children = found.children
        found.process.send_signal(signal.SIGINT)
        code = found.process.wait(SECONDS)
        assert (set(), []) == (alive(children), list(found.temporary.rglob("*")))
        assert "Traceback" not in found.said
        assert code == 0


_INTERRUPTED = """
import os, signal, time
from vllm_specdec_exporter.ending import Interruption

interruption, said = Interruption(), []
interruption.listen()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    try:
        with interruption.held():
            os.kill(os.getpid(), number)
            said.append("started")
        said.append("too late")
    except KeyboardInterrupt:
        said.append("interrupted")
    try:
        os.kill(os.getpid(), number)
        time.sleep(10)
    except KeyboardInterrupt:
        said.append("at once")
print(*said, sep=", ")
"""


def test_an_interruption_waits_for_the_start_of_a_program_and_for_nothing_else() -> None:
    """Who is interrupted between the start of a child and the note of it would leave it behind."""
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ", ".join(["started, interrupted, at once"] * 3) + "\n"


def test_ports_that_are_taken_are_left_alone(tmp_path: Path) -> None:
    """Where the usual ports are in use, by whomever, the demo finds others and says which."""
    with contextlib.ExitStack() as stack:
        for port in USUAL_PORTS:
            with contextlib.suppress(OSError):  # in use already, which serves as well
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        with demo(tmp_path) as found:
            found.wait_until_introduced()
            ports = {name: found.port(name) for name in PROGRAMS}
            assert dict.fromkeys(PROGRAMS, True) == {name: answers(url) for name, url in found.pages.items()}
            simulator, exporter = (f"http://127.0.0.1:{ports[name]}" for name in PROGRAMS[:2])
            assert f"curl -s {exporter}/metrics" in found.said
            assert f'check {simulator} --spec.config \'{{"method": "eagle3"}}\'\n' in found.said
    assert set() == set(ports.values()) & set(USUAL_PORTS)
    assert len(set(ports.values())) == len(PROGRAMS)


def test_a_program_that_dies_ends_the_demo(tmp_path: Path) -> None:
    """The demo says which one it was, takes the others down, and ends with code 1."""
    with demo(tmp_path, "--every", "500ms") as found:
        found.wait_until_introduced()
        children = found.children
        exporter = next(
            p for p in children if b"serve" in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")
        )
        os.kill(exporter, signal.SIGKILL)
        assert found.process.wait(SECONDS) == 1
        assert "exporter ended by itself with code -9" in found.said
        assert (set(), []) == (alive(children), list(found.temporary.rglob("*")))


# --- usage


USAGE = {
    "duration": (("--for", "12"), '--for "12": a duration needs a unit'),
    "every": (("--every", "x"), '--every "x": a duration needs a unit'),
    "no time between lines": (("--every", "0s"), '--every "0s": at least 0.5s is needed'),
    "too little time between lines": (("--every", "499ms"), '--every "499ms": at least 0.5s is needed'),
    "scenario": (("--scenario", "nonsense"), "unknown scenario 'nonsense'; the scenarios are tour, "),
}


@pytest.mark.parametrize("name", USAGE)
def test_bad_usage_ends_with_2_and_one_line(name: str) -> None:
    """The line says what is allowed, and nothing was started."""
    flags, message = USAGE[name]
    outcome = run("demo", "--for", "2s", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("vllm-specdec-exporter demo: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
