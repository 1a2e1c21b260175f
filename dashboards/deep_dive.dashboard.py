"""Deep dive: why one model gains or loses: at first the one that loses most."""

from grafana_panels import (
    acceptance,
    annotations,
    choice_of_k,
    glossary,
    latency,
    links,
    variables,
    verdict,
)
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import named, word_mapping
from grafana_panels.models import models_table
from grafana_panels.promql import IDENTITY, MODEL, Flow, growth, metric, recorded, total
from grafana_panels.table import Column, joined_table
from mixin import CLUSTER

NOW = Flow(IDENTITY, now=True)
#: By the rules, which count a probable loss as one, or without them, what the exporter
#: says.
_RULED = f"engine:{metric('speedup:last3m')}"
FAST = f"{_RULED} or ({metric('speedup')} unless on ({IDENTITY}) {_RULED})"

model = models_table(
    "Verdict and what to do",
    "As on the Overview. Modelled: nothing of this server is timed.",
    "no model, or no rules",
    states=recorded(verdict.STATE),
    why_width=200,
    rows=5,
)

engines = joined_table(
    "Engines",
    (
        "Worst first. One engine below its peers: compare K, version and traffic. "
        "Click an instance."
    ),
    {
        **variables.PLACES,
        "target": "Server",
        "model_name": "Model",
        "engine": "Engine",
    },
    [
        Column(
            "Verdict",
            verdict.of_engines(),
            width=162,
            mappings=word_mapping(verdict.VERDICTS),
            filled=True,
        ),
        Column(
            "Speedup, 3 m",
            total(FAST, IDENTITY, "max"),
            unit="suffix:×",
            decimals=2,
            width=110,
        ),
        Column(
            "Acceptance", NOW.acceptance(), unit="percentunit", decimals=0, width=95
        ),
        Column("Length", NOW.length(), decimals=2, width=65),
        Column(
            "Drafts, 5 m",
            growth("vllm_specdec_drafts_total", by=IDENTITY, over="5m"),
            unit="locale",
            decimals=0,
            width=95,
        ),
        Column(
            "K", total(metric("num_speculative_tokens"), IDENTITY), decimals=0, width=50
        ),
        Column(
            "Estimated K",
            f"{total(metric('recommended_num_speculative_tokens'), IDENTITY)} "
            f"unless on ({MODEL}) {choice_of_k.OVERRULED}",
            decimals=0,
            width=100,
        ),
    ],
    hidden=["job"],
    overrides=[
        named("Model", custom__hidden=True),
        named(
            "Instance",
            links=[
                links.only(
                    links.DEEP_DIVE,
                    "This instance",
                    "instance",
                    "Instance",
                    (
                        "datasource",
                        CLUSTER,
                        "namespace",
                        "model_name",
                        "pod",
                        "engine",
                        "window",
                    ),
                ),
                {
                    "targetBlank": True,
                    "title": "Status page",
                    "url": "http://${__data.fields.Instance}/",
                },
            ],
        ),
    ],
    no_value="no engine, or no exporter",
    sort=("Verdict", False),
    rows=5,
)

dashboard = Dashboard(
    uid=links.DEEP_DIVE,
    title="Deep dive",
    description=(
        "Why does a model gain or lose, and what should be changed: K, method or load?"
    ),
    page="tuning.md",
    sections=[
        (
            "",
            [glossary.of_models(), model, engines, *latency.why, acceptance.by_pod],
        ),
        ("Which K?", choice_of_k.which_k),
        ("Where in a draft are tokens lost?", acceptance.by_position),
        ("Has acceptance changed?", acceptance.changes),
        ("Cost", choice_of_k.cost),
        ("Load", latency.load),
    ],
    folded=("Cost", "Load"),
    variables=variables.of_one_model(verdict.harm),
    marks=annotations.marks(),
    of_one_model=True,
)
