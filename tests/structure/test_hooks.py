"""The hooks before a commit look at every file that what they run is about."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def files_of(hook: str) -> re.Pattern[str]:
    """Return which paths make git run a hook."""
    (source,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    return re.compile(next(one["files"] for one in source["hooks"] if one["id"] == hook))


def test_types_are_checked_wherever_they_are() -> None:
    """A change in any folder from which mypy takes packages and modules."""
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]["mypy_path"]
    assert len(folders.split(":")) > 1
    assert [name for name in folders.split(":") if not files_of("mypy").match(f"{name}/x.py")] == []


def test_what_is_generated_is_checked_when_its_generator_changes() -> None:
    """A change of any program that `make check-generated` runs."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (recipe,) = re.findall(r"^check-generated:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    programs = re.findall(r"\$\(BIN\)/python (\S+\.py) --check", recipe)
    programs += [
        f"{path}/{module.replace('.', '/')}.py"
        for path, module in re.findall(r"PYTHONPATH=(\S+) \$\(BIN\)/python -m (\S+) --check", recipe)
    ]
    assert len(programs) == len(recipe.splitlines())
    assert all((ROOT / program).is_file() for program in programs)
    assert [program for program in programs if not files_of("generated").match(program)] == []
