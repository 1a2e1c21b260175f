"""What arrives at Slack, PagerDuty, a mail server and webhooks: real deliveries, as
golden files.

UPDATE_GOLDEN=1 writes the files anew. Times are taken out of them; one test looks at
these alone.
"""

import contextlib
import copy
import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from alertmanager import samples
from alertmanager.bundle import Addresses, alert, rule, test_config, write_secrets
from alertmanager.receivers import Delivery, Receivers, receivers
from alertmanager.samples import Alert, sample
from support.alertmanager import AlertmanagerServer
from support.golden import golden_text
from support.programs import eventually
from support.repository import Json
from vllm_specdec_exporter.commands.act.decision import decide

pytestmark = pytest.mark.full

GOLDEN = Path(__file__).parent / "golden"
EXTERNAL = "https://alertmanager.example.com"


@contextlib.contextmanager
def running(
    folder: Path, program: str, wait: str = "1s"
) -> Iterator[tuple[AlertmanagerServer, Receivers]]:
    """Run an Alertmanager with the committed configuration, that sends soon and only
    what is new.
    """
    with receivers() as received:
        write_secrets(folder, received.http)
        addresses = Addresses(folder, received.http, received.smtp)
        config = test_config(
            addresses, group_wait=wait, group_interval="1s", repeat_interval="1h"
        )
        # As for people who want to read what has ended as well; hints are only read.
        for receiver in config["receivers"]:
            for kind in ("slack_configs", "email_configs"):
                for entry in receiver.get(kind, ()):
                    entry["send_resolved"] = receiver["name"] != "hints"
        with AlertmanagerServer(
            config, external_url=EXTERNAL, program=program
        ) as manager:
            yield manager, received
            assert manager.failures() == 0, manager.log()


@pytest.fixture
def sent(
    tmp_path: Path, program: str
) -> Iterator[tuple[AlertmanagerServer, Receivers]]:
    """A running Alertmanager and what it sends to."""
    with running(tmp_path, program) as both:
        yield both


def now(**ago: float) -> str:
    """A time as Prometheus writes it."""
    return (datetime.now(UTC) - timedelta(**ago)).isoformat()


def fire(manager: AlertmanagerServer, *alerts: Alert) -> None:
    """Let alerts begin to fire.

    They begin a little ahead: a group with an alert that began longer ago than
    group_wait is sent at once, which on a slow machine would be before all of them are
    there.
    """
    begin = now(seconds=-20)
    manager.post(*({**each, "startsAt": begin} for each in alerts))


def resolve(manager: AlertmanagerServer, *alerts: Alert) -> None:
    """Let alerts end now."""
    manager.post(
        *({**each, "startsAt": now(minutes=1), "endsAt": now()} for each in alerts)
    )


_TIME = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d")
_ISO_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d(:\d\d\.\d+(Z|\+00:00))?")


def golden(name: str, content: Any) -> None:
    """Compare what arrived with a golden file; JSON is indented, times are all the
    same.
    """
    if isinstance(content, str):
        text = content
    else:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    text = _TIME.sub("2026-03-01 12:00", _ISO_TIME.sub("2026-03-01T12:00:00Z", text))
    assert text == golden_text(GOLDEN / name, text)
    assert "<no value>" not in text
    assert "ZgotmplZ" not in text
    assert not re.search(
        r"(?m)^[•\-*]?\s*[A-Z][a-z]+:\s*$", text.replace("Resolved:\n", "")
    ), "an empty item"


def golden_page(name: str, page: Delivery) -> None:
    """Compare what PagerDuty got with a golden file, but for the key of the incident,
    and for numbers that were text before Alertmanager 0.33.
    """
    body = copy.deepcopy(page.body)
    details = body["payload"]["custom_details"]
    for count in ("num_firing", "num_resolved"):
        details[count] = int(details[count])
    golden(name, {**body, "dedup_key": "..."})


