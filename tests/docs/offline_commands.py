"""Commands that no test can run, and what its tool can check of each without a server.

A page marks a block with one of them as not run, and no other block.
"""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docker.compose import document, services
from support.calibrated import calibrated_file
from support.programs import COMMAND
from support.repository import text_of
from vllm_specdec_exporter import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from docs.running import Machine

_IMAGE = re.compile(r"vllm-specdec-exporter:(\S+?)(,|$)")


class CheckError(AssertionError):
    """Something is wrong with a command."""


def _docker(machine: Machine, command: list[str]) -> None:
    """Images have this version; what follows one are our flags; compose has what is
    named.
    """
    for word in command:
        if image := _IMAGE.search(word):
            _demand(image[1] == __version__, command, f"the version is {__version__}")
    if command[1] == "run":
        image = next(index for index, word in enumerate(command) if _IMAGE.search(word))
        _run(machine, COMMAND, *command[image + 1 :], "--config.check")
    elif command[1] == "compose":
        arguments = {"up", "down", "logs", *services()}
        for service in document()["services"].values():
            arguments.update(service.get("profiles", []))
        names = {word for word in command[2:] if not word.startswith("-")}
        what_there_is = f"subcommands, profiles and services are {arguments}"
        _demand(names <= arguments, command, what_there_is)
    else:
        declared = re.findall(r"(?m)^ARG (\w+)", text_of("Dockerfile"))
        for flag, word in itertools.pairwise(command):
            is_declared = flag != "--build-arg" or word.partition("=")[0] in declared
            _demand(is_declared, command, f"Dockerfile does not declare {word}")


def _kubectl(machine: Machine, command: list[str]) -> None:
    """It gets as far as the connection to a missing cluster; objects that it creates
    are made offline.
    """
    if command[1:3] == ["apply", "-f"]:
        _demand(
            (machine.folder / command[3]).is_file(), command, "there is no such file"
        )
    if "create" in command and "--dry-run=server" not in command:
        _run(machine, *command, "--dry-run=client", "--output=name")
        return
    done = machine.completed(shlex.join(command))
    output = done.stdout + done.stderr
    _demand("refused" in output, command, output)


def _helm(machine: Machine, command: list[str]) -> None:
    """The chart renders with these values, beside those of an existing release."""
    kept = "--reset-then-reuse-values"
    arguments = [word for word in command[2:] if word not in ("--install", kept)]
    if kept in command:
        arguments += ["--set", "podMonitor.enabled=true"]
    printed = machine.shell(shlex.join(["helm", "template", *arguments]))
    _demand("kind:" in printed, command, "it makes no objects")


def _calibrate(machine: Machine, command: list[str]) -> None:
    """The flags are those of the command; a profile is put where it would write one."""
    _run(machine, COMMAND, *command[1:], "--dry-run")
    shutil.copy(calibrated_file(), machine.folder / command[command.index("--out") + 1])


@dataclass(frozen=True)
class Unavailable:
    """A kind of command: its words with single spaces, and what is done instead of
    running it, if any.
    """

    command: re.Pattern[str]
    check: Callable[[Machine, list[str]], None] | None


class _Kinds(tuple[Unavailable, ...]):
    __slots__ = ()

    def of(self, command: Iterable[str]) -> Unavailable | None:
        """Return the first kind that a command is of; `None` for one that can be
        run.
        """
        text = f"{' '.join(command)} "
        return next((kind for kind in self if kind.command.match(text)), None)


KINDS = _Kinds(
    Unavailable(re.compile(pattern), check)
    for pattern, check in (
        (r"docker ", _docker),
        (r"(sudo )?(systemctl|journalctl) |vllm serve ", None),
        (r"kubectl (?!kustomize )", _kubectl),
        (r"helm (install|upgrade)( --install)? \S+ (?!helm/)", None),
        (r"helm (install|upgrade) ", _helm),
        (r"make (test|test-vllm|check|lint|bench|pictures|dist|generate)\b", None),
        (r"npm run |python tests/dashboards/render/bundle.py", None),
        (r"bash tests/vllm/install.sh", None),
        (r"pytest -m vllm ", None),
        (r"vllm-specdec-exporter calibrate (?!.*--dry-run)", _calibrate),
    )
)


def _run(machine: Machine, *command: str) -> None:
    machine.shell(machine.put_here(shlex.join(command)))


def _demand(condition: bool, command: list[str], why: str) -> None:
    if not condition:
        msg = f"$ {shlex.join(command)}\n{why}"
        raise CheckError(msg)
