"""Pages that say what rules and Alertmanager's configuration do say what those do."""

import re

from alerts.lint import PREFIX, read_bundle
from support.repository import ROOT, data_of, text_of

_NAMES = re.compile(r"`([A-Z]\w+)`")


def _silenced_in_page() -> set[tuple[str, str]]:
    """Return which alerts silence which for a model, by the second table."""
    page = text_of("alerts/ALERTMANAGER.md")
    table = page.partition("silent for the model |")[2].partition("\n\n")[0]
    rows = (line.split("|")[1:3] for line in table.splitlines() if line.count("|") == 3)
    return {
        (source, target)
        for sources, targets in rows
        for source in _NAMES.findall(re.sub(r"except.*|, as within.*", "", sources))
        for target in _NAMES.findall(targets)
    }


def _silenced_in_file() -> set[tuple[str, str]]:
    """Return the same of the inhibitions that name both."""
    found = set()
    for rule in data_of(ROOT / "alerts/alertmanager.yml")["inhibit_rules"]:
        if "model_name" not in rule["equal"] or "subject" in rule["equal"]:
            continue
        sources, targets = (
            re.findall(r"[A-Z]\w+", matcher.replace(PREFIX, ""))
            for side in ("source_matchers", "target_matchers")
            for matcher in rule[side]
            if matcher.startswith("alertname=")
        )
        found |= {(source, target) for source in sources for target in targets}
    return found


def test_the_page_names_the_inhibitions_that_the_file_has() -> None:
    assert _silenced_in_page() == _silenced_in_file()
    assert _silenced_in_page()


def test_pages_say_how_long_a_refused_server_may_load() -> None:
    """Three quarters of an hour, wherever it is said."""
    (rule,) = (
        rule
        for rule in read_bundle().alerts
        if rule.name == f"{PREFIX}UpstreamUnreachable"
        and rule.labels["reason"] == "refused"
    )
    assert rule.body["for"] == "45m"
    name = "`VLLMSpecDecodeUpstreamUnreachable`"
    for page in (
        "docs/deployment.md",
        "alerts/runbooks/VLLMSpecDecodeMonitoringLost.md",
    ):
        lines = [line for line in text_of(page).splitlines() if name in line]
        told = [line for line in lines if "hour" in line]
        assert told, page
        assert all("three quarters of an hour" in line for line in told), page


def test_reenable_is_silent_after_any_disable_as_its_page_says() -> None:
    (rule,) = (r for r in read_bundle().alerts if r.name == f"{PREFIX}Reenable")
    (silent,) = re.findall(r"ALERTS\{([^}]*Disable[^}]*)\}\[1d\]", rule.body["expr"])
    assert "reason" not in silent
    assert "measure" not in silent
    page = text_of("alerts/runbooks/VLLMSpecDecodeReenable.md")
    assert "silent for a day after `VLLMSpecDecodeDisable` fired, whatever" in page
