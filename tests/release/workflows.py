"""The workflows as data."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.repository import ROOT, Json, data_of

WORKFLOWS = ROOT / ".github/workflows"


@dataclass(frozen=True)
class Step:
    """A step of a job."""

    workflow: str  # the name of its file, without suffix
    job: str
    says: Json

    @property
    def run(self) -> str:
        """The commands; empty for one that uses an action."""
        return str(self.says.get("run", ""))


def files() -> list[Path]:
    """Return the files of the workflows."""
    return sorted(WORKFLOWS.iterdir())


@cache
def workflow(name: str) -> Json:
    """Return a workflow; its events are under `on`."""
    document = data_of(WORKFLOWS / f"{name}.yml")
    # YAML 1.1, in which `on` is true.
    document["on"] = document.pop(True)
    return document


def jobs() -> list[tuple[str, str, Json]]:
    """Return all jobs: the name of the workflow, the identifier, the job."""
    listed = []
    for path in files():
        of_workflow = workflow(path.stem)["jobs"]
        listed += [(path.stem, name, job) for name, job in of_workflow.items()]
    return listed


def steps() -> list[Step]:
    """Return all steps."""
    listed = []
    for where, name, job in jobs():
        listed += [Step(where, name, step) for step in job.get("steps", ())]
    return listed
