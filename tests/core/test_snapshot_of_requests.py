"""The snapshot of single requests: there and back, and filtered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from per_request.results import RESULTS
from per_request.traffic import MODEL
from statuspage.examples import PAGES, page_of
from vllm_specdec_exporter import snapshot
from vllm_specdec_exporter.metric import Scope
from vllm_specdec_exporter.metrics import METRICS

SCOPES = (Scope.REQUESTS, Scope.GROUP, Scope.TENANT, Scope.MODEL, Scope.RECENT)
ROWS = [row.name for row in METRICS if row.scope in SCOPES]
#: Where what metrics of a scope hang on stands, and what tells one of them from the next.
PLACES = {
    Scope.GROUP: ("groups", {"model_name", "temperature", "request_type"}),
    Scope.TENANT: ("tenants", {"model_name", "tenant"}),
    Scope.MODEL: ("models", {"model_name", "window"}),
    Scope.RECENT: ("models", {"model_name", "window"}),
}
TWO = replace(PAGES["healthy"], requests=RESULTS["two-models"])
MIXED = replace(PAGES["healthy"], requests=RESULTS["mixed"])


def filtered(page: Any, *query: tuple[str, str]) -> bytes:
    return snapshot.encode(page, snapshot.parse_filter(query, ["30s", "5m"]))


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_known_survives_the_way_there_and_back(name: str) -> None:
    """The JSON holds all of it, and is what the schema says."""
    page = replace(page_of(), requests=RESULTS[name])
    body = snapshot.encode(page)
    assert snapshot.decode(body) == page
    jsonschema.validate(json.loads(body), snapshot.schema())


def test_without_tap_and_push_there_is_nothing_of_requests() -> None:
    """It is null, which is not the same as no request so far."""
    assert json.loads(snapshot.encode(PAGES["healthy"]))["requests"] is None
    nothing = json.loads(snapshot.encode(replace(PAGES["healthy"], requests=RESULTS["nothing"])))
    assert nothing["requests"]["models"] == []


def test_a_model_may_be_asked_for() -> None:
    """Its engines, its groups, its tenants and its judgement; what belongs to no model stays."""
    found = snapshot.decode(filtered(TWO, ("model_name", "an-adapter")))
    assert [len(target.engines) for target in found.targets] == [0]
    assert found.requests is not None
    assert {group.model_name for group in found.requests.groups} == {"an-adapter"}
    assert [(tenant.model_name, tenant.tenant) for tenant in found.requests.tenants] == [
        ("an-adapter", "globex")
    ]
    assert [model.model_name for model in found.requests.models] == ["an-adapter"]
    assert TWO.requests is not None
    assert found.requests.observations == TWO.requests.observations


@pytest.mark.parametrize("query", [("engine", "7"), ("window", "30s")])
def test_engines_and_windows_are_no_matter_of_requests(query: tuple[str, str]) -> None:
    """No request knows its engine, and the window of requests is another."""
    found = snapshot.decode(filtered(TWO, query))
    assert found.requests == TWO.requests


@pytest.mark.parametrize("name", ROWS)
def test_a_metric_may_be_asked_for(name: str) -> None:
    """Its values are there, as in the whole, and beside them nothing but what tells them apart."""
    (row,) = (row for row in METRICS if row.name == name)
    whole = json.loads(snapshot.encode(MIXED))["requests"]
    thin = json.loads(filtered(MIXED, ("metric", row.full_name)))["requests"]
    field = row.field.split(".")[0]
    if row.scope is Scope.REQUESTS:
        assert thin == {field: whole[field]}
        return
    place, identity = PLACES[row.scope]
    assert set(thin) == {place}
    assert [set(thing) for thing in thin[place]] == [identity | {field}] * len(whole[place])
    for thing, full in zip(thin[place], whole[place], strict=True):
        assert thing == {key: full[key] for key in thing}
    decoded = snapshot.decode(filtered(MIXED, ("metric", name)))
    values = [[row.value(thing) for thing in getattr(page.requests, place)] for page in (decoded, MIXED)]
    assert values[0] == values[1]


def test_several_metrics_of_one_thing_stand_together() -> None:
    """Of windows and of all time, of groups and of models."""
    body = filtered(
        MIXED, ("metric", "request_losing_ratio,request_workload_mixed"), ("metric", "request_drafts_total")
    )
    thin = json.loads(body)["requests"]
    assert set(thin) == {"groups", "models"}
    assert thin["models"] == [
        {
            "model_name": MODEL,
            "window": "30m",
            "losing_requests_ratio": pytest.approx(0.39),
            "mixed": True,
        }
    ]
    assert {frozenset(group) for group in thin["groups"]} == {
        frozenset({"model_name", "temperature", "request_type", "drafts"})
    }


def test_other_metrics_leave_requests_out() -> None:
    """What a filter does not want is not there at all."""
    assert "requests" not in json.loads(filtered(MIXED, ("metric", "up")))


def test_a_metric_of_requests_where_there_are_none_is_no_error() -> None:
    """Neither tap nor push: nothing to show, and the rest is as ever."""
    document = json.loads(filtered(PAGES["healthy"], ("metric", "request_losing_ratio")))
    assert "requests" not in document
    assert document["targets"][0]["target"] == "http://vllm:8000"


def test_the_tap_may_be_asked_for_where_there_is_none() -> None:
    """Pushes alone have no tap: that is null."""
    page = replace(PAGES["healthy"], requests=RESULTS["gaining"])
    thin = json.loads(filtered(page, ("metric", "tap_open_connections")))
    assert thin["requests"] == {"tap": None}


def test_a_model_and_a_metric_go_together() -> None:
    """Both filters hold."""
    body = filtered(TWO, ("model_name", "an-adapter"), ("metric", "window_requests"))
    assert json.loads(body)["requests"] == {
        "models": [{"model_name": "an-adapter", "window": "30m", "window_requests": 60}]
    }
