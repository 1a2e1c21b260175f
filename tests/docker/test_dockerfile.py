"""The Dockerfile: what can be told from its text."""

import re
import sys
from itertools import chain
from pathlib import Path

from docker.dockerfile import DOCKERFILE, copied, stage, stages
from support.programs import printed
from support.repository import ROOT, text_of
from vllm_specdec_exporter.commands.table import COMMANDS

HADOLINT = Path(sys.executable).with_name("hadolint")
LAST = stage("")


def locked(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return version and hashes by package, of a lock file."""
    text = text_of(f"requirements/{name}.txt")
    entries = re.findall(
        r"(?m)^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        text,
    )
    return {
        package: (version, frozenset(re.findall(r"sha256:(\w+)", hashes)))
        for package, version, hashes in entries
    }


def test_hadolint_has_nothing_to_say() -> None:
    """Not even a hint, and nothing is silenced."""
    flags = ("--no-color", "--failure-threshold", "style")
    assert printed(HADOLINT, *flags, DOCKERFILE) == ""
    assert "hadolint" not in text_of(DOCKERFILE)
    assert not list(ROOT.glob(".hadolint*"))


def test_every_stage_has_the_same_pinned_python() -> None:
    """By version to read and by digest: a virtual environment fits only the Python that
    made it.
    """
    (base,) = {built.base for built in stages()}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base)
    assert [built.platform for built in stages()] == ["$BUILDPLATFORM", "", ""]
    # The version in the image is one that the package is tested with.
    minor = ".".join(base.removeprefix("python:").split(".")[:2])
    assert f'"Programming Language :: Python :: {minor}"' in text_of("pyproject.toml")


def test_it_runs_as_a_number_without_a_shell() -> None:
    """Kubernetes cannot tell of a name whether it is root; a shell would not forward
    signals.
    """
    assert LAST.one("USER").text == "65532:65532"
    assert LAST.one("ENTRYPOINT").argv == ["vllm-specdec-exporter"]
    assert not LAST.all("CMD")
    program, command = LAST.one("HEALTHCHECK").argv
    assert program == "vllm-specdec-exporter"
    assert command in COMMANDS
    assert LAST.one("STOPSIGNAL").text == "SIGTERM"
    assert LAST.one("EXPOSE").text == "9850"
    assert not LAST.all("RUN")
    assert not LAST.all("VOLUME")


def test_only_the_environment_goes_into_the_image() -> None:
    """Nothing of the build context, and one folder of one stage."""
    (copy,) = LAST.all("COPY")
    assert copy.flags == {"from": "environment"}
    source, target = copy.arguments.split()
    assert source == target == "/opt/vllm-specdec-exporter"
    assert LAST.environment["PATH"] == f"{target}/bin:$PATH"
    # The root file system is read-only, and everything is compiled already.
    assert LAST.environment["PYTHONDONTWRITEBYTECODE"] == "1"


def test_everything_installed_is_locked() -> None:
    """Every installation is by hash from a lock file, or of the wheel made here without
    any index.
    """
    runs = chain.from_iterable(built.all("RUN") for built in stages())
    commands = " && ".join(run.text for run in runs).split(" && ")
    installs = [command.split() for command in commands if " pip " in command]
    assert len(installs) == 3
    for arguments in installs:
        from_lock = {"--require-hashes", "--only-binary", ":all:"} <= set(arguments)
        of_wheel = {"--no-index", "--no-deps"} <= set(arguments)
        assert from_lock or of_wheel, arguments
        assert "--no-cache-dir" in arguments, arguments


def test_the_build_backend_is_the_locked_one() -> None:
    """requirements/build.txt is a part of requirements/dev.txt, and has what
    pyproject.toml names.
    """
    build = locked("build")
    every = locked("dev")
    assert "hatchling" in build
    assert {name: every.get(name) for name in build} == build


def test_the_build_context_is_what_is_copied() -> None:
    """.dockerignore allows exactly the sources of COPY, which exist, without byte code
    of another Python.
    """
    lines = text_of(".dockerignore").splitlines()
    first, *allowed, last = (
        line for line in lines if line and not line.startswith("#")
    )
    assert (first, last) == ("*", "**/__pycache__")
    sources = {pattern.removeprefix("!").partition("/*.")[0] for pattern in allowed}
    assert sources == set(copied())
    assert [path for path in copied() if not (ROOT / path).exists()] == []
