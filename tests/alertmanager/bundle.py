"""The committed configuration and the alerts of the bundle, as the tests need them."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from alerts.case import shown_labels
from alerts.lint import PREFIX, read_bundle
from support.repository import ROOT, Json, data_of
from vllm_specdec_exporter.commands.demo import faster

ALERTS = ROOT / "alerts"
CONFIG = ALERTS / "alertmanager.yml"
SECRETS = "/etc/alertmanager/secrets/"

#: Labels that an alert gets from its expression, where a route or an inhibition looks
#: at them.
FROM_EXPRESSION: Mapping[str, dict[str, str]] = {
    "KChangeAdvised": {"recommended_k": "5"},
    "Reenable": {"recommended_k": "3"},
}


@dataclass(frozen=True)
class Rule:
    """An alerting rule."""

    name: str  # without the prefix
    title: str  # the name, with what tells it from others of that name
    #: Its own, and those of its expression that routes and inhibitions look at.
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(repr=False)  # templates and all
    #: The labels by which its alerts name what they are about, as far as Prometheus
    #: attaches them
    target_labels: frozenset[str]


@cache
def rules() -> tuple[Rule, ...]:
    """Return the alerting rules of the bundle."""
    shown = shown_labels()
    rules = []
    for rule in read_bundle().alerts:
        name = rule.name.removeprefix(PREFIX)
        labels = FROM_EXPRESSION.get(name, {}) | dict(rule.labels)
        # That promtool shows, and two that no rule aggregates away and that few of its
        # histories have.
        level = labels.get("level", "")
        target = {"cluster", "target"} | shown[rule.name, level] - labels.keys()
        if level == "model":
            target.add("model_name")
        rules.append(
            Rule(
                name,
                rule.title,
                labels=labels,
                annotations=rule.annotations,
                target_labels=frozenset(target),
            )
        )
    return tuple(rules)


def rule(name: str, **labels: str) -> Rule:
    """Return the first rule of a name and these labels."""
    named = (source for source in rules() if source.name == name)
    return next(source for source in named if labels.items() <= source.labels.items())


WHERE = {
    "cluster": "eu",
    "namespace": "chat",
    "model_name": "llama",
    "job": "vllm-specdec-exporter",
    "instance": "10.0.0.1:9850",
    "pod": "vllm-0",
    "engine": "0",
}


def alert(source: Rule, **where: str) -> Json:
    """Return an alert of a rule as Prometheus sends it; what is empty in `where` is not
    there.
    """
    places = {
        name: value
        for name, value in (WHERE | where).items()
        if name in source.target_labels and value
    }
    return {"labels": {"alertname": PREFIX + source.name, **places, **source.labels}}


def config() -> Json:
    """Return the committed configuration."""
    return dict(data_of(CONFIG))


@dataclass(frozen=True)
class Addresses:
    """What a test puts in the place of the folder of secrets and of the addresses of
    the configuration.
    """

    secrets: Path
    http: str = "http://127.0.0.1:9"
    smtp: str = "127.0.0.1:9"


def test_config(addresses: Addresses, **times: str) -> Json:
    """Return the committed configuration with other addresses and times, and nothing
    else changed.
    """
    document = copy.deepcopy(config())
    document["templates"] = [str(CONFIG.parent / "templates/*.tmpl")]
    document["global"] |= {
        "slack_api_url_file": str(addresses.secrets / "slack-url"),
        "smtp_auth_password_file": str(addresses.secrets / "smtp-password"),
        "smtp_smarthost": addresses.smtp,
        "smtp_require_tls": False,
        "pagerduty_url": f"{addresses.http}/pagerduty",
    }
    for route in routes(document["route"]):
        route.update(times)
    for receiver in document["receivers"]:
        for webhook in receiver.get("webhook_configs", ()):
            webhook["url"] = f"{addresses.http}/{receiver['name']}"
            token = webhook["http_config"]["authorization"]
            token["credentials_file"] = token["credentials_file"].replace(
                SECRETS, f"{addresses.secrets}/"
            )
        for page in receiver.get("pagerduty_configs", ()):
            page["routing_key_file"] = page["routing_key_file"].replace(
                SECRETS, f"{addresses.secrets}/"
            )
    return document


def write_secrets(folder: Path, http: str) -> None:
    """Write the files that the configuration reads secrets from, beneath the address of
    a receiver.
    """
    for name, secret in {
        "slack-url": f"{http}/slack\n",
        "smtp-password": "of the mail server",
        "pagerduty-routing-key": "routing\n",
        "specdec-act-token": "of-act\n",
        "watchdog-token": "of-the-watchdog\n",
    }.items():
        (folder / name).write_text(secret)


def make_faster(document: Json, factor: float) -> None:
    """Let time pass so many times as fast for the routes of a configuration."""
    for route in routes(document["route"]):
        for name in ("group_wait", "group_interval", "repeat_interval"):
            if name in route:
                route[name] = faster(route[name], factor)


def faster_config(addresses: Addresses, factor: float) -> Json:
    """Return the committed configuration for a test in which time passes so many times
    as fast.
    """
    document = test_config(addresses)
    make_faster(document, factor)
    return document


test_config.__test__ = False


def routes(route: Json) -> Iterator[Json]:
    """Yield a route and all below it."""
    yield route
    for child in route.get("routes", ()):
        yield from routes(child)
