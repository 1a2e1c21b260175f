"""Values of an earlier chart still render, in both ways of upgrading that NOTES and
deployment.md name.
"""

import subprocess
from pathlib import Path

import pytest

from support.repository import ROOT, data_of

from .charts import CHART, render
from .manifest_schemas import title
from .value_cases import at, merged

_CHART = CHART.relative_to(ROOT).as_posix()
#: What the chart links to.
_PARTS = (_CHART, "alerts/rules", "alerts/templates", "dashboards/json")


def _git(*arguments: str) -> bytes:
    return subprocess.run(
        ("git", "-C", ROOT, *arguments), capture_output=True, check=True
    ).stdout


def test_a_release_can_be_upgraded(tmp_path: Path) -> None:
    """With `-f values.yaml`, and with the values of the release, which
    --reset-then-reuse-values takes.

    From the chart of the newest tag; without one, as it was before the last change to
    its values.
    """
    try:
        commits = _git("tag", "--list", "v*", "--sort=-version:refname").split()
        if not commits:
            values_file = f"{_CHART}/values.yaml"
            commits = _git("log", "-1", "--format=%H~", values_file).split()
        archive = _git("archive", commits[0].decode(), *_PARTS)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip(
            "no git, or no history: an unpacked source distribution or a shallow clone"
        )
    subprocess.run(
        ("tar", "--extract", "--directory", tmp_path), input=archive, check=True
    )
    earlier = tmp_path / _CHART
    files = sorted(earlier.glob("ci/*.yaml"))
    assert len(files) >= 3
    deleted = {}
    for file in files:
        values = data_of(file)
        old = set(map(title, render(values, chart=earlier)))
        flagged = merged(values, at(commonLabels__team="inference"))
        for way, new in (("file", values), ("flags", flagged)):
            if gone := old - set(map(title, render(new))):
                deleted[file.name, way] = gone
    assert deleted == {}
