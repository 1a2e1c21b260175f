"""What the workflows call, as far as it runs without a registry or a container
engine.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from release.tree import succeed
from release.workflows import steps, workflow
from support.programs import write_script
from support.published import REGISTRY
from support.repository import ROOT
from vllm_specdec_exporter import __version__

pytestmark = pytest.mark.full

SECRET = "not-on-a-command-line"


def programs(folder: Path, bodies: dict[str, str]) -> Path:
    """Write programs that stand for an engine and a registry, which are not here;
    return their folder.
    """
    for name, body in bodies.items():
        write_script(folder / name, body)
    return folder


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A folder of programs that print how they were called."""
    body = 'printf "%s\\n" "${0##*/}" "$@"\necho "stdin: $(cat)"\n'
    return programs(tmp_path / "programs", {"docker": body, "helm": body})


def path(folder: Path) -> str:
    """Return PATH with a folder before all others."""
    return f"{folder}:{os.environ['PATH']}"


# --- logging in


def login(
    program: str, recording: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Log in, with these variables only."""
    return subprocess.run(
        [ROOT / "release/login.sh", program],
        env={"PATH": path(recording), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


ROBOT = {
    "REGISTRY_USER": "robot",
    "REGISTRY_PASSWORD": SECRET,
    "WORKFLOW_TOKEN": "other",
}
TOKEN = {
    "REGISTRY_USER": "",
    "REGISTRY_PASSWORD": "",
    "GITHUB_ACTOR": "me",
    "WORKFLOW_TOKEN": SECRET,
}


@pytest.mark.parametrize("command", ["docker login", "helm registry login"])
@pytest.mark.parametrize(
    ("variables", "user"), [(ROBOT, "robot"), (TOKEN, "me")], ids=["robot", "token"]
)
def test_it_logs_in_to_the_host(
    recording: Path, command: str, variables: dict[str, str], user: str
) -> None:
    """Of the registry, without its path; the password goes through standard input."""
    registry = "registry.example.com/team/a"
    program = command.partition(" ")[0]
    done = login(program, recording, IMAGE_REGISTRY=registry, **variables)
    assert done.returncode == 0, done.stderr
    *called, password = done.stdout.splitlines()
    options = f"--username {user} --password-stdin"
    assert " ".join(called) == f"{command} registry.example.com {options}"
    assert password == f"stdin: {SECRET}"


REGISTRY_ONLY = {"IMAGE_REGISTRY": "a.example.com"}
WITHOUT_SECRET = {**REGISTRY_ONLY, "REGISTRY_USER": "robot"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "IMAGE_REGISTRY is not set"),
        ({"IMAGE_REGISTRY": ""}, "IMAGE_REGISTRY is not set"),
        (WITHOUT_SECRET, "the secret is needed too"),
        ({**WITHOUT_SECRET, "WORKFLOW_TOKEN": SECRET}, "the secret is needed too"),
        (REGISTRY_ONLY, "GITHUB_ACTOR"),
    ],
)
def test_what_is_missing_is_said(
    recording: Path, variables: dict[str, str], message: str
) -> None:
    """Before anything is called; the workflow's token goes to no registry that has a
    user of its own.
    """
    done = login("docker", recording, **variables)
    assert done.returncode != 0
    assert message in done.stderr
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
    "image push",
    "image tag",
    "chart push",
    "release index",
    "release github",
)


def test_what_publishes_is_rehearsed(tree: Path, tmp_path: Path) -> None:
    """Every command of the jobs that push, tag, sign and release runs, in order, and
    names what was built.
    """
    calls = tmp_path / "calls"
    output = tmp_path / "output"
    record = f'echo "${{0##*/}}" "$@" >>{calls}\n'
    bodies = {
        name: record + _ANSWERS.get(name, "")
        for name in ("cosign", "docker", "gh", "helm")
    }
    folder = programs(tmp_path / "programs", bodies)
    # needs a container engine
    (tree / "release/smoke.sh").write_text("#!/bin/sh\n")
    succeed(["git", "init", "--quiet"], tree)
    author = {}
    for role in ("AUTHOR", "COMMITTER"):
        author[f"GIT_{role}_NAME"] = "a"
        author[f"GIT_{role}_EMAIL"] = "a@example.com"
        author[f"GIT_{role}_DATE"] = "2026-01-31T12:00:00Z"
    succeed(["git", "commit", "--quiet", "--allow-empty", "-m", "one"], tree, **author)
    commit = succeed(["git", "rev-parse", "HEAD"], tree).strip()
    for name in ("chart/a.tgz", "dist/a.whl", "dist/a.tar.gz"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    contexts = {"ARCHITECTURE": "amd64", "DIGEST": _DIGEST}
    variables = {
        "GITHUB_REF_NAME": f"v{__version__}",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_ACTOR": "me",
        "PATH": path(folder),
    }
    for where, job in map(str.split, _PUBLISHING):
        if job == "tag":
            (tree / "digests/arm64").write_text(_DIGEST)  # of the other machine
        document = workflow(where)
        for step in steps():
            if (step.workflow, step.job) != (where, job) or not step.run:
                continue
            environment = {}
            for level in (document, document["jobs"][job], step.says):
                environment |= level.get("env", {})
            environment = {
                name: contexts.get(name, re.sub(r"\$\{\{.*?}}", "x", text))
                for name, text in environment.items()
            }
            succeed(
                ["bash", "-euo", "pipefail", "-c", step.run],
                tree,
                **variables,
                **environment,
            )
    called = calls.read_text()
    assert output.read_text().count(f"digest={_DIGEST}\n") == 2
    image = f"{REGISTRY}/vllm-specdec-exporter"
    # What labels of the Dockerfile need, and the time of the commit for its files.
    arguments = dict(re.findall(r"--build-arg (\w+)=(\S+)", called))
    assert arguments.pop("CREATED").replace("+00:00", "Z") == "2026-01-31T12:00:00Z"
    assert arguments == {
        "VERSION": __version__,
        "REVISION": commit,
        "SOURCE_DATE_EPOCH": "1769860800",
    }
    for command in (
        f"helm push chart/a.tgz oci://{REGISTRY}/charts",
        (
            f"docker buildx imagetools create --tag {image}:{__version__} "
            f"{image}@{_DIGEST} {image}@{_DIGEST}"
        ),
        f"cosign sign --yes {image}@{_DIGEST}",
        f"cosign sign --yes x@{_DIGEST}",
        f"gh release create v{__version__} --verify-tag",
    ):
        assert command in called, (command, called)
    assert {file.name for file in (tree / "upload").iterdir()} == {"a.whl", "a.tar.gz"}
