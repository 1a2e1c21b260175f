"""The systemd unit and its environment file, as systemd reads them."""

import re
import shlex
from pathlib import Path

from support.programs import COMMAND
from support.repository import ROOT, text_of

FOLDER = ROOT / "exporter/systemd"
UNIT = FOLDER / "vllm-specdec-exporter.service"
ENVIRONMENT = FOLDER / "vllm-specdec-exporter.env"


def only(name: str) -> str:
    """Return the value of a setting of the service, which stands there once."""
    section = text_of(UNIT).partition("\n[Service]\n")[2].partition("\n[")[0]
    (value,) = re.findall(rf"(?m)^{name}=(.*)$", section)
    return str(value)


def environment(text: str) -> dict[str, str]:
    """Return what an environment file sets: quotes as in a shell, but nothing is
    expanded.
    """
    lines = [
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith(("#", ";"))
    ]
    pairs = [line.partition("=") for line in lines]
    return {name: "".join(shlex.split(value)) for name, _, value in pairs}


def offered() -> str:
    """Return the environment file with the settings that it offers in comments put in
    force.
    """
    return re.sub(r"(?m)^#(?=[A-Z_]+=)", "", text_of(ENVIRONMENT))


def unit_here(folder: Path) -> Path:
    """Write the unit with the program of this environment in the place of that in
    /opt.
    """
    path = folder / UNIT.name
    path.write_text(text_of(UNIT).replace(only("ExecStart"), COMMAND), encoding="utf-8")
    return path
