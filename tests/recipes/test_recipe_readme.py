"""The index of the recipes: every block that can be run is run, and every file is in
it.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from docs.inventory import blocks
from helm.charts import helm3
from helm.manifest_schemas import problems_everywhere
from injection.kubectl_program import kubectl
from recipes.stacks import EXAMPLES, load, vllm_stack
from recipes.table import RECIPES, Recipe
from support.programs import printed, write_script
from support.repository import ROOT, text_of

pytestmark = pytest.mark.full

README = EXAMPLES / "README.md"
TEXT = text_of(README)


#: Without what sys.path says, a script of the repository finds no package.
PYTHONPATH = os.pathsep.join(sys.path)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what the commands use, `helm` and `python` beside it, and what another
    chart would render.
    """
    clone = tmp_path / "clone"
    shutil.copytree(
        ROOT / "helm", clone / "helm", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "alerts/rules", clone / "alerts/rules")
    (values,) = load("production-stack/values.yaml")
    rendered = clone / "helm/examples/production-stack/rendered.yaml"
    rendered.write_text(yaml.safe_dump_all(vllm_stack(values)))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "kubectl").symlink_to(kubectl())
    # This Helm is from 2021, and takes a cluster to be of then.
    write_script(programs / "helm", f'exec {helm3()} "$@" --kube-version 1.36.0')
    return clone


EXECUTABLE = [
    block.text
    for block in blocks()
    if (block.file, block.language, block.reason) == (README, "sh", "")
]


@pytest.mark.parametrize("code", EXECUTABLE)
def test_a_block_does_what_it_says(clone: Path, code: str) -> None:
    """It runs from the root of the repository, and what it writes is taken by an API
    server.
    """
    path = f"{clone.parent / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": PYTHONPATH}
    printed(*["bash", "-euo", "pipefail", "-c"], code, cwd=clone, env=environment)
    written = re.findall(r"(?m)> (\S+\.yaml)$", code)
    assert written
    for name in written:
        objects = list(filter(None, yaml.safe_load_all((clone / name).read_text())))
        assert objects, name
        assert problems_everywhere(objects) == [], name


def test_there_are_blocks_to_run() -> None:
    assert len(EXECUTABLE) >= 3


def test_every_recipe_is_in_the_index() -> None:
    """Each file of the folder is linked, and each link to a file here leads to one."""
    linked = {
        link
        for link in re.findall(r"\]\(([^)#:]+)\)", TEXT)
        if not link.startswith("..")
    }
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.y*ml")}
    assert files - linked == {"production-stack/kustomization.yaml"}
    assert linked <= files


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.path)
def test_the_index_tells_where_each_recipe_polls(recipe: Recipe) -> None:
    """The table's address is the recipe's."""
    row = next(line for line in TEXT.splitlines() if f"]({recipe.path})" in line)
    ports = [url.rpartition(":")[2] for url in recipe.upstream]
    assert "the same" in row or all(f":{port}" in row for port in ports)