def slack(received: Receivers, channel: str, count: int = 1) -> list[Json]:
    """The messages to a channel, once there are so many."""

    def messages() -> list[Json]:
        bodies = [delivery.body for delivery in received.to("/slack")]
        return [body for body in bodies if body["channel"] == channel]

    eventually(lambda: len(messages()) >= count)
    return messages()


def webhook(received: Receivers, path: str) -> Json:
    """What a webhook got last, without what Alertmanager keeps for itself, and what
    only newer ones say.
    """
    body = dict(received.to(path)[-1].body)
    del body["groupKey"]
    body.pop("notification_reason", None)
    return body


Sent = tuple[AlertmanagerServer, Receivers]


def test_a_page_fires_changes_and_resolves(sent: Sent) -> None:
    """One incident at PagerDuty for one model, and the same in Slack; the secret is
    that of the file.
    """
    manager, received = sent
    elsewhere = samples.harmful()
    elsewhere["labels"]["replica"] = "b"
    fire(manager, samples.harmful(), elsewhere)
    golden("page/slack-firing.json", slack(received, "#specdec-page")[-1])
    pages = received.to("/pagerduty")
    golden_page("page/pagerduty-firing.json", pages[-1])
    assert pages[-1].body["routing_key"] == "routing"

    resolve(manager, elsewhere)
    golden("page/slack-one-resolved.json", slack(received, "#specdec-page", 2)[-1])
    golden_page("page/pagerduty-one-resolved.json", received.to("/pagerduty", 2)[-1])

    resolve(manager, samples.harmful())
    golden("page/slack-resolved.json", slack(received, "#specdec-page", 3)[-1])
    pages = received.to("/pagerduty", 3)
    golden_page("page/pagerduty-resolved.json", pages[-1])
    assert len({page.body["dedup_key"] for page in pages}) == 1
    assert [page.body["event_action"] for page in pages] == [
        "trigger",
        "trigger",
        "resolve",
    ]


def test_a_ticket_shows_the_model_first_and_the_first_five_of_many_engines(
    sent: Sent,
) -> None:
    """In Slack and by mail, firing and resolved; the mail server got the password of
    the file.
    """
    manager, received = sent
    engines = list(map(samples.outlier, range(8)))
    said = f"Over 30 minutes few draft tokens of {samples.MODEL} in chat are accepted."
    figures = ("31.4% accepted", "40% accepted", "108k drafts in 30m")
    poor = sample("AcceptanceLow", "deep-dive", said, *figures)
    fire(manager, *engines, poor)
    golden("ticket/slack-firing.json", slack(received, "#specdec-tickets")[-1])
    (mail,) = received.mailed()
    assert mail.password == "of the mail server"
    assert mail.recipients == ("specdec-team@example.com",)
    golden("ticket/email-firing.subject.txt", f"{mail.message['subject']}\n")
    golden("ticket/email-firing.txt", mail.part("plain"))
    golden("ticket/email-firing.html", mail.part("html"))

    resolve(manager, *engines, poor)
    golden("ticket/slack-resolved.json", slack(received, "#specdec-tickets", 2)[-1])
    mail = received.mailed(2)[-1]
    golden("ticket/email-resolved.txt", mail.part("plain"))
    golden("ticket/email-resolved.html", mail.part("html"))


def test_lost_monitoring_names_the_namespace_or_nothing(sent: Sent) -> None:
    """Alerts without a model, one without any label of a place."""
    manager, received = sent
    down = "None of the exporters in chat has answered Prometheus for 5 minutes."
    absent = "Exporters were scraped within the last day, and none for an hour."
    nowhere = {"severity": "warning", "cluster": "", "namespace": ""}
    fire(
        manager,
        sample("MonitoringLost", "exporter", down, severity="critical", reason="down"),
        sample("MonitoringLost", "exporter", absent, reason="absent", **nowhere),
    )
    golden("monitoring/slack-page.json", slack(received, "#specdec-page")[-1])
    golden_page("monitoring/pagerduty.json", received.to("/pagerduty")[-1])
    golden("monitoring/slack-ticket.json", slack(received, "#specdec-tickets")[-1])
    golden("monitoring/email.txt", received.mailed()[-1].part("plain"))


