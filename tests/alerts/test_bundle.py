"""The bundle in `alerts/`: its rules pass the linter, its files are current, its runbooks are there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from alerts import lint
from support.programs import find_program
from vllm_specdec_exporter.commands.act.decision import ACTIONS_WITH_K, ALERT_ACTIONS, AlertAction
from vllm_specdec_exporter.judgement import advice

if TYPE_CHECKING:
    from pathlib import Path

GENERATE = lint.ROOT / "alerts" / "generate.py"
FILES = {
    f"{name}.yml"
    for name in (
        *("recording", "availability", "activity", "quality", "requests", "harm", "decisions", "objective"),
    )
}
BUNDLE = lint.read_bundle()


def generate(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the generator."""
    command = [sys.executable, str(GENERATE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


# --- the rules


def test_there_are_few_rules_and_few_that_page() -> None:
    assert {path.name for path in lint.RULES.iterdir()} == FILES
    assert len({rule.name for rule in BUNDLE.alerts}) <= 25
    assert len({rule.name for rule in BUNDLE.alerts if rule.labels["severity"] == "critical"}) <= 5
    assert 50 <= len(lint.records(BUNDLE)) <= 120


def test_every_rule_passes_the_linter() -> None:
    said = [one for check in (*lint.CHECKS, *lint.ALERT_CHECKS) for one in lint.complaints(BUNDLE, check)]
    assert said == []


def test_every_group_has_a_name_of_its_own_and_is_evaluated_within_the_look_back() -> None:
    names = [group["name"] for group in BUNDLE.groups]
    assert len(set(names)) == len(names)
    assert [name for name in names if not name.startswith("vllm-specdec.")] == []
    # With five minutes and more, series would vanish between two evaluations.
    assert {group.get("interval", "1m") for group in BUNDLE.groups} <= {"30s", "1m", "2m", "3m", "4m"}


def test_every_threshold_for_alerts_is_used_by_one() -> None:
    assert lint.idle_thresholds(BUNDLE) == []


def test_every_excuse_is_still_needed_and_has_a_reason() -> None:
    assert lint.idle_excuses(BUNDLE) == []
    assert all(lint.EXCUSES.values())


def test_every_ratio_that_dashboards_offer_is_recorded() -> None:
    assert sorted(lint.DASHBOARDS - lint.records(BUNDLE).keys()) == []


def test_the_actions_are_those_that_act_takes_and_that_the_exporter_advises() -> None:
    assert set(lint.ACTIONS) == set(AlertAction)
    assert {action for action, has_k in lint.ACTIONS.items() if has_k} == ACTIONS_WITH_K | {
        AlertAction.DISABLE
    }
    requested = {(rule.name, rule.labels["action"]) for rule in BUNDLE.alerts if "action" in rule.labels}
    assert requested == {(name, action) for name, actions in ALERT_ACTIONS.items() for action in actions}
    assert set(advice.Action) - {"keep", "insufficient_data"} <= set(lint.ACTIONS)


def test_promtool_has_nothing_to_say() -> None:
    command = [find_program("promtool", "prometheus"), "check", "rules", "--lint=all", "--lint-fatal"]
    files = sorted(map(str, lint.RULES.glob("*.yml")))
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    counts = [int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", done.stdout)]
    assert (len(counts), sum(counts)) == (len(FILES), len(BUNDLE.rules))


# --- the generator


def test_edited_and_missing_rule_files_are_noticed_and_written_when_told(
    tmp_path: Path,
) -> None:
    rules = shutil.copytree(lint.RULES, tmp_path / "rules")
    edited = rules / "quality.yml"
    text = edited.read_text("utf-8").replace("vllm_specdec", "vllm_edited", 1)
    edited.write_text(text, "utf-8")
    (rules / "harm.yml").unlink()
    done = generate("--check", "--out", rules)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "not current: quality.yml, harm.yml; run `make generate`\n"
    assert edited.read_text("utf-8") == text
    assert not (rules / "harm.yml").exists()
    assert generate("--out", rules).stdout == "written: quality.yml, harm.yml\n"
    assert generate("--check", "--out", rules).returncode == 0


def test_the_committed_files_say_whose_address_stands_for_grafana() -> None:
    for path in lint.RULES.glob("*.yml"):
        head, _, rules = path.read_text("utf-8").replace("\n# ", " ").partition("\ngroups:")
        said = "https://grafana.example.com stands for your Grafana" in head
        assert said == ("example.com" in rules), path


# --- the runbooks


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    there = {path.stem for path in lint.RUNBOOKS.glob("*.md")} - {"README"}
    assert there == {rule.name for rule in BUNDLE.alerts}
