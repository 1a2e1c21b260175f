"""The rule files are within what the loaders of Thanos and Mimir accept, as far as
their sources tell.

Neither runs here. Their loaders refuse what they do not know: Thanos hands the groups
to Prometheus's own loader, mimirtool decodes with known fields only.
"""

import re
import subprocess
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from alerts.lint.series import spellings
from scaling.clusters import RULES, SAMPLES
from support.programs import find_program
from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.commands.history.series import (
    COUNTERS,
    READ_DIALECTS,
    SeriesFamily,
)
from vllm_specdec_exporter.engines.dialect import PER_POSITION

FILES = sorted(RULES.glob("*.yml"))
GROUPS: list[dict[str, Any]] = []
for _path in FILES:
    GROUPS += data_of(_path)["groups"]
ALL_RULES = list(chain.from_iterable(group["rules"] for group in GROUPS))
#: Fields that every one of them knows.
_GROUP = {"name", "interval", "rules"}
_RECORD = {"record", "expr", "labels"}
_ALERT = {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
#: Mimir's defaults: ruler_max_rules_per_rule_group, ruler_max_rule_groups_per_tenant.
_MIMIR_RULES = 20
_MIMIR_GROUPS = 70


def test_loaders_know_every_field_and_mimir_takes_them_without_raised_limits() -> None:
    """Common fields only: no partial_response_strategy, query_offset, limit; a
    namespace is a file's name.
    """
    for group in GROUPS:
        assert group.keys() <= _GROUP, group["name"]
        assert len(group["rules"]) <= _MIMIR_RULES, group["name"]
    for rule in ALL_RULES:
        fields = _RECORD
        if "alert" in rule:
            fields = _ALERT
        assert rule.keys() <= fields, rule
    assert len({group["name"] for group in GROUPS}) == len(GROUPS)
    assert len(GROUPS) <= _MIMIR_GROUPS / 2


def test_alerts_build_on_no_other_group_of_alerts() -> None:
    """Only these query ALERTS, and need a ruler that can."""
    asking = {
        rule.get("alert") or rule["record"]
        for rule in ALL_RULES
        if re.search(r"\bALERTS\b", rule["expr"])
    }
    assert asking == {
        "VLLMSpecDecodeAcceptanceDropped",
        "VLLMSpecDecodeAcceptanceLow",
        "VLLMSpecDecodeDisable",
        "VLLMSpecDecodeReenable",
        "VLLMSpecDecodeHarmful",
        "method:vllm_specdec_held_speedup:last1h",
        "method:vllm_specdec_paged_lately:bool",
        "model:vllm_specdec_allowed_loss:ratio",
        "model:vllm_specdec_disable_is_silenced:bool",
    }


def test_no_rule_asks_for_changes() -> None:
    """VictoriaMetrics counts the birth of a series as a change: alerts would be silent
    for hours after it.
    """
    assert not [path.name for path in FILES if "changes(" in path.read_text("utf-8")]


def test_no_rule_asks_for_a_rate() -> None:
    """VictoriaMetrics divides it by the time between a series' own samples: a pod of
    two minutes would count as if it had lived all the window. `increase` counts alike.
    """
    assert not [path.name for path in FILES if "rate(" in path.read_text("utf-8")]


# --- the samples


def syntax_errors(*arguments: str | Path) -> str:
    """Return what promtool says of a configuration that it does not take."""
    promtool = find_program("promtool", "prometheus")
    command = (promtool, "check", "config", "--syntax-only", *arguments)
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr) * bool(done.returncode)


@pytest.mark.parametrize(
    "path", sorted(SAMPLES.rglob("*.yml")), ids=lambda path: path.stem
)
def test_promtool_takes_the_sample(path: Path) -> None:
    """It is a configuration in Prometheus's syntax, that of an agent also one of an
    agent.
    """
    agent = ["--agent"] * (path.stem in {"agent", "vmagent"})
    assert syntax_errors(*agent, path) == ""


