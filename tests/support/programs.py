"""Programs that tests start: found or refused with a name to install, on a free port,
awaited, ended.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from support.ports import free_port

T = TypeVar("T")

#: The console script, as installed beside the Python that runs the tests.
COMMAND = str(Path(sys.executable).with_name("vllm-specdec-exporter"))

#: How long a program may take to start and to end: far more than it needs on a busy
#: machine.
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class ProgramError(RuntimeError):
    """There is no such program, or it did not do what it was told."""


def find_program(name: str, package: str) -> str:
    """Return the path of a program."""
    path = shutil.which(name)
    if path is None:
        msg = (
            f"{name} is missing: install the Debian package {package} (apt-get install "
            f"{package})"
        )
        raise ProgramError(msg)
    return path


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without anything that would set the command up or colour it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("VLLM_SPECDEC_EXPORTER_")
        and name not in ("NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


def answers(url: str) -> bool:
    """Tell whether an address answers with success."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def eventually(condition: Callable[[], T], within: float = 180.0) -> T:
    """Return what `condition` returns once that is true; fail when it takes longer than
    `within` seconds.
    """
    deadline = time.monotonic() + within
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, (
            f"did not happen within {within:g} s: {condition}"
        )
        time.sleep(0.03)


def write_script(path: Path, text: str) -> None:
    """Write a program for /bin/sh; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def printed(*command: str | Path, given: str = "", **options: Any) -> str:
    """Run a command to its end, and return what it printed; fail where it fails.

    `given` is its standard input; options are those of `subprocess.run`.
    """
    options = {"timeout": 600.0, **options}
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


class Program:
    """A program that answers over HTTP, on a free port, from entering to leaving the
    context.

    In a word of the command `{address}` is host and port, `{port}` the port alone,
    `{folder}` a folder of its own with the `files`; `ready` is a path that answers with
    success once it is ready.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        ready: str,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._ready = ready
        self._files = files or {}
        self._environment = environment
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.address = ""
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.folder = Path(
            self._stack.enter_context(
                tempfile.TemporaryDirectory(prefix="test-program-")
            )
        )
        for name, text in self._files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        self.again()

    def again(self) -> None:
        """Start it in its folder as it was left, and wait until it is ready."""
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        command = [
            word.replace("{address}", self.address)
            .replace("{port}", self.address.rpartition(":")[2])
            .replace("{folder}", str(self.folder))
            for word in self._command
        ]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        try:
            while not answers(self.url + self._ready):
                if self._process.poll() is not None or time.monotonic() > end:
                    msg = f"{Path(command[0]).name} did not start: {self.log()[-2000:]}"
                    raise ProgramError(msg)
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and remove what it stored."""
        process = self._process
        self._process = None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stack.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal that ends it; return its exit code.

        What it stored and logged stays.
        """
        self._process.send_signal(number)
        return self._process.wait(STOP_SECONDS)

    def log(self) -> str:
        """Return what it logged."""
        return (self.folder / "log").read_text("utf-8", "replace")


@contextlib.contextmanager
def process(program: str, *flags: str, package: str, ready: str) -> Iterator[str]:
    """Run an installed program, and yield its URL once `ready` answers; flags as words
    of `Program`.
    """
    with Program([find_program(program, package), *flags], ready=ready) as running:
        yield running.url


@contextlib.contextmanager
def simulator(*flags: str) -> Iterator[str]:
    """Run `simulate` on a free port, and yield its URL once it answers."""
    command = [COMMAND, "simulate", "--web.listen-address", "{address}", *flags]
    with Program(command, ready="/metrics", environment=clean_environment()) as running:
        yield running.url
