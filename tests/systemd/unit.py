"""The systemd unit and its environment file, as systemd reads them."""

import re
import shlex
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "exporter" / "systemd"
UNIT = FOLDER / "vllm-specdec-exporter.service"
ENVIRONMENT = FOLDER / "vllm-specdec-exporter.env"


def settings(section: str = "Service") -> dict[str, list[str]]:
    """Return the values of a section's settings; a setting may stand there several times."""
    found: dict[str, list[str]] = {}
    inside = ""
    for line in UNIT.read_text("utf-8").splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            inside = header[1]
        elif inside == section and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def only(name: str) -> str:
    """Return the value of a setting that stands there once."""
    (value,) = settings()[name]
    return value


def environment(text: str) -> dict[str, str]:
    """Return what an environment file sets: quotes as in a shell, but nothing is expanded."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", ";"))]
    pairs = [line.partition("=") for line in lines]
    return {name: "".join(shlex.split(value)) for name, _, value in pairs}


def offered() -> str:
    """Return the environment file with the settings that it offers in comments put in force."""
    return re.sub(r"^#(?=[A-Z_]+=)", "", ENVIRONMENT.read_text("utf-8"), flags=re.MULTILINE)
