"""`demo`: the real command with the Prometheus and Alertmanager that are installed."""

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.commands import run
from support.programs import (
    COMMAND,
    answers,
    clean_environment,
    eventually,
    find_program,
)

SECONDS = 180.0
PROGRAMS = ("simulated vLLM", "exporter", "Prometheus", "Alertmanager")
USUAL_PORTS = (8000, 9850, 9090, 9093)
#: What the suggested check is told, as the exporter of the demo is.
SPECULATION = re.escape(
    """ --spec.config '{"method": "eagle3"}' --cost.hardware h100 --cost.model 8B"""
)


@dataclass
class Demo:
    """A demo that runs, what it has said so far, and the folder for its temporary
    files.
    """

    process: subprocess.Popen[bytes]
    log: Path
    temporary: Path

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    @property
    def pages(self) -> dict[str, str]:
        """The address of each program, as printed."""
        return dict(
            re.findall(r"^  (\w[\w ]*?) +(http://\S+)$", self.said, re.MULTILINE)
        )

    @property
    def children(self) -> set[int]:
        """The processes that it started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if path.exists():
            return {int(pid) for pid in path.read_text().split()}
        return set()

    @property
    def summaries(self) -> list[str]:
        """The lines that it prints as time goes by, without their time."""
        return re.findall(r"^\d\d:\d\d:\d\d  (.*)$", self.said, re.MULTILINE)

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until something holds, while the demo runs."""

        def holds() -> object:
            assert self.process.poll() is None, f"the demo ended: {self.said}"
            return condition()

        eventually(holds, SECONDS)

    def ends(self, *signals: int) -> int:
        """Stop it, see that neither a process, a file nor a traceback is left, and
        return its code.
        """
        children = self.children
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.1)  # a person's second Ctrl-C
        code = self.process.wait(SECONDS)
        assert {pid for pid in children if Path(f"/proc/{pid}").exists()} == set()
        assert list(self.temporary.rglob("*")) == []
        assert "Traceback" not in self.said
        return code


