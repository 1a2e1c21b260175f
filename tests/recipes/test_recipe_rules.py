"""Rules for other operators: the same rules, without what these have no field for."""

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import yaml

from helm.charts import render
from helm.manifest_schemas import problems_everywhere
from recipes.stacks import EXAMPLES
from support.programs import printed
from support.repository import ROOT, Json, data_of

pytestmark = pytest.mark.full

SCRIPT = EXAMPLES / "rule_objects.py"
RULES = sorted((ROOT / "alerts/rules").glob("*.yml"))


def converted(kind: str, *files: str, stdin: str = "") -> list[Json]:
    """Return what the program prints."""
    text = printed(sys.executable, SCRIPT, kind, *files, given=stdin)
    return list(yaml.safe_load_all(text))


def groups_of(objects: list[Json]) -> list[Json]:
    """Return the groups of all objects."""
    return list(chain.from_iterable(obj["spec"]["groups"] for obj in objects))


def shipped() -> list[Json]:
    """Return the groups of the rule files."""
    return list(chain.from_iterable(data_of(path)["groups"] for path in RULES))


def names_of(groups: list[Json]) -> set[str | None]:
    """Return the names of the alerts in groups."""
    rules = chain.from_iterable(group["rules"] for group in groups)
    return {rule.get("alert") for rule in rules}


@pytest.mark.parametrize("kind", ["ClusterRules", "VMRule"])
def test_every_rule_is_there_and_taken(kind: str) -> None:
    """An object a file, strictly valid, and nothing lost but what the kind has no field
    for.
    """
    objects = converted(kind, *map(str, RULES))
    assert [obj["metadata"]["name"] for obj in objects] == [
        f"vllm-specdec-{path.stem}" for path in RULES
    ]
    assert problems_everywhere(objects) == []
    kept = shipped()
    if kind == "ClusterRules":
        for group in kept:
            for rule in group["rules"]:
                rule.pop("keep_firing_for", None)
    assert groups_of(objects) == kept
    assert all(len(json.dumps(obj)) < 500_000 for obj in objects)


def test_google_may_scope_every_rule() -> None:
    """It adds project_id, location and cluster to selectors and results, and refuses
    rules that set them.
    """
    scope = {"project_id", "location", "cluster"}
    selector = re.compile(rf"\{{[^}}]*\b({'|'.join(scope)})\s*[=!]")
    for rule in chain.from_iterable(group["rules"] for group in shipped()):
        assert not scope & set(rule.get("labels", {})), rule
        assert not selector.search(rule["expr"]), rule


def test_the_charts_rules_are_converted_with_their_values() -> None:
    """What a value of the chart switches off stays off."""
    off = {"VLLMSpecDecodeWatchdog": True}
    rendered = render({"prometheusRule": {"enabled": True, "disabled": off}})
    objects = converted("VMRule", "-", stdin=yaml.safe_dump_all(rendered))
    assert names_of(shipped()) - names_of(groups_of(objects)) == off.keys()


def test_a_file_without_rules_is_an_error(tmp_path: Path) -> None:
    """Nothing is applied where something was expected: exit code 1, and the file's
    name.
    """
    file = tmp_path / "empty.yml"
    file.write_text("kind: ConfigMap\n")
    done = subprocess.run(
        (sys.executable, str(SCRIPT), "VMRule", str(file)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(file) in done.stderr
