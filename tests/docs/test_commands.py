"""docs/commands.md: the reference is what the parsers say, and what they say is what happens."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from docs.inventory import ROOT
from support.commands import run
from vllm_specdec_exporter.cli import COMMANDS, PROGRAM
from vllm_specdec_exporter.option_table import OPTIONS

if TYPE_CHECKING:
    from types import ModuleType

PAGE = ROOT / "docs" / "commands.md"
TEXT = PAGE.read_text("utf-8")
EACH = pytest.mark.parametrize("name", COMMANDS)


def reference() -> ModuleType:
    """The module that writes the page; it stands beside it and is in no package."""
    name = "command_reference"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "command_reference.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def section(name: str) -> str:
    """The part of the page on a command."""
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_the_page_is_current() -> None:
    """`make generate` would write it so."""
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True
    )
    assert "commands.md" not in done.stdout


@EACH
def test_every_flag_is_on_the_page(name: str) -> None:
    """Those of the command's own help; the settings of `serve` itself are on a page of their own."""
    said = run(name, "--help").out
    flags = set(re.findall(r"(?<![\w-])--[a-z](?:[\w.-]*\w)?", said.partition("\n\n")[2]))
    own = {flag for flag in flags if re.search(rf"^ +(?:-h, )?{re.escape(flag)}\b", said, re.MULTILINE)}
    settings = {option.flag for option in OPTIONS} if name == "serve" else set()
    assert len(own) >= 3
    assert {flag for flag in own - settings - {"--help", "--version"} if flag not in section(name)} == set()


def test_settings_of_serve_are_not_told_twice() -> None:
    """They have a page of their own, to which this one leads."""
    assert "[configuration](configuration.md)" in section("serve")
    assert not any(f"`{option.flag} " in section("serve") for option in OPTIONS)


@EACH
def test_exit_codes_are_those_of_the_help(name: str) -> None:
    """Each with its words."""
    help_text = " ".join(run(name, "--help").out.split())
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", section(name), re.MULTILINE))
    assert {"0", "2"} <= rows.keys()
    assert {code: text for code, text in rows.items() if f"{code} {text}" not in help_text} == {}


@EACH
def test_bad_usage_ends_with_2(name: str) -> None:
    """With one line on standard error, as the page says."""
    done = run(name, "--no-such-flag")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "ends with 2 and one line on standard error" in TEXT


def defaults(name: str) -> dict[str, tuple[Any, str]]:
    """What a parser takes without a flag and what its help says, of flags whose default the parser knows."""
    module = reference()
    found = {}
    for action in module.parser_of(name)._actions:
        flag = module._flag(action)
        simple = isinstance(action.default, str | int | float) and not isinstance(action.default, bool)
        if simple and action.default not in ("", "==SUPPRESS=="):
            found[flag.shown] = (action.default, flag.default)
    return found


@EACH
def test_defaults_are_those_that_hold(name: str) -> None:
    """Numbers by value, as 60s is 60; words letter by letter."""
    wrong = {
        flag: (held, said)
        for flag, (held, said) in defaults(name).items()
        if said.partition(",")[0] != str(held) and _number(said) != held
    }
    assert wrong == {}


def _number(text: str) -> float | None:
    """Return a number of a duration or of digits; `None` for another text."""
    found = re.fullmatch(r"([\d.]+)(s|m|h|)", text)
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else None


def test_defaults_are_looked_at() -> None:
    assert sum(len(defaults(name)) for name in COMMANDS) > 30


def test_the_program_is_named_as_it_is() -> None:
    assert f"`{PROGRAM} check [URL] [FLAG ...]`" in TEXT
    assert all(f"[`{name}`](#{name})" in TEXT for name in COMMANDS)
