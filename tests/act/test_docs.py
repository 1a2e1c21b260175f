"""What docs/act.md shows is what happens."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from act.receiver import act
from support.alertmanager import amtool

TEXT = (Path(__file__).parents[2] / "docs" / "act.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_the_alert_of_the_quick_start_makes_the_line_that_is_shown() -> None:
    """But for the time."""
    (command,) = (block for block in blocks("sh") if "curl" in block)
    words = shlex.split(command)
    (shown,) = map(json.loads, blocks("json"))
    with act() as running:
        assert running.post(words[words.index("-d") + 1].encode()).status == 200
        (event,) = running.events(1)
    assert {**event, "time": ""} == {**shown, "time": ""}


@pytest.mark.full
def test_alertmanager_takes_the_configuration(tmp_path: Path) -> None:
    """As its own tool says."""
    file = tmp_path / "alertmanager.yml"
    file.write_text(blocks("yaml")[0])
    assert "SUCCESS" in amtool("check-config", str(file))


@pytest.mark.full
def test_the_script_is_a_script(tmp_path: Path) -> None:
    """It does nothing for what a restart would not change, and refuses other models."""
    file = tmp_path / "script"
    (script,) = (block for block in blocks("sh") if block.startswith("#!"))
    file.write_text(script)
    assert subprocess.run(["sh", str(file), "measure", "m", "", "", ""]).returncode == 0
    done = subprocess.run(["sh", str(file), "disable", "m", "0", "", ""], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "not the model of this machine: m\n")