def test_a_hint_is_a_message_and_nothing_when_it_ends(sent: Sent) -> None:
    """No page, no mail."""
    manager, received = sent
    hints = [
        sample(
            "RequestsUnobserved",
            "requests",
            f"The exporter at {pod} in chat has observed 180 requests, and no answer "
            "had a record.",
            reason="no_record",
            pod=pod,
        )
        for pod in ("vllm-0", "vllm-1")
    ]
    fire(manager, *hints)
    golden("hints/slack.json", slack(received, "#specdec-hints")[-1])
    resolve(manager, *hints)
    time.sleep(2.5)
    assert [delivery.path for delivery in received.deliveries] == ["/slack"]
    assert not received.mails


def test_a_decision_goes_to_the_webhook_and_becomes_a_ticket(sent: Sent) -> None:
    """With the token of the file, all labels and annotations, and resolved as well."""
    manager, received = sent
    said = (
        f"For 15 minutes {samples.MODEL} in chat has accepted too few draft tokens by "
        "the published rule."
    )
    figures = ("31.4% accepted", "50% accepted", "18k drafts in 5m", "speedup 0.81x")
    decisions = [
        sample("Disable", "overview", said, *figures),
        sample("KChangeAdvised", "cost", "Comes once nothing says disable."),
    ]
    fire(manager, *decisions)
    golden("actions/webhook-firing.json", webhook(received, "/actions"))
    assert received.to("/actions")[-1].authorization == "Bearer of-act"
    understood = decide(json.dumps(received.to("/actions")[-1].body).encode())
    decided = [(event.label("action"), event.why) for event in understood]
    assert set(decided) == {("disable", "")}, decided
    golden("actions/slack.json", slack(received, "#specdec-tickets")[-1])
    resolve(manager, decisions[0])
    received.to("/actions", 2)
    later = webhook(received, "/actions")["alerts"]
    assert {(fired["labels"]["action"], fired["status"]) for fired in later} == {
        ("disable", "resolved"),
        ("increase_k", "firing"),
    }


def test_the_watchdog_is_sent_at_once_to_its_own_webhook(
    tmp_path: Path, program: str
) -> None:
    """And nowhere else."""
    with running(tmp_path, program, wait="0s") as (manager, received):
        fire(
            manager,
            sample("Watchdog", "exporter", rule("Watchdog").annotations["description"]),
        )
        golden("watchdog/webhook.json", webhook(received, "/watchdog"))
        assert received.to("/watchdog")[-1].authorization == "Bearer of-the-watchdog"
        assert {delivery.path for delivery in received.deliveries} == {"/watchdog"}


#: A link in Slack to one of our pages, with a word as its text.
_LINK = re.compile(r"https://(grafana|alertmanager)\.example\.com/[^|]*\|[A-Z][a-z]+")


