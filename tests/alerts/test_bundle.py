"""The bundle in `alerts/`: its rules pass the linter, its files are current, its
runbooks are there.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from alerts import lint
from alerts.lint.bundle import bare, names, nodes
from support.programs import find_program
from support.repository import data_of
from vllm_specdec_exporter.commands.act.decision import ALERT_ACTIONS

GENERATE = lint.ROOT / "alerts" / "generate.py"
BUNDLE = lint.read_bundle()


def generate(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the generator."""
    command = [sys.executable, str(GENERATE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


# --- the rules


#: What an engineer can review: kubernetes-mixin's longest alert has four operators.
MAX_ALERTS = 24
MAX_RECORDS = 95
#: Of an alert's expression, and of one condition in it: a longer condition is a record
#: with a name.
MAX_SET_OPERATORS = 8
MAX_CHARACTERS = 600
MAX_OPERATORS_OF_A_CONDITION = 4
#: Queries of all annotations of an alert: each is evaluated for each series that fires,
#: at every evaluation.
MAX_QUERIES = 3
SETS = frozenset({"and", "or", "unless"})


def conditions(node: promql.Expr) -> Iterator[promql.Expr]:
    """Yield what the set operators of an expression combine."""
    inner = bare(node)
    if isinstance(inner, promql.BinaryExpr) and str(inner.op) in SETS:
        yield from conditions(inner.lhs)
        yield from conditions(inner.rhs)
    else:
        yield inner


def operators(node: promql.Expr) -> list[str]:
    """Return the binary operators of an expression."""
    return [str(each.op) for each in nodes(node, promql.BinaryExpr)]


def test_an_alert_is_as_short_as_people_write_them() -> None:
    long = {}
    for rule in BUNDLE.alerts:
        sets = sum(operator in SETS for operator in operators(rule.tree))
        most = max(len(operators(each)) for each in conditions(rule.tree))
        queries = sum(text.count("| query }}") for text in rule.annotations.values())
        sizes = (sets, len(rule.body["expr"]), most, queries)
        limits = (
            MAX_SET_OPERATORS,
            MAX_CHARACTERS,
            MAX_OPERATORS_OF_A_CONDITION,
            MAX_QUERIES,
        )
        if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
            long[rule.title] = sizes
    assert long == {}


def test_a_long_condition_stands_in_one_place() -> None:
    found = Counter(
        str(each)
        for rule in BUNDLE.alerts
        for each in conditions(rule.tree)
        if len(operators(each)) > 1
    )
    assert [condition for condition, number in found.items() if number > 1] == []


def test_alternatives_stand_in_brackets() -> None:
    """Readers need not remember that `and` and `unless` bind closer than `or`."""
    bare_ones = {
        rule.title
        for rule in BUNDLE.rules
        for each in nodes(rule.tree, promql.BinaryExpr)
        if str(each.op) == "or"
        for side in (each.lhs, each.rhs)
        if isinstance(side, promql.BinaryExpr) and str(side.op) in {"and", "unless"}
    }
    assert bare_ones == set()


def test_a_condition_is_recorded_before_its_alert() -> None:
    """In its group, so that the alert sees it at once, or in one of recording rules; or
    in itself.
    """
    late = []
    for group in BUNDLE.groups:
        rules = [lint.Rule(body) for body in group["rules"]]
        recorded = {rule.name: at for at, rule in enumerate(rules) if not rule.is_alert}
        late += [
            (rule.title, name)
            for at, rule in enumerate(rules)
            for name in names(rule.tree)
            if recorded.get(name, -1) > at
        ]
    assert late == []


def test_there_are_few_rules_and_few_that_page() -> None:
    assert len({rule.name for rule in BUNDLE.alerts}) <= MAX_ALERTS
    assert len(BUNDLE.rules) - len(BUNDLE.alerts) <= MAX_RECORDS
    assert (
        len(
            {
                rule.name
                for rule in BUNDLE.alerts
                if rule.labels["severity"] == "critical"
            }
        )
        <= 5
    )


def test_every_rule_passes_the_linter() -> None:
    assert [
        words for rule in BUNDLE.rules for words in lint.complaints(rule, BUNDLE)
    ] == []


DRAFTS = "vllm_specdec_drafts_total"
GOOD = {
    "expr": f"sum by (model_name) (rate({DRAFTS}[5m])) > 0",
    "for": "5m",
    "keep_firing_for": "5m",
    "labels": {"severity": "warning", "subject": "acceptance"},
    "annotations": {
        "summary": "Something is wrong.",
        "value": "{{ $value | humanize }}",
    },
}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"expr": f"rate({DRAFTS}[3m])"}, "less than 4 minutes"),
        ({"expr": "rate(vllm_specdec_requests_running[5m])"}, "no counter"),
        ({"expr": f"rate(sum({DRAFTS})[5m:1m])"}, "of an expression"),
        (
            {"expr": "vllm_specdec_up == 0"},
            "vllm_specdec_up without a function over time",
        ),
        (
            {"expr": "last_over_time(vllm_specdec_nothing[3m])"},
            "unknown metric vllm_specdec_nothing",
        ),
        (
            {"expr": 'last_over_time(vllm_specdec_up{colour="red"}[3m])'},
            "no label colour",
        ),
        ({"record": "model:vllm_specdec_example:rate5m"}, "used by nothing"),
        ({"labels": {"severity": "critical", "subject": "acceptance"}}, "may not page"),
        ({"labels": {"k": "{{ $value }}"}}, "k is a template"),
        ({"for": None}, "no for"),
        ({"keep_firing_for": None}, "dead band"),
        ({"annotations": {"summary": "Something is wrong"}}, "no one sentence"),
        (
            {"annotations": {"summary": "Wrong.", "value": "{{ $value | toTime }}"}},
            "toTime",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_linter_complains_of_one_fault_alone(
    wrong: dict[str, Any], words: str
) -> None:
    name = {} if "record" in wrong else {"alert": "VLLMSpecDecodeExample"}
    (complaint,) = lint.complaints(lint.Rule({**name, **GOOD, **wrong}), BUNDLE)
    assert words in complaint


def test_the_linter_has_nothing_to_say_of_a_good_alert() -> None:
    assert (
        lint.complaints(lint.Rule({"alert": "VLLMSpecDecodeExample", **GOOD}), BUNDLE)
        == []
    )


def test_every_group_has_a_name_of_its_own_and_is_evaluated_within_the_look_back() -> (
    None
):
    names = [group["name"] for group in BUNDLE.groups]
    assert len(set(names)) == len(names)
    assert [name for name in names if not name.startswith("vllm-specdec.")] == []
    # With five minutes and more, series would vanish between two evaluations. None has
    # the server's interval, so that their cost is the same at any.
    assert {group["interval"] for group in BUNDLE.groups} == {"15s", "1m", "3m", "4m"}


def test_what_is_evaluated_most_often_reads_few_series() -> None:
    """Records of models and their methods: of thousands of engines there are some
    dozens.
    """
    read = set()
    for group in BUNDLE.groups:
        if group["interval"] == "15s":
            for rule in map(lint.Rule, group["rules"]):
                read |= names(rule.tree)
    assert {name.partition(":")[0] for name in read} == {"model", "method"}


def test_a_page_on_a_loss_waits_for_one_group_of_records() -> None:
    """What it reads now of a loss is recorded in the group of the rates, after what it
    rests on: each group on the way would add its interval.
    """
    (chain,) = (g for g in BUNDLE.groups if g["name"] == "vllm-specdec.rates.5m")
    assert chain["interval"] == "1m"
    rules = [lint.Rule(body) for body in chain["rules"]]
    recorded = [rule.name for rule in rules]
    for index, rule in enumerate(rules):
        assert names(rule.tree).isdisjoint(recorded[index:]), rule.name
    assert {
        "method:vllm_specdec_judged_acceptance:ratio_rate5m",
        "method:vllm_specdec_judged_speedup:ratio_rate5m",
    } < set(recorded)


def test_records_stand_behind_what_they_read() -> None:
    """So one reading downwards is enough, and tests that evaluate rarely see all."""
    groups = data_of("alerts/rules/recording.yml")["groups"]
    rules = [lint.Rule(body) for group in groups for body in group["rules"]]
    places = {rule.name: place for place, rule in reversed([*enumerate(rules)])}
    late = [
        (rule.name, name)
        for place, rule in enumerate(rules)
        for name in sorted(names(rule.tree))
        if places.get(name, 0) > place
    ]
    assert late == []


def test_every_threshold_for_alerts_is_used_by_one() -> None:
    assert lint.idle_thresholds(BUNDLE) == []


def test_the_actions_are_those_that_act_takes() -> None:
    requested = {
        (rule.name, rule.labels["action"])
        for rule in BUNDLE.alerts
        if "action" in rule.labels
    }
    assert requested == {
        (name, action) for name, actions in ALERT_ACTIONS.items() for action in actions
    }


def test_promtool_has_nothing_to_say() -> None:
    command = [
        find_program("promtool", "prometheus"),
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
    ]
    files = sorted(map(str, lint.RULES.glob("*.yml")))
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    counts = [
        int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", done.stdout)
    ]
    assert (len(counts), sum(counts)) == (len(files), len(BUNDLE.rules))


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


# --- the runbooks


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    there = {path.stem for path in lint.RUNBOOKS.glob("*.md")} - {"README"}
    assert there == {rule.name for rule in BUNDLE.alerts}
