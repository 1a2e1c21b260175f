"""docs/reference/commands.md: the reference is what the parsers say, and what they say is what happens."""

import re
import subprocess
import sys

import pytest

from docs.inventory import ROOT
from support.commands import run_here
from vllm_specdec_exporter.cli import COMMANDS
from vllm_specdec_exporter.serve.option_table import OPTIONS

TEXT = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")


def section(name: str) -> str:
    """The part of the page on a command."""
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_the_generated_pages_are_current() -> None:
    """`make generate` would write them so."""
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_the_flags_and_exit_codes_of_the_help(name: str) -> None:
    """But for the settings of `serve`, which have a page of their own; bad usage ends with 2 and one line."""
    said = run_here(name, "--help", COLUMNS="100").out
    flags = set(re.findall(r"(?<![\w-])--[a-z](?:[\w.-]*\w)?", said.partition("\n\n")[2]))
    own = {flag for flag in flags if re.search(rf"^ +(?:-h, )?{re.escape(flag)}\b", said, re.MULTILINE)}
    settings = {option.flag for option in OPTIONS} if name == "serve" else set()
    assert len(own) >= 3
    assert {flag for flag in own - settings - {"--help", "--version"} if flag not in section(name)} == set()
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", section(name), re.MULTILINE))
    assert {"0", "2"} <= rows.keys()
    help_text = " ".join(said.split())
    assert {code: text for code, text in rows.items() if f"{code} {text}" not in help_text} == {}
    done = run_here(name, "--no-such-flag")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
