"""The scripts of findings/: their heads are complete, and they name no host."""

import re

import pytest

from support.repository import ROOT

FOLDER = ROOT / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
PARTS = ["Version", "Expected", "Behaviour", "Seen", "Matters"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_head_states_version_expectation_and_what_was_seen(script):
    """Each part stands once, in this order, before the first command."""
    head = script.read_text().split("\nset -euo pipefail\n")[0]
    lines = head.splitlines()
    assert all(line.startswith("#") for line in lines)
    assert re.findall(r"^# (\w+): +\S", head, re.MULTILINE) == PARTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_package_is_pinned(script):
    """Another version is another finding."""
    for line in script.read_text().splitlines():
        if re.match(r"(debian|python_packages|npm_packages) ", line):
            packages = [word for word in line.split()[1:] if word[0] != "-"]
            if line.startswith("debian"):
                packages.pop(0)
            unpinned = [word for word in packages if not re.search(r".[=@]+\d", word)]
            assert not unpinned


def test_no_host_is_named():
    """Packages come from where this machine's own tools are set up to find them."""
    for path in FOLDER.rglob("*.*"):
        hosts = re.findall(r"https?://([^/\s\"'}]+)", path.read_text())
        assert all(host.startswith("127.0.0.1") for host in hosts), path


def test_the_table_has_every_script():
    rows = re.findall(r"\]\((.+?)\.sh\)", (FOLDER / "README.md").read_text())
    assert rows == [script.stem for script in SCRIPTS]
