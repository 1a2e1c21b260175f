"""The workflows as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from release.tree import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"


@dataclass(frozen=True)
class Step:
    """A step of a job."""

    workflow: str  # the name of its file, without suffix
    job: str
    says: Mapping[str, Any]

    @property
    def run(self) -> str:
        """The commands; empty for one that uses an action."""
        return str(self.says.get("run", ""))


def files() -> list[Path]:
    """Return the files of the workflows."""
    return sorted(WORKFLOWS.iterdir())


@cache
def workflow(name: str) -> dict[str, Any]:
    """Return a workflow; its events are under `on`."""
    document = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text("utf-8"))
    # YAML 1.1, in which `on` is true.
    return {"on" if key is True else key: value for key, value in document.items()}


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    """Return all jobs: the name of the workflow, the identifier, the job."""
    return [
        (path.stem, name, job)
        for path in files()
        for name, job in workflow(path.stem)["jobs"].items()
    ]


def steps() -> list[Step]:
    """Return all steps."""
    return [
        Step(where, name, step)
        for where, name, job in jobs()
        for step in job.get("steps", ())
    ]