def test_promtool_would_notice_a_configuration_of_another_kind() -> None:
    assert syntax_errors("--agent", SAMPLES / "remote-write/central.yml")


_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
#: The series of a vLLM that `history` reads, but for those of V0.
_VLLM = SeriesFamily(
    next(dialect for dialect in READ_DIALECTS if dialect.name == "vllm-v1"),
    "vllm:",
    "",
    native=False,
)
BY_HISTORY: set[str] = {"vllm:cache_config_info"}
for _field in ("requests_running", PER_POSITION, *COUNTERS):
    BY_HISTORY.update(_VLLM.names(_field))
for _name in _VLLM.dialect.histograms.values():
    BY_HISTORY |= {f"vllm:{_name}_sum", f"vllm:{_name}_bucket"}


def joined(paths: Iterable[Path]) -> str:
    """Return the texts of files as one."""
    return "\n".join(path.read_text("utf-8") for path in paths)


def test_what_is_kept_of_vllm_is_what_is_asked_for() -> None:
    """The samples keep the series that rules, dashboards, runbooks and `history` name,
    and no other.
    """
    asking = (
        *FILES,
        *(ROOT / "dashboards/json").glob("*.json"),
        *(RULES.parent / "runbooks").glob("*.md"),
    )
    asked = BY_HISTORY | set(re.findall(r"vllm:\w+_\w+", joined(asking)))
    families = {_HISTOGRAM.sub("", name) for name in asked}
    spelled = {spelling for name in asked for spelling in spellings(name)}
    upstream = joined((ROOT / "tests/data/upstream").glob("vllm*.txt"))
    recorded = set(re.findall(r"(?m)^(vllm:\w+)", upstream))
    for path in ("remote-write/agent.yml", "victoriametrics/vmagent.yml"):
        jobs = data_of(SAMPLES / path)["scrape_configs"]
        (vllm,) = (job for job in jobs if job["job_name"] == "vllm")
        (keep,) = vllm["metric_relabel_configs"]
        assert (keep["action"], keep["source_labels"]) == ("keep", ["__name__"]), path
        is_kept = re.compile(keep["regex"]).fullmatch
        assert set(filter(is_kept, spelled)) == spelled, path
        kept = {_HISTOGRAM.sub("", name) for name in filter(is_kept, recorded)}
        assert kept, path
        assert kept <= families, path
        assert not is_kept("python_gc_objects_collected_total"), path


def test_federation_fetches_what_is_recorded_of_models_and_no_more() -> None:
    """And the alerts, all with their own labels.

    No raw series: rules above would judge a part of it.
    """
    (job,) = data_of(SAMPLES / "federation/central.yml")["scrape_configs"]
    selectors = re.findall(r'__name__=~?"(.+?)"', "\n".join(job["params"]["match[]"]))
    names = {rule["record"] for rule in ALL_RULES if "record" in rule}
    names |= {"ALERTS", "up", "vllm_specdec_up", "vllm:num_requests_running"}
    fetched = {name for name in names if re.fullmatch("|".join(selectors), name)}
    assert fetched == {name for name in names if name.startswith("model:")} | {"ALERTS"}
    assert job["honor_labels"] is True


def test_the_job_is_the_one_that_the_alerts_look_for() -> None:
    """Every sample that scrapes exporters does it under the job that `up` is asked
    for.
    """
    for path in (
        "federation/cluster.yml",
        "remote-write/agent.yml",
        "victoriametrics/vmagent.yml",
    ):
        jobs = data_of(SAMPLES / path)["scrape_configs"]
        names = [job["job_name"] for job in jobs]
        assert names == ["vllm-specdec-exporter", "vllm"], path


def test_every_sample_is_explained() -> None:
    """docs/deployment.md links each sample, and no other."""
    text = text_of("docs/deployment.md")
    linked = set(re.findall(r"\(scaling/([\w/-]+\.yml)\)", text))
    assert linked == {
        path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.yml")
    }