class _Links(HTMLParser):
    """The tags and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_hostile_values_are_text_in_every_format(sent: Sent) -> None:
    """No mention, link, tag or header comes out of a value."""
    manager, received = sent
    ticket = samples.hostile("warning")
    ticket["labels"]["cluster"] += " elsewhere"  # else the page silences it
    fire(manager, samples.hostile("critical"), ticket)
    page = slack(received, "#specdec-page")[-1]
    golden("hostile/slack.json", page)
    golden_page("hostile/pagerduty.json", received.to("/pagerduty")[-1])

    attachment = page["attachments"][0]
    texts = [attachment["title"], attachment["fallback"], attachment["text"]]
    texts += [each["value"] for each in attachment["fields"]]
    marked = re.findall(r"<([^>]*)>", "\n".join(texts))
    assert [text for text in marked if not _LINK.fullmatch(text)] == []
    assert not page.get("link_names")

    (mail,) = received.mailed()
    golden("hostile/email.txt", mail.part("plain"))
    golden("hostile/email.html", mail.part("html"))
    assert mail.message["bcc"] is None
    assert mail.recipients == ("specdec-team@example.com",)
    links = _Links()
    links.feed(mail.part("html"))
    assert not {"b", "i", "script"} & links.tags
    ours = ("https://grafana.example.com/", EXTERNAL)
    assert [link for link in links.links if not link.startswith(ours)] == []


def test_what_is_missing_is_not_shown(sent: Sent) -> None:
    """An alert without annotations, summary and labels: no empty item, no `<no value>`,
    no empty link.
    """
    manager, received = sent
    unnamed = {"labels": {"alertname": "VLLMSpecDecodeOwn"}}
    fire(manager, unnamed, alert(rule("Harmful", severity="critical")))
    golden("bare/slack.json", slack(received, "#specdec-tickets")[-1])
    (mail,) = received.mailed()
    golden("bare/email.subject.txt", f"{mail.message['subject']}\n")
    golden("bare/email.txt", mail.part("plain"))
    golden("bare/email.html", mail.part("html"))
    page = received.to("/pagerduty")[-1]
    golden_page("bare/pagerduty.json", page)
    assert [link["text"] for link in page.body["links"]] == ["Silence"]
    details = page.body["payload"]["custom_details"]
    assert "" not in details.values()


def test_times_are_those_of_the_alert(sent: Sent) -> None:
    """In UTC: since when it fires, and from when to when it fired."""
    manager, received = sent
    begun = {**samples.harmful(), "startsAt": "2026-03-01T13:05:00+01:00"}
    manager.post(begun)
    text = slack(received, "#specdec-page")[-1]["attachments"][0]["text"]
    assert "• Since: 2026-03-01 12:05 UTC\n" in text
    details = received.to("/pagerduty")[-1].body["payload"]["custom_details"]
    assert "  Since: 2026-03-01 12:05 UTC" in details["firing"]
    manager.post({**begun, "endsAt": "2026-03-02T01:10:00+01:00"})
    text = slack(received, "#specdec-page", 2)[-1]["attachments"][0]["text"]
    assert text.endswith(": 2026-03-01 12:05 to 2026-03-02 00:10 UTC")


def silence_links(received: Receivers) -> set[str]:
    """The addresses for a silence, out of Slack and of both parts of the mail."""
    text = slack(received, "#specdec-tickets")[-1]["attachments"][0]["text"]
    mail = received.mailed()[-1]
    links = _Links()
    links.feed(mail.part("html"))
    addresses = re.findall(r"<([^|>]*)\|Silence>", text)
    addresses += [link for link in links.links if "/silences/" in link]
    addresses += re.findall(r"Silence: (\S+)", mail.part("plain"))
    assert len(addresses) == 3
    return set(addresses)


@pytest.mark.parametrize("model", [samples.MODEL, "a \"b\" 'c' + d & <e> \\ % é"])
def test_the_link_to_a_silence_fits_its_alert_alone(sent: Sent, model: str) -> None:
    """Its matchers, taken from the address, select the alert and not that of another
    engine or model.
    """
    manager, received = sent
    fired = alert(rule("EngineOutlier"), model_name=model, engine="3")
    fire(manager, fired)
    addresses = silence_links(received)
    fire(
        manager,
        alert(rule("EngineOutlier"), model_name=model, engine="4"),
        alert(rule("EngineOutlier")),
    )
    names = {"alertname", "cluster", "engine", "instance", "model_name", "namespace"}
    for address in addresses:
        assert address.startswith(f"{EXTERNAL}/#/silences/new?filter="), address
        text = urllib.parse.unquote(address.partition("?filter=")[2])
        matchers = re.findall(r'[a-z_]+="(?:[^"\\]|\\.)*"', text)
        assert f"{{{','.join(matchers)}}}" == text, address
        assert {matcher.partition("=")[0] for matcher in matchers} == names, address
        (silenced,) = manager.alerts(*matchers)
        assert silenced["labels"] == fired["labels"], address
