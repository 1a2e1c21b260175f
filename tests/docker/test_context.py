"""The build context: what Dockerfile copies is there, and nothing else is."""

from __future__ import annotations

from docker.dockerfile import ROOT, copied
from docker.ignored import files, in_context, patterns


def _names() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in files()]


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    """A source that is missing from the context fails the build."""
    names = _names()
    for source in copied():
        inside = [name for name in names if name == source or name.startswith(f"{source}/")]
        assert inside, source
        assert [name for name in inside if not in_context(name, patterns())] == []


def test_nothing_else_is_in_the_context() -> None:
    """What a stage does not copy cannot reach the image, or invalidate its cache."""
    sent = [name for name in _names() if in_context(name, patterns())]
    unused = [name for name in sent if not any(name == one or name.startswith(f"{one}/") for one in copied())]
    assert sent
    assert unused == []


def test_what_has_no_place_in_an_image_stays_outside() -> None:
    """Secrets, tests, byte code of another Python, and whatever somebody lays beside."""
    names = (
        *(".env", ".git/config", ".venv/bin/python", "tests/conftest.py", "docker-compose.yml", "token"),
        *("requirements/dev.txt", "alerts/alertmanager.yml"),
        "dashboards/provisioning/datasources/prometheus.yaml",
        "exporter/vllm_specdec_exporter/act/__pycache__/event.cpython-313.pyc",
    )
    assert [name for name in names if in_context(name, patterns())] == []


def test_the_rules_are_those_of_docker() -> None:
    """The last pattern that matches decides; a star does not cross folders; a folder takes all below it."""
    assert in_context("a/b/c", ("*", "!a/b"))
    assert not in_context("a/b/c", ("*", "!a/b", "**/c"))
    assert not in_context("a/b/d/c.txt", ("*", "!a/*.txt"))
