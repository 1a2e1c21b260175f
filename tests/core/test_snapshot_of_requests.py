"""The snapshot of single requests: there and back, and filtered."""

import json
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from per_request.results import RESULTS
from statuspage.examples import PAGES, page_of
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish.metrics import METRICS, Metric, MetricScope

SCOPES = (
    MetricScope.REQUESTS,
    MetricScope.GROUP,
    MetricScope.TENANT,
    MetricScope.MODEL,
    MetricScope.RECENT,
)
ROWS = [row for row in METRICS if row.scope in SCOPES]
#: Where what metrics of a scope hang on stands, and what tells one of them from the
#: next.
PLACES = {
    MetricScope.GROUP: ("groups", {"model_name", "temperature", "request_type"}),
    MetricScope.TENANT: ("tenants", {"model_name", "tenant"}),
    MetricScope.MODEL: ("models", {"model_name", "window"}),
    MetricScope.RECENT: ("models", {"model_name", "window"}),
}
TWO = replace(PAGES["healthy"], requests=RESULTS["two-models"])
MIXED = replace(PAGES["healthy"], requests=RESULTS["mixed"])


def filtered(page: Any, *query: tuple[str, str]) -> bytes:
    return snapshot.encode(page, snapshot.parse_filter(query, ["30s", "5m"]))


def test_what_is_known_survives_the_way_there_and_back() -> None:
    """The JSON holds all of it, and is what the schema says."""
    schema = snapshot.schema()
    validator = jsonschema.validators.validator_for(schema)(schema)
    for name, result in RESULTS.items():
        page = replace(page_of(), requests=result)
        body = snapshot.encode(page)
        assert snapshot.decode(body) == page, name
        assert list(validator.iter_errors(json.loads(body))) == [], name


def test_without_tap_and_push_there_is_nothing_of_requests() -> None:
    """It is null, which is not the same as no request so far."""
    assert json.loads(snapshot.encode(PAGES["healthy"]))["requests"] is None
    nothing = json.loads(
        snapshot.encode(replace(PAGES["healthy"], requests=RESULTS["nothing"]))
    )
    assert nothing["requests"]["models"] == []


def test_a_model_may_be_asked_for() -> None:
    """Its engines, its groups, its tenants and its judgement; what belongs to no model
    stays.
    """
    page = snapshot.decode(filtered(TWO, ("model_name", "an-adapter")))
    assert [len(target.engines) for target in page.targets] == [0]
    assert {group.model_name for group in page.requests.groups} == {"an-adapter"}
    assert [(tenant.model_name, tenant.tenant) for tenant in page.requests.tenants] == [
        ("an-adapter", "globex")
    ]
    assert [model.model_name for model in page.requests.models] == ["an-adapter"]
    assert page.requests.observations == TWO.requests.observations


def test_engines_and_windows_are_no_matter_of_requests() -> None:
    """No request knows its engine, and the window of requests is another."""
    for query in (("engine", "7"), ("window", "30s")):
        assert snapshot.decode(filtered(TWO, query)).requests == TWO.requests, query


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_any_metric_may_be_asked_for(row: Metric) -> None:
    """Its values are there, as in the whole, and beside them nothing but what tells
    them apart.
    """
    complete = json.loads(snapshot.encode(MIXED))["requests"]
    thin = json.loads(filtered(MIXED, ("metric", row.full_name)))["requests"]
    field = row.field.split(".")[0]
    if row.scope is MetricScope.REQUESTS:
        assert thin == {field: complete[field]}
        return
    section, identity = PLACES[row.scope]
    wanted = sorted(identity | {field})
    expected = [{key: full[key] for key in wanted} for full in complete[section]]
    assert expected
    assert thin == {section: expected}


def test_what_a_filter_does_not_want_or_find_is_not_there() -> None:
    """Without tap or push there is nothing to show, and the rest is as ever; pushes
    alone have no tap.
    """
    assert "requests" not in json.loads(filtered(MIXED, ("metric", "up")))
    document = json.loads(
        filtered(PAGES["healthy"], ("metric", "request_losing_ratio"))
    )
    assert "requests" not in document
    assert document["targets"][0]["target"] == "http://vllm:8000"
    page = replace(PAGES["healthy"], requests=RESULTS["gaining"])
    thin = json.loads(filtered(page, ("metric", "tap_open_connections")))
    assert thin["requests"] == {"tap": None}