@contextlib.contextmanager
def demo(
    folder: Path,
    *flags: str,
    command: Sequence[str] = (COMMAND,),
    introduced: bool = True,
) -> Iterator[Demo]:
    """Run a demo, with temporary files in `folder`, once it has introduced itself."""
    for program in ("prometheus", "prometheus-alertmanager"):
        find_program(program, program)
    temporary = folder / "tmp"
    log = folder / "log"
    temporary.mkdir()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "demo", *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=clean_environment(TMPDIR=str(temporary)),
        )
    running = Demo(process, log, temporary)
    try:
        if introduced:
            running.wait(lambda: "\n  try: " in running.said)
        yield running
    finally:
        children = running.children
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            for pid in (*children, process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


@pytest.mark.full
def test_every_program_has_a_free_port_and_prometheus_has_the_series(
    tmp_path: Path,
) -> None:
    """Where the usual ports are in use, by whomever, the demo finds others and says
    which.

    Each program has a page; simulated server and exporter are scraped; whoever asked
    for a line every ten minutes sees one at once all the same. Ctrl-C twice leaves
    nothing behind.
    """
    with contextlib.ExitStack() as stack:
        for port in USUAL_PORTS:
            with contextlib.suppress(OSError):  # in use already, which serves as well
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        running = stack.enter_context(demo(tmp_path, "--every", "10m"))
        assert set(running.pages) == set(PROGRAMS)
        running.wait(lambda: all(answers(url) for url in running.pages.values()))
        assert len(running.children) == len(PROGRAMS)
        ports = {urllib.parse.urlsplit(url).port for url in running.pages.values()}
        assert len(ports - set(USUAL_PORTS)) == len(PROGRAMS)
        simulator, exporter = (running.pages[name].rstrip("/") for name in PROGRAMS[:2])
        assert f"curl -s {exporter}/metrics" in running.said
        assert (
            f"check {simulator.removesuffix('/metrics')} --spec.config" in running.said
        )
        base = (
            f"http://{urllib.parse.urlsplit(running.pages['Prometheus']).netloc}/api/v1"
        )

        def api(path: str) -> list[dict[str, str]]:
            with urllib.request.urlopen(f"{base}/{path}", timeout=120) as answer:
                data = json.load(answer)["data"]
            return list(data if isinstance(data, list) else next(iter(data.values())))

        query = urllib.parse.urlencode({"match[]": '{__name__=~"vllm_specdec_.+"}'})
        wanted = {
            "vllm_specdec_up",
            "vllm_specdec_activity",
            "vllm_specdec_mean_acceptance_length",
        }
        running.wait(
            lambda: wanted <= {series["__name__"] for series in api(f"series?{query}")}
        )
        jobs = {"vllm": "up", "vllm-specdec-exporter": "up"}
        running.wait(
            lambda: (
                jobs
                == {
                    target["labels"]["job"]: target["health"]
                    for target in api("targets")
                }
            )
        )
        assert len(api("alertmanagers")) == 1
        running.wait(lambda: running.summaries)
        # The shell's code for an interrupted program is right where the second one
        # interrupted the clean-up.
        assert running.ends(signal.SIGINT, signal.SIGINT) in (0, 130)


@pytest.mark.full
def test_a_demo_that_ends_by_itself_tells_how_it_stands_and_what_to_try(
    tmp_path: Path,
) -> None:
    """A line soon, then one every second and one at the end, the last with state and
    values.

    The commands that it suggests can be typed as they stand, also by whoever started it
    by `python -m`.
    """
    module = (sys.executable, "-m", "vllm_specdec_exporter")
    with demo(tmp_path, "--for=6s", "--every=1s", command=module) as running:
        assert running.ends() == 0
        said = running.said
        summaries = running.summaries
    assert len(summaries) >= 3
    assert [line for line in summaries if not line.startswith("[healthy] ")] == []
    assert re.match(
        r"\[healthy\] ((HARMFUL|MARGINAL|BENEFICIAL) \d\.\d\dx|LIKELY BENEFICIAL "
        r"\(\d.+\d\)), [a-z][^,]+, "
        r"acceptance (poor|fair|healthy|optimal), \d+%, mean acceptance length "
        r"\d\.\d\d$",
        summaries[-1],
    )
    exporter = running.pages["exporter"].rstrip("/")
    assert (
        f"try: curl -s {exporter}/metrics | grep -E 'payoff|speedup|recommendation'\n"
        in said
    )
    hint = re.search(
        rf"^ +(\S.*) check http://127\.0\.0\.1:\d+{SPECULATION}$", said, re.MULTILINE
    )
    assert run("-c", f"{hint[1]} check --version", command=("bash",)).code == 0


@pytest.mark.full
def test_a_demo_that_is_stopped_while_it_starts_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    """Whoever changes his mind at once is not left with half of it."""
    with demo(tmp_path, introduced=False) as running:
        running.wait(lambda: running.children)
        assert running.ends(signal.SIGTERM) == 0


@pytest.mark.full
def test_a_program_that_dies_ends_the_demo(tmp_path: Path) -> None:
    """The demo says which one it was, takes the others down, and ends with code 1."""
    with demo(tmp_path, "--every", "500ms") as running:
        commands = {
            pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            for pid in running.children
        }
        os.kill(
            next(pid for pid, command in commands.items() if b"serve" in command),
            signal.SIGKILL,
        )
        assert running.ends() == 1
        assert "exporter exited with code -9" in running.said


# --- without programs


_INTERRUPTED = """
import os, signal, time
from vllm_specdec_exporter.runtime.shutdown import Interruption

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


def test_an_interruption_waits_for_the_start_of_a_program_and_for_nothing_else() -> (
    None
):
    """Who is interrupted between the start of a child and the note of it would leave it
    behind.
    """
    outcome = run("-c", _INTERRUPTED, command=(sys.executable,))
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out == ", ".join(["started, interrupted, at once"] * 3) + "\n"
