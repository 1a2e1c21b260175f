"""The Dockerfile as data: stages, instructions, and what they say."""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from string import Template

from support.repository import ROOT, text_of

DOCKERFILE = ROOT / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    name: str  # in capitals, such as ``COPY``
    text: str  # what follows, on one line

    @property
    def flags(self) -> dict[str, str]:
        """The flags before the arguments, such as ``from`` of ``COPY --from=...``."""
        return dict(
            re.findall(r"--([a-z-]+)=(\S+)", self.text.removesuffix(self.arguments))
        )

    @property
    def arguments(self) -> str:
        """What follows the flags."""
        return re.sub(r"^(--[a-z-]+=\S+ )*", "", self.text)

    @property
    def argv(self) -> list[str]:
        """The arguments of the exec form, which is JSON; ValueError for the shell
        form.
        """
        return list(json.loads(self.arguments.removeprefix("CMD ")))


@dataclass(frozen=True)
class Stage:
    """One stage."""

    name: str  # after ``AS``; empty for the last one
    base: str  # what it begins with, arguments filled in
    platform: str  # that of ``FROM``, empty for the target's
    #: All but ``FROM``.
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, name: str) -> list[Instruction]:
        """Return the instructions of a name."""
        return [
            instruction for instruction in self.instructions if instruction.name == name
        ]

    def one(self, name: str) -> Instruction:
        """Return the only instruction of a name."""
        (instruction,) = self.all(name)
        return instruction

    @property
    def environment(self) -> dict[str, str]:
        """What ``ENV`` sets, unexpanded."""
        text = " ".join(instruction.text for instruction in self.all("ENV"))
        return dict(pair.split("=", 1) for pair in text.split())


def _instructions(text: str) -> list[Instruction]:
    lines = [
        line
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    instructions = []
    for line in joined.splitlines():
        name, _, argument = line.partition(" ")
        instructions.append(Instruction(name.upper(), argument.strip()))
    return instructions


@cache
def stages() -> tuple[Stage, ...]:
    """Return the stages of the committed Dockerfile, in order."""
    arguments = {}
    listed = []
    for instruction in _instructions(text_of(DOCKERFILE)):
        if instruction.name == "ARG" and not listed:
            name, _, default = instruction.text.partition("=")
            arguments[name] = default
        elif instruction.name == "FROM":
            base, _, name = instruction.arguments.partition(" AS ")
            base = Template(base).substitute(arguments)
            listed.append(Stage(name, base, instruction.flags.get("platform", "")))
        else:
            listed[-1].instructions.append(instruction)
    return tuple(listed)


def stage(name: str) -> Stage:
    """Return the stage of a name; the last one has none."""
    (named,) = (candidate for candidate in stages() if candidate.name == name)
    return named


def copied() -> list[str]:
    """Return every source that is copied from the build context."""
    sources = []
    for stage in stages():
        for copy in stage.all("COPY"):
            if "from" not in copy.flags:
                sources += copy.arguments.split()[:-1]
    return sources
