"""The rule files are within what the loaders of Thanos and Mimir accept, as far as
their sources tell.

Neither runs here. Their loaders refuse what they do not know: Thanos hands the groups
to Prometheus's own loader, mimirtool decodes with known fields only.
"""

import re
import subprocess
from typing import Any

import yaml

from scaling.clusters import ROOT, RULES, SAMPLES
from support.programs import find_program
from vllm_specdec_exporter.commands.history.reading import _COUNTERS, _READ, _Family
from vllm_specdec_exporter.engines.dialect import PER_POSITION

FILES = sorted(RULES.glob("*.yml"))
GROUPS: list[tuple[str, dict[str, Any]]] = [
    (path.stem, group)
    for path in FILES
    for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
]
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
    assert {key for _, group in GROUPS for key in group} <= _GROUP
    rules = [rule for _, group in GROUPS for rule in group["rules"]]
    assert {key for rule in rules if "record" in rule for key in rule} <= _RECORD
    assert {key for rule in rules if "alert" in rule for key in rule} <= _ALERT
    assert len({group["name"] for _, group in GROUPS}) == len(GROUPS)
    assert max(len(group["rules"]) for _, group in GROUPS) <= _MIMIR_RULES
    assert len(GROUPS) <= _MIMIR_GROUPS / 2


def test_alerts_build_on_no_other_group_of_alerts() -> None:
    """Only these query ALERTS, and need a ruler that can."""
    rules = [rule for _, group in GROUPS for rule in group["rules"]]
    asking = {
        rule.get("alert") or rule["record"]
        for rule in rules
        if re.search(r"\bALERTS\b", rule["expr"])
    }
    names = (
        "AcceptanceDropped",
        "AcceptanceLow",
        "Disable",
        "Reenable",
        "Harmful",
        "ObjectiveBurning",
    )
    records = (
        "method:vllm_specdec_held_speedup:last1h",
        "method:vllm_specdec_paged_lately:bool",
    )
    records += ("model:vllm_specdec_disable_is_silenced:bool",)
    assert asking == {*records, *(f"VLLMSpecDecode{name}" for name in names)}


def test_no_rule_asks_for_changes() -> None:
    """VictoriaMetrics counts the birth of a series as a change: alerts would be silent
    for hours after it.
    """
    assert not [path.name for path in FILES if "changes(" in path.read_text("utf-8")]


# --- the samples


def test_promtool_takes_the_samples() -> None:
    """Every sample is a configuration in Prometheus's syntax, those of agents also one
    of an agent.
    """
    check = [find_program("promtool", "prometheus"), "check", "config", "--syntax-only"]
    for path in SAMPLES.rglob("*.yml"):
        agent = ["--agent"] if path.stem in {"agent", "vmagent"} else []
        done = subprocess.run([*check, *agent, path], capture_output=True, text=True)
        assert done.returncode == 0, f"{path}: {done.stdout + done.stderr}"
    # It would notice a configuration of another kind.
    central = SAMPLES / "remote-write" / "central.yml"
    assert (
        subprocess.run([*check, "--agent", central], capture_output=True).returncode
        != 0
    )


_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
#: The series of a vLLM that `history` reads, but for those of V0.
_VLLM = _Family(
    next(dialect for dialect in _READ if dialect.name == "vllm-v1"),
    "vllm:",
    "",
    native=False,
)
BY_HISTORY = {
    name
    for field in ("requests_running", PER_POSITION, *_COUNTERS)
    for name in _VLLM.names(field)
}
BY_HISTORY |= {
    f"vllm:{name}_{part}"
    for name in _VLLM.dialect.histograms.values()
    for part in ("sum", "bucket")
}


def test_what_is_kept_of_vllm_is_what_is_asked_for() -> None:
    """The samples keep the series that rules, dashboards, runbooks and `history` name,
    and no other.
    """
    folders = {
        RULES: "*.yml",
        ROOT / "dashboards" / "json": "*.json",
        RULES.parent / "runbooks": "*.md",
    }
    texts = [path for folder, names in folders.items() for path in folder.glob(names)]
    asked = {
        name
        for text in texts
        for name in re.findall(r"vllm:\w+_\w+", text.read_text("utf-8"))
    }
    asked |= BY_HISTORY
    families = {_HISTOGRAM.sub("", name) for name in asked}
    recorded = {
        name
        for text in (ROOT / "tests" / "data" / "upstream").glob("vllm*.txt")
        for name in re.findall(r"^(vllm:\w+)", text.read_text("utf-8"), re.MULTILINE)
    }
    for path in ("remote-write/agent.yml", "victoriametrics/vmagent.yml"):
        jobs = yaml.safe_load((SAMPLES / path).read_text("utf-8"))["scrape_configs"]
        ((keep,),) = (
            job["metric_relabel_configs"] for job in jobs if job["job_name"] == "vllm"
        )
        assert (keep["action"], keep["source_labels"]) == ("keep", ["__name__"])
        kept = re.compile(keep["regex"])
        assert [name for name in asked if not kept.fullmatch(name)] == []
        more = {name for name in recorded if kept.fullmatch(name)}
        assert more
        assert {
            name for name in more if _HISTOGRAM.sub("", name) not in families
        } == set()
        assert not kept.fullmatch("python_gc_objects_collected_total")


def test_federation_fetches_what_is_recorded_of_models_and_no_more() -> None:
    """And the alerts, all with their own labels.

    No raw series: rules above would judge a part of it.
    """
    (job,) = yaml.safe_load(
        (SAMPLES / "federation" / "central.yml").read_text("utf-8")
    )["scrape_configs"]
    selectors = [
        re.findall(r'__name__=~?"(.+?)"', text)[0] for text in job["params"]["match[]"]
    ]
    names = {
        rule["record"]
        for _, group in GROUPS
        for rule in group["rules"]
        if "record" in rule
    }
    names |= {"ALERTS", "up", "vllm_specdec_up", "vllm:num_requests_running"}
    fetched = {
        name
        for name in names
        if any(re.fullmatch(selector, name) for selector in selectors)
    }
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
        jobs = yaml.safe_load((SAMPLES / path).read_text("utf-8"))["scrape_configs"]
        assert [job["job_name"] for job in jobs] == ["vllm-specdec-exporter", "vllm"]


def test_every_sample_is_explained() -> None:
    """docs/deployment.md links each sample, and no other."""
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    linked = set(re.findall(r"\(scaling/([\w/-]+\.yml)\)", text))
    assert linked == {
        path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.yml")
    }
