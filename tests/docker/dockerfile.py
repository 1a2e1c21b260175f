"""The Dockerfile as data: stages, instructions, and what they say."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[2]
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
    instructions: tuple[Instruction, ...]  # all but ``FROM``

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
        pairs = [
            pair for instruction in self.all("ENV") for pair in instruction.text.split()
        ]
        return dict(pair.split("=", 1) for pair in pairs)


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
    arguments: dict[str, str] = {}
    listed: list[tuple[str, str, str, list[Instruction]]] = []
    for instruction in _instructions(DOCKERFILE.read_text("utf-8")):
        if instruction.name == "ARG" and not listed:
            name, _, default = instruction.text.partition("=")
            arguments[name] = default
        elif instruction.name == "FROM":
            base, _, name = instruction.arguments.partition(" AS ")
            listed.append(
                (
                    name,
                    Template(base).substitute(arguments),
                    instruction.flags.get("platform", ""),
                    [],
                )
            )
        else:
            listed[-1][3].append(instruction)
    return tuple(
        Stage(name, base, platform, tuple(inside))
        for name, base, platform, inside in listed
    )


def stage(name: str) -> Stage:
    """Return the stage of a name; the last one has none."""
    (named,) = (candidate for candidate in stages() if candidate.name == name)
    return named


def copied() -> list[str]:
    """Return every source that is copied from the build context."""
    copies = [
        copy
        for stage_ in stages()
        for copy in stage_.all("COPY")
        if "from" not in copy.flags
    ]
    return [source for copy in copies for source in copy.arguments.split()[:-1]]
