"""Shell blocks run as a reader would, in a folder of their own that looks like a copy
of the repository.

Addresses become those of the `Services`, absolute folders become folders below `root/`,
and times of minutes become seconds. Everything else is as on the page. Programs that
serve run until their block ends.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from docs.machine_folder import NOWHERE, set_up
from docs.offline_commands import KINDS, CheckError
from docs.services import ACT, EXPORTER, PLAIN, Services
from docs.shell import logical_lines, simple_commands
from support.ports import free_port
from support.programs import COMMAND
from vllm_specdec_exporter.commands.table import COMMANDS, PROGRAM

_SECONDS = 300.0
_START_SECONDS = 120.0
#: Programs that serve, and their flags of address and data.
_SERVERS = {
    "prometheus": (
        "--web.listen-address={address}",
        "--storage.{mode}.path={folder}/data-{port}",
    ),
    "vmagent": (
        "-httpListenAddr={address}",
        "-remoteWrite.tmpDataPath={folder}/data-{port}",
    ),
    "vmalert": ("-httpListenAddr={address}",),
}
_SERVING = {"serve": EXPORTER[0], "act": ACT[0], "simulate": "127.0.0.1:8000"}
_LISTEN = re.compile(r"(?P<flag>--web\.listen-address[ =])[\w.]*:(?P<port>\d+)")
_ABSOLUTE = re.compile(r"(?<![\w.:/}-])/(?=(?:opt|etc|var|run|usr/local)/)")
_URL = re.compile(r"(?P<scheme>https?)://(?P<authority>[\w.-]+(?::\d+)?)")
#: Commands that only print: where several pages have one, it runs once.
_PRINTING = re.compile(rf"{PROGRAM} (?:check|compare) (?!.*(?:--out|[>|]))")
_EXAMPLE = re.compile(r"\.example\.com(:\d+)?$|^10\.")


class Machine:
    """A folder in which one block runs.

    Args:
        folder: an empty folder, or one to be made.
        services: what the pages assume to run.
        openai: host:port of a server that answers prompts, for this block alone.
    """

    def __init__(self, folder: Path, services: Services, openai: str = "") -> None:
        self.folder = folder
        self._services = services
        self._openai = openai
        self._addresses = dict(services.addresses)
        self._exports: list[str] = []
        self.environment = set_up(folder, services)

    def run(self, text: str) -> str:
        """Run a block, and return what it printed."""
        printed = []
        with contextlib.ExitStack() as servers:
            for line in map(_with_few_requests, logical_lines(text)):
                commands = list(simple_commands(line))
                unavailable = [
                    (kind, command)
                    for command in commands
                    if (kind := KINDS.of(command))
                ]
                if not commands:  # a variable, as an environment file has it
                    self._exports.append(f"export {line}")
                    printed.append(self.shell(f"{PROGRAM} --config.check"))
                elif unavailable:
                    for kind, command in unavailable:
                        if kind.check is not None:
                            kind.check(self, command)
                elif serving := self._serving(commands[-1]):
                    servers.enter_context(self._served(line, commands[-1], serving))
                elif not self._was_printed(script := self.put_here(line)):
                    printed.append(self.shell(script))
                if line.startswith("export "):
                    self._exports.append(line)
        return "".join(printed)

    def _was_printed(self, command: str) -> bool:
        """Return whether another block has run a command that only prints, and note
        it.
        """
        was_printed = command in self._services.printed
        if _PRINTING.match(command):
            self._services.printed.add(command)
        return was_printed

    def shell(self, line: str, **more: str) -> str:
        """Run a line, and return what it printed."""
        script = "\n".join(
            ("set -euo pipefail", *map(self.put_here, self._exports), line)
        )
        with subprocess.Popen(
            ("bash", "-c", script),
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, errors = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)
                msg = f"$ {line}\nit takes more than {_SECONDS:g} s"
                raise CheckError(msg) from error
        if process.returncode:
            msg = (
                f"$ {line}\nexit code {process.returncode}\n"
                f"{out[-1500:]}{errors[-1500:]}"
            )
            raise CheckError(msg)
        return out

    def completed(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line that may fail."""
        return subprocess.run(
            ("bash", "-c", self.put_here(line)),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )

    def python(self, text: str) -> str:
        """Run Python code, and return what it printed."""
        (self.folder / "block.py").write_text(self.put_here(text), encoding="utf-8")
        return self.shell("python -W error block.py")

    def put_here(self, line: str) -> str:
        """Return a line with the addresses, folders and times of this machine."""
        line = _ABSOLUTE.sub(f"{self.folder}/root/", line)
        line = re.sub(r"(\bcheck\b.*|\bcompare\b.*)--for \w+", r"\1--for 1s", line)
        line = re.sub(
            r"(\bbaseline\b.*)--for \w+", r"\1--for 6s --interval 250ms", line
        )
        line = re.sub(r"\bsudo ", "", line)
        line = re.sub(r"^make demo", 'make demo ARGS="--for 2s"', line)
        return _URL.sub(lambda match: self._address(match, line), line)

    def _address(self, match: re.Match[str], line: str) -> str:
        authority = match["authority"]
        if self._openai and re.search(r"\bsweep\b", line):
            return f"http://{self._openai}"
        if re.search(r"/v1/(chat/)?completions", line):
            return self._services.answering
        if re.search(r"\bbaseline ", line) and authority == "127.0.0.1:8000":
            authority = PLAIN[0]  # the page says that speculation is off there
        if authority in self._addresses:
            return f"{match['scheme']}://{self._addresses[authority]}"
        if authority == NOWHERE:
            return match[0]
        if _EXAMPLE.search(authority):
            if ":" in authority:
                return f"{match['scheme']}://{NOWHERE}"
            return match[0]
        msg = (
            f"$ {line}\nno service has the address {authority}: it belongs into "
            "docs/services.py"
        )
        raise CheckError(msg)

    # --- programs that serve

    def _serving(self, command: list[str]) -> str:
        """Return the command or program that a command is if it serves, else an empty
        text.
        """
        if command[0] in _SERVERS:
            return command[0]
        if (
            Path(command[0]).name != PROGRAM
            or "--config.check" in command
            or "--help" in command
        ):
            return ""
        if len(command) > 1 and command[1] in COMMANDS:
            name = command[1]
        else:
            name = "serve"
        if name in _SERVING:
            return name
        return ""

    @contextlib.contextmanager
    def _served(self, line: str, command: list[str], serving: str) -> Iterator[None]:
        """Run a line that serves until the end of the context; others find it under its
        usual address.
        """
        port = free_port()
        address = f"127.0.0.1:{port}"
        more = {}
        # it runs beside what follows, `&` or not
        code = line.partition(" #")[0].rstrip(" &")
        if serving in _SERVERS:
            mode = "tsdb"
            if "agent" in code:
                mode = "agent"
            flags = [
                flag.format(address=address, folder=self.folder, port=port, mode=mode)
                for flag in _SERVERS[serving]
            ]
            code = f"{code} {' '.join(flags)}"
        else:
            if listen := _LISTEN.search(code):
                self._addresses[f"127.0.0.1:{listen['port']}"] = address
                code = _LISTEN.sub(rf"\g<flag>{address}", code)
            elif serving == "serve":
                more["VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS"] = address
            else:
                code = f"{code} --web.listen-address {address}"
            if serving == "simulate" and "--speed" not in code:
                # what takes minutes on the page takes seconds here
                code = f"{code} --speed 10"
            code = re.sub(
                r"(--tap\.listen-address )\S*", rf"\g<1>127.0.0.1:{free_port()}", code
            )
        start = self.put_here(code).strip()
        # a wrapper would outlive a signal; a block that sets PATH has its own program
        if not self._exports:
            start = re.sub(rf"^{PROGRAM} ", f"{shlex.quote(COMMAND)} ", start)
        script = "\n".join((*map(self.put_here, self._exports), f"exec {start}"))
        with (self.folder / f"log-{port}").open("w+") as log:
            process = subprocess.Popen(
                ("bash", "-c", script),
                cwd=self.folder,
                env={**self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                end = time.monotonic() + _START_SECONDS
                while not _listens(port):
                    if process.poll() is not None or time.monotonic() > end:
                        log.seek(0)
                        msg = f"$ {line}\nit does not serve: {log.read()[-1500:]}"
                        raise CheckError(msg)
                    time.sleep(0.05)
                if serving in _SERVING and not _LISTEN.search(line):
                    self._addresses[_SERVING[serving]] = address
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _listens(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=1),
    ):
        return True
    return False


def _with_few_requests(line: str) -> str:
    line = re.sub(r" --requests \d+", "", line)
    return re.sub(r"(-exporter sweep \S+)", r"\1 --requests 2", line)
