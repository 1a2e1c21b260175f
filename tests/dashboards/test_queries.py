"""What dashboards query: series that exist, narrowed down by every variable, at
Grafana's rates.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, starmap
from pathlib import Path
from typing import NamedTuple

import promql_parser as promql
import pytest

from alerts.lint import RUNBOOKS, read_bundle, records
from alerts.lint.bundle import RATES, nodes, selector_name
from alerts.lint.series import SPELLINGS
from alerts.promtool import History, verify
from alerts.promtool import Query as Asked
from alerts.world import MODEL, Phase, World, idle
from dashboards.documents import Json, dashboards, every_panel, named_panels
from dashboards.series import DURATIONS, exists, labels, matchers, tree

#: Labels that a variable of the same name narrows down.
NARROWED = ("cluster", "namespace", "model_name", "window")
#: The same of the exporter's own series of engines, in panels.
OF_ENGINES = ("pod", "engine")
#: What must be equal, by board: Grafana does not escape the value of a variable that
#: has only one.
EXACT = {
    ("window", "overview"),
    ("window", "lite"),
    ("window", "deep-dive"),
    ("model_name", "deep-dive"),
}
#: Counted for all models: the tap does not know which one a request is of.
OF_ALL_MODELS = {
    ("Data by request", "vllm:request_success_total"),
    ("Observed and finished requests", "vllm:request_success_total"),
}
#: Ratios whose mean over engines is meant: the size of a cache is not known.
MEANT = ("vllm_specdec_kv_cache_usage_ratio",)
#: Characters of a query that can still be read, as the longest of kube-prometheus;
#: longer ones are recorded.
MAX_QUERY = 900
_VARIABLE = re.compile(r"label_values\((.+), \w+\)|query_result\((.+)\)", re.DOTALL)
_RATIO = re.compile(r"vllm_specdec_\w*(_ratio|speedup|_length)|:ratio_")


class Query(NamedTuple):
    """A query: its dashboard, its panel, annotation or variable, its PromQL, and the
    variables it may use.
    """

    dashboard: str
    source: str
    expr: str
    usable: tuple[str, ...]

    @property
    def selectors(self) -> list[promql.VectorSelector]:
        """What it selects."""
        return list(nodes(tree(self.expr), promql.VectorSelector))


def _queries(uid: str, dashboard: Json) -> Iterator[Query]:
    variables = dashboard["templating"]["list"]
    names = tuple(variable["name"] for variable in variables)
    for panel in every_panel(dashboard):
        for target in panel.get("targets", ()):
            yield Query(uid, panel["title"], target["expr"], names)
    for mark in dashboard["annotations"]["list"]:
        if "expr" in mark:
            yield Query(uid, f"annotation {mark['name']}", mark["expr"], names)
    for at, variable in enumerate(variables):
        if variable["type"] == "query":
            match = _VARIABLE.fullmatch(variable["query"]["query"])
            assert match is not None, variable["name"]
            yield Query(
                uid, f"variable {variable['name']}", match[1] or match[2], names[:at]
            )


QUERIES = list(chain.from_iterable(starmap(_queries, dashboards().items())))


def test_every_series_exists() -> None:
    """Also those in branches that no world of the tests reaches."""
    missing = {
        (query, selector_name(selector))
        for query in QUERIES
        for selector in query.selectors
        if not exists(selector_name(selector))
    }
    assert missing == set()


def test_rates_are_over_grafanas_rate_interval_or_minutes() -> None:
    """At least four scrapes, and no less than a pixel; where a window is meant, it has
    five minutes.
    """
    short = set()
    for query in QUERIES:
        for call in nodes(tree(query.expr), promql.Call):
            if call.func.name in RATES:
                ranges = promql.MatrixSelector | promql.SubqueryExpr
                for inner in nodes(call.args[0], ranges):
                    seconds = inner.range.total_seconds()
                    is_interval = round(seconds * 1000) == DURATIONS["__rate_interval"]
                    if seconds < 300 and not is_interval:
                        short.add((query, str(call)))
    assert short == set()


def test_only_amounts_by_the_second_are_of_rates() -> None:
    """VictoriaMetrics divides `rate` by the time between a series' own samples: a ratio
    would weigh a pod of two minutes as one that lived all the window.
    """
    of_rates = {
        query.source
        for query in QUERIES
        for call in nodes(tree(query.expr), promql.Call)
        if call.func.name == "rate"
    }
    assert of_rates == {
        "Tokens per second of vLLM",
        "Failed polls by reason",
        "Requests by outcome",
        "Requests by temperature",
        "Requests by type",
        "Observed and finished requests",
        "Requests of the tap that it could not read or send",
    }
    # Those of one exporter by the second.
    assert {
        path.stem for path in RUNBOOKS.glob("*.md") if "rate(" in path.read_text()
    } == {
        "VLLMSpecDecodeRequestsUnobserved",
        "VLLMSpecDecodeTapFailing",
    }


def _spelled_once(expr: str) -> str:
    """Return a query without the other spellings of a series, which find nothing."""
    others = "|".join(chain.from_iterable(prefixes[1:] for prefixes in SPELLINGS))
    braces = r'\{(?:[^"}]|"[^"]*")*\}'
    return re.sub(rf" or (\w+\()?({others})\w+{braces}(\[[^]]*\]\))?", "", expr)


def test_no_query_is_a_burden() -> None:
    """A subquery is evaluated for a whole range at each point: over time, rules record
    such things.
    """
    long = [query for query in QUERIES if len(_spelled_once(query.expr)) > MAX_QUERY]
    assert long == []
    for name, panel in named_panels().items():
        for target in panel.get("targets", ()):
            subqueries = nodes(tree(target["expr"]), promql.SubqueryExpr)
            assert target["instant"] or not any(subqueries), (name, target["refId"])


def test_no_ratio_is_averaged() -> None:
    """It is weighted with what it divides by, or sums are divided: replicas are of very
    different traffic.
    """
    averaged = set()
    for query in QUERIES:
        for node in nodes(tree(query.expr), promql.AggregateExpr):
            if str(node.op) in ("avg", "quantile"):
                for selector in nodes(node.expr, promql.VectorSelector):
                    name = selector_name(selector)
                    if _RATIO.search(name) and name not in MEANT:
                        averaged.add((query, name))
    assert averaged == set()


def lacking(selector: promql.VectorSelector, query: Query) -> Iterator[str]:
    """Yield the variables that apply to a selector and do not narrow it down."""
    there = labels(selector)
    alert = selector_name(selector) == "ALERTS"
    of_engine = selector_name(selector).startswith(("vllm_specdec_", "engine:"))
    of_engine = of_engine and {"model_name", "engine"} <= there
    in_panel = not query.source.startswith(("annotation ", "variable "))
    for label in NARROWED:
        if (
            label not in there
            or label not in query.usable
            or (alert and label == "window")
        ):
            continue
        exact = (label, query.dashboard) in EXACT and not alert
        operator = promql.MatchOp.Equal if exact else promql.MatchOp.Re
        # An alert of an exporter has no model: "or none" is as good there.
        if alert:
            wanted = {f"${label}", f"${label}|", f"${{{label}:regex}}|"}
        else:
            wanted = {f"${label}"}
        if not any(
            (m.name, m.op) == (label, operator) and m.value in wanted
            for m in matchers(selector)
        ):
            yield label
    chosen = {
        (m.name, m.value) for m in matchers(selector) if m.op == promql.MatchOp.Re
    }
    if of_engine and in_panel and query.dashboard == "deep-dive":
        yield from (label for label in OF_ENGINES if (label, f"${label}") not in chosen)


def is_joined(selector: promql.VectorSelector, query: Query) -> bool:
    """Return whether it is a record of all models that is joined with one of the chosen
    models.
    """
    every = []
    chosen = []
    for selected in query.selectors:
        if not selector_name(selected).startswith("model:"):
            continue
        if not {matcher.name for matcher in matchers(selected)} & set(NARROWED):
            every.append(selected)
        elif not [*lacking(selected, query)]:
            chosen.append(selected)
    if selector not in every:
        return False
    for node in nodes(tree(query.expr), promql.BinaryExpr):
        if str(node.op) == "or" or str(node.modifier).startswith("on ()"):
            continue
        left = [*nodes(node.lhs, promql.VectorSelector)]
        right = [*nodes(node.rhs, promql.VectorSelector)]
        for side, opposite in ((left, right), (right, left)):
            if selector in side and any(partner in opposite for partner in chosen):
                return True
    return False


def is_of_all_models(selector: promql.VectorSelector, query: Query) -> bool:
    """Return whether it stands beside what has no model."""
    spelled = selector_name(selector)
    for prefixes in SPELLINGS:
        for prefix in prefixes:
            spelled = re.sub(f"^{re.escape(prefix)}", prefixes[0], spelled)
    return (query.source, spelled) in OF_ALL_MODELS and set(
        lacking(selector, query)
    ) == {"model_name"}


def test_every_selector_is_narrowed_down_by_every_variable_that_applies() -> None:
    """But what is joined with narrowed ones; and since when alerts are active, matched
    with the alerts.
    """
    for query in QUERIES:
        for selector in query.selectors:
            if (
                selector_name(selector) == "ALERTS_FOR_STATE"
                or 'alertname="VLLMSpecDecodeWatchdog"' in str(selector)
                or is_of_all_models(selector, query)
                or is_joined(selector, query)
            ):
                continue
            assert list(lacking(selector, query)) == [], (selector, query)


_EVERY = "model:vllm_specdec_speedup:ratio_rate1d"
_CHOSEN = 'model:vllm_specdec_speedup:ratio_rate5m{model_name="$model_name"}'


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (f"{_CHOSEN} * on (model_name) {_EVERY}", True),
        (f"{_CHOSEN} * on (model_name) {_CHOSEN} or {_EVERY}", False),
        (f"{_CHOSEN} unless on () {_EVERY}", False),
        (f"{_EVERY} * on (model_name) {_EVERY} or {_CHOSEN}", False),
    ],
)
def test_a_record_of_all_models_is_narrowed_down_by_what_it_is_joined_with_alone(
    expr: str, expected: bool
) -> None:
    query = Query("deep-dive", "", expr, ("model_name",))
    record = next(s for s in query.selectors if "1d" in str(s))
    assert is_joined(record, query) is expected


# --- what they give, of few series


def _verify(
    folder: Path, world: World, part: str, samples: Mapping[str, float]
) -> None:
    """Assert what queries give that have this part, joined by `or`, with all of one
    model chosen.
    """
    queries = [
        query.expr
        for query in QUERIES
        if query.dashboard == "deep-dive" and part in query.expr
    ]
    expr = re.sub(r"\$\w+", ".*", " or ".join(queries).replace("$model_name", MODEL))
    expr = f"round({expr}, 0.1)"
    rules = {name for name in records(read_bundle()) if name in expr}
    complaint = verify(
        folder, History("board", world, [Asked(18, expr, samples)]), rules=rules
    )
    assert complaint == "", complaint


@pytest.mark.parametrize(
    ("in_use", "advised", "todo"),
    [
        ((3, 3), (3, 4), "20"),
        ((3, 3), (4, 5), "10 3 4 estimated"),
        ((2, 3), (3, 3), "8"),
        ((3, 3), (3, 3), "20"),
    ],
)
def test_k_is_kept_where_all_engines_have_the_advised_one(
    in_use: tuple[int, int], advised: tuple[int, int], todo: str, tmp_path: Path
) -> None:
    """Of an even number of engines the lower middle is advised: K is a whole number."""
    world = World()
    for n, (k, better) in enumerate(zip(in_use, advised, strict=True)):
        phase = Phase(20, acceptance=(0.9, 0.8, 0.7)[:k], recommended_k=better)
        world.engine(phase, instance=f"10.0.0.{n}:9850")
    labels = f'model_name="{MODEL}", namespace="chat", todo="{todo}"'
    _verify(tmp_path, world, '"todo"', {f"{{{labels}}}": 1.0})


def test_an_engine_is_as_fast_as_the_rules_say(tmp_path: Path) -> None:
    """Against a replica without speculation 0.8, and not what the exporter says without
    one.
    """
    world = World()
    world.engine(Phase(20, acceptance=(0.6, 0.4), speedup=1.5, step_seconds=0.07))
    world.engine(
        idle(20, activity="off", step_fit=(0.02, 0.001)), instance="10.0.0.2:9850"
    )
    labels = (
        'engine="0", instance="10.0.0.1:9850", job="vllm-specdec-exporter", '
        'namespace="chat"'
    )
    _verify(
        tmp_path,
        world,
        "engine:vllm_specdec_speedup:last3m{",
        {f'{{{labels}, model_name="{MODEL}"}}': 0.8},
    )
