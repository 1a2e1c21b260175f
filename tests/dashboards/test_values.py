"""What panels show is right: reckoned again in Python, from the counters as they were scraped."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dashboards.documents import dashboards
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_catalogue import LLAMA, QWEN
from dashboards.worlds_reckoning import (
    WINDOW,
    Grown,
    answers,
    answers_of_rows,
    distribution,
    events,
    grown,
    newest,
    panel_of,
    quantile_of,
    rate_windows,
    tile,
    total,
    value,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dashboards.grafana_timing import Value

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory)


def _world(name: str) -> Any:
    @pytest.fixture(scope="module", name=name.replace("-", "_"))
    def opened(folder: Path) -> Iterator[World]:
        with open_world(name, folder) as world:
            yield world

    return opened


healthy = _world("healthy")
k_change = _world("k-change")
rollout = _world("rollout")
two_clusters = _world("two-clusters")
measured = _world("measured")
harmful = _world("harmful")


def is_one_of(found: float, expected: Iterable[float]) -> bool:
    """Tell whether a value is what one of the windows gives."""
    return any(found == pytest.approx(one, rel=1e-9) for one in expected)


# --- fleets


def test_the_replicas_are_very_different(healthy: World) -> None:
    """So that a mean of ratios and a ratio of sums differ."""
    engines = grown(healthy, model_name=LLAMA)
    drafts = [engine.drafts for engine in engines]
    ratios = [engine.accepted / engine.draft_tokens for engine in engines]
    assert len(engines) == 3
    assert {engine.k for engine in grown(healthy)} == {3, 4}
    assert max(drafts) > 10 * min(drafts)
    pooled = total(engines, "accepted") / total(engines, "draft_tokens")
    assert abs(float(np.mean(ratios)) - pooled) > 0.02


MODELS = (None, LLAMA, QWEN)  # all, three pods with K=3, two engines of one pod with K=4


def of_model(world: World, model: str | None, scrapes: int = WINDOW) -> list[Grown]:
    """Return what the engines of a model, or all, have counted."""
    return grown(world, scrapes, **({} if model is None else {"model_name": model}))


def chosen(model: str | None) -> dict[str, Value]:
    """Return what somebody chooses who looks at a model, or at all."""
    return {} if model is None else {"model_name": (model,)}


@pytest.mark.parametrize("model", MODELS)
def test_tiles_of_a_fleet_are_ratios_of_sums(healthy: World, model: str | None) -> None:
    """All tokens of all engines, whatever the replicas' own ratios are."""
    engines = of_model(healthy, model)
    drafts, accepted, drafted, generated = (
        total(engines, name) for name in ("drafts", "accepted", "draft_tokens", "generated")
    )
    expected = {
        ("acceptance", "Acceptance rate", "acceptance"): accepted / drafted,
        ("payoff", "Acceptance rate", "acceptance"): accepted / drafted,
        ("payoff", "Acceptance length", "now"): 1 + accepted / drafts,
        ("payoff", "Coverage", "coverage"): min(1.0, (accepted + drafts) / generated),
        ("payoff", "Wasted verification", "wasted"): (drafted - accepted) / (drafted + drafts),
        **{
            ("acceptance", "What would a smaller K have given?", f"K={k}"): 1
            + sum(sum(engine.positions[:k]) for engine in engines) / drafts
            for k in range(1, 1 + min(engine.k for engine in engines))
        },
    }
    shown = {place: tile(healthy, *place, **chosen(model)) for place in expected}
    assert shown == pytest.approx(expected, rel=1e-9)


def test_speedup_of_a_fleet_is_all_tokens_over_all_their_plain_time(healthy: World) -> None:
    """A busy engine that gains counts for more than a quiet one, and by the time it saves."""
    engines = grown(healthy)
    plain = sum(engine.generated / engine.speedup for engine in engines)
    for uid in ("payoff", "cost", "load"):
        shown = tile(healthy, uid, "Speedup", "speedup")
        assert shown == pytest.approx(total(engines, "generated") / plain, rel=1e-9)
        assert shown != pytest.approx(float(np.mean([engine.speedup for engine in engines])), rel=1e-3)


def test_the_load_is_that_of_all_engines(healthy: World) -> None:
    """Requests and tokens are added up."""
    running = sum(rows[-1] for _, rows in healthy.scraped.select("vllm_specdec_requests_running"))
    assert tile(healthy, "load", "Running and waiting", "running") == running
    expected = total(grown(healthy), "generated") / (WINDOW * healthy.interval)
    # The exporter divides by the time that really passed between its polls, which is some milliseconds off.
    assert tile(healthy, "load", "Tokens per second", "all") == pytest.approx(expected, rel=1e-4)


def test_sides_of_a_comparison_are_what_is_chosen(healthy: World) -> None:
    """A against B: each with its own engines, and their difference."""
    sides: dict[str, Value] = {"a_model_name": (LLAMA,), "b_model_name": (QWEN,)}
    shown = answers(healthy, "compare", "Acceptance rate, A and B", **sides)
    a, b = (
        total(engines, "accepted") / total(engines, "draft_tokens")
        for engines in (grown(healthy, model_name=model) for model in (LLAMA, QWEN))
    )
    assert value(shown["A"]) == pytest.approx(a, rel=1e-9)
    assert value(shown["B"]) == pytest.approx(b, rel=1e-9)
    assert value(shown["A less B"]) == pytest.approx(a - b, rel=1e-6)


# --- positions and lengths, with engines of different K


def test_positions_are_ratios_of_sums_over_the_engines_that_have_them(healthy: World) -> None:
    """Of all drafts, and of those accepted up to the one before; the last position is of few engines."""
    survival, conditional = (
        newest(answers(healthy, "acceptance", title)["A"], "position")
        for title in ("Which positions are accepted?", "Is a position accepted once the one before is?")
    )
    assert set(survival) == set(conditional) == {"0", "1", "2", "3"}
    for position in range(4):
        of_all, of_reached = [], []
        for engines in rate_windows(healthy):
            deep = [engine for engine in engines if engine.k > position]
            accepted = sum(engine.positions[position] for engine in deep)
            reached = sum(engine.positions[position - 1] if position else engine.drafts for engine in deep)
            of_all.append(accepted / total(deep, "drafts"))
            of_reached.append(accepted / reached)
        assert is_one_of(survival[str(position)], of_all)
        assert is_one_of(conditional[str(position)], of_reached)


@pytest.mark.parametrize(
    ("dashboard", "title", "last"),
    [("acceptance", "What would a smaller K have given?", 3), ("cost", "What would each K give?", 6)],
)
def test_bars_of_k_are_all_of_the_same_engines(healthy: World, dashboard: str, title: str, last: int) -> None:
    """Where some have K=3 and some K=4, a bar that only the latter have would be of other traffic."""
    results = answers(healthy, dashboard, title)
    panel = next(p for p in dashboards()[dashboard]["panels"] if p["title"] == title)
    names = [one["legendFormat"] for one in panel["targets"] if "{{" not in one["legendFormat"]]
    shown = [name for name in names if results[name]["result"]]
    assert shown[-1] == f"K={last}"


def test_the_k_in_use_and_the_k_advised_are_marked(healthy: World) -> None:
    """Each by a bar that repeats the one of its K."""
    shown = answers(healthy, "cost", "What would each K give?", **chosen(LLAMA))
    panel = panel_of("cost", "What would each K give?")
    for words in ("in use", "advised"):
        (ref,) = [one["refId"] for one in panel["targets"] if one["legendFormat"].startswith(words)]
        ((k, speedup),) = newest(shown[ref], "num_speculative_tokens").items()
        assert speedup == pytest.approx(value(shown[f"K={k}"]))
        assert k == "3" or words == "advised"


def test_percentiles_within_the_first_bucket_are_not_drawn(healthy: World) -> None:
    """Below 10 ms, where vLLM's first bucket of time per output token ends, the mean is all there is."""
    shown = answers(healthy, "load", "Time per output token")
    assert value(shown["mean"]) < 0.01
    for legend in ("P50", "P95", "P99"):
        assert all(float(n) > 0.01 for one in shown[legend]["result"] for _, n in one["values"]), legend


def test_the_estimate_of_several_engines_is_what_they_emit_over_what_it_costs(healthy: World) -> None:
    """Tokens out of all drafts over the plain steps that these took, by the gauges of each engine."""
    at = healthy.end
    labels = ("model_name", "pod", "engine")
    gauges = {
        name: {
            tuple(dict(series)[label] for label in labels): value
            for series, value in healthy.prometheus.query(f'vllm_specdec_{name}{{window="5m"}}', at).items()
        }
        for name in ("drafts_per_second", "accepted_tokens_per_second", "estimated_speedup")
    }
    emitted = {
        key: gauges["drafts_per_second"][key] + gauges["accepted_tokens_per_second"][key]
        for key in gauges["drafts_per_second"]
    }
    steps = {key: tokens / gauges["estimated_speedup"][key] for key, tokens in emitted.items()}
    lines = answers(healthy, "cost", "Estimated and measured speedup")["estimated, of drafts"]["result"]
    assert float(lines[0]["values"][-1][1]) == pytest.approx(
        sum(emitted.values()) / sum(steps.values()), rel=0.01
    )


@pytest.mark.parametrize("model", MODELS)
def test_quantiles_of_accepted_tokens_are_whole_and_exact(healthy: World, model: str | None) -> None:
    """The least number of accepted tokens that so many drafts do not exceed."""
    shown = answers(healthy, "acceptance", "Quantiles of accepted tokens per draft", **chosen(model))
    for legend, quantile in (("P90", 0.9), ("P50", 0.5), ("P10", 0.1)):
        expected = {quantile_of(of_model(healthy, model, scrapes), quantile) for scrapes in (4, 3)}
        assert value(shown[legend]) in expected, legend


@pytest.mark.parametrize("model", [None, QWEN])
def test_all_or_nothing(healthy: World, model: str | None) -> None:
    """Drafts of which nothing was accepted, and those accepted to the very end, whatever K an engine has."""
    shown = answers(healthy, "acceptance", "All or nothing", **chosen(model))
    nothing, everything = [], []
    for scrapes in (4, 3):
        engines = of_model(healthy, model, scrapes)
        drafts = total(engines, "drafts")
        nothing.append(1 - sum(engine.positions[0] for engine in engines) / drafts)
        everything.append(sum(engine.positions[-1] for engine in engines) / drafts)
    assert is_one_of(value(shown["nothing accepted"]), nothing)
    assert is_one_of(value(shown["accepted to the end"]), everything)


def test_the_heatmap_counts_every_draft_once(healthy: World) -> None:
    """Its cumulative buckets, taken apart, are the distribution of accepted tokens per draft."""
    shown = newest(answers(healthy, "acceptance", "Accepted tokens per draft")["A"], "le")
    buckets = {float(le): number for le, number in shown.items() if le != "+Inf"}
    cumulative = [0.0, *(buckets[le] for le in sorted(buckets))]
    parts = np.diff(cumulative)
    windows = [distribution(engines) for engines in rate_windows(healthy)]
    shares = [[counts[n] / sum(counts.values()) for n in sorted(counts)] for counts in windows]
    assert any(np.allclose(parts / parts.sum(), share, rtol=1e-6) for share in shares)


# --- verdicts


def test_each_cluster_has_a_verdict_of_its_own(two_clusters: World) -> None:
    """Models of the same name in two clusters are two rows, the losing one with its own numbers."""
    shown = answers_of_rows(two_clusters, "Which model loses?", "Verdict")
    found = {row["metric"]["cluster"]: word(float(row["value"][1])) for row in shown}
    assert found == {"eu-1": "BENEFICIAL", "us-2": "HARMFUL"}
    speedups = {
        row["metric"]["cluster"]: float(row["value"][1])
        for row in answers_of_rows(two_clusters, "Which model loses?", "Speedup")
    }
    for cluster, speedup in speedups.items():
        (engine,) = grown(two_clusters, cluster=cluster)
        assert speedup == pytest.approx(engine.speedup, rel=1e-9)


def test_a_pod_is_a_row(healthy: World) -> None:
    """Five engines of four pods, each with the exporter's own speedup."""
    shown = answers_of_rows(healthy, "Which pod or engine loses?", "Speedup")
    found = sorted(float(row["value"][1]) for row in shown)
    assert found == pytest.approx(sorted(engine.speedup for engine in grown(healthy)), rel=1e-9)


def test_measured_speedup_is_named_so(measured: World) -> None:
    """With a baseline the tile says what it rests on, and equals the exporter's own value."""
    (series,) = answers(measured, "payoff", "Rests on")["A"]["result"]
    assert series["metric"]["basis"] == "measured"
    engines = grown(measured)
    plain = sum(engine.generated / engine.speedup for engine in engines)
    assert tile(measured, "payoff", "Speedup", "speedup") == pytest.approx(
        total(engines, "generated") / plain
    )


# --- alerts and annotations


def test_alerts_are_counted_once_each(harmful: World) -> None:
    """By severity, as the rules fire; the watchdog does not count."""
    firing = {
        tuple(own.get(label, "") for label in ("alertname", "severity", "cluster", "namespace", "model_name"))
        for own, rows in harmful.recorded.select("ALERTS", alertstate="firing")
        if not math.isnan(rows[-1]) and own["severity"] != "none"
    }
    expected = Counter(severity for _, severity, *_ in firing)
    shown = answers(harmful, "payoff", "Alerts")["A"]["result"]
    assert {row["metric"]["severity"]: float(row["value"][1]) for row in shown} == expected


#: How far somebody looks back, in hours, and the step that Grafana chooses then.
RANGES = {"3 hours": (3, 60), "30 days": (720, 1800)}


@pytest.mark.parametrize(("hours", "step"), RANGES.values(), ids=RANGES)
def test_changes_of_k_are_marked_where_they_are(k_change: World, hours: float, step: float) -> None:
    """Within a step of the first scrape with the new K, with that K, and nowhere else, at any range."""
    ((_, rows),) = k_change.scraped.select("vllm_specdec_num_speculative_tokens", pod="llama-0")
    known = [(time, k) for time, k in zip(k_change.scraped.times, rows, strict=True) if not math.isnan(k)]
    changes = [(time, k) for (_, before), (time, k) in pairwise(known) if k != before]
    assert [k for _, k in changes] == [5, 2]
    marked = events(k_change, "K changes", hours, step)
    assert [(mark.labels["model_name"], float(mark.labels["value"])) for mark in marked] == [
        (LLAMA, 5),
        (LLAMA, 2),
    ]
    for (changed, _), mark in zip(changes, marked, strict=True):
        assert changed <= mark.start <= mark.end <= changed + step


@pytest.mark.parametrize(("hours", "step"), RANGES.values(), ids=RANGES)
def test_restarts_are_marked_where_they_are(k_change: World, hours: float, step: float) -> None:
    """Each restart once, within a step of the scrape that shows it, at any range."""
    restarts = []
    for _, rows in k_change.scraped.select("vllm_specdec_engine_resets_total"):
        known = [(time, n) for time, n in zip(k_change.scraped.times, rows, strict=True) if not math.isnan(n)]
        restarts += [time for (_, before), (time, n) in pairwise(known) if n > before]
    marked = events(k_change, "Starts", hours, step)
    assert marked
    for restarted in restarts:
        assert [mark for mark in marked if mark.start - step <= restarted <= mark.end], restarted
    for mark in marked:
        assert [time for time in restarts if time <= mark.start <= time + step]


@pytest.mark.parametrize(("hours", "step"), RANGES.values(), ids=RANGES)
def test_a_rollout_is_marked_once(rollout: World, hours: float, step: float) -> None:
    """Where the new pods begin to answer, though no series of theirs ever changes."""
    first = min(
        time
        for own, rows in rollout.scraped.select("vllm_specdec_num_speculative_tokens")
        if own["pod"].startswith("llama-7c9bd4f4d")
        for time, value in zip(rollout.scraped.times, rows, strict=True)
        if not math.isnan(value)
    )
    for name, k in (("K changes", "5"), ("Starts", None)):
        (mark,) = events(rollout, name, hours, step)
        assert mark.labels.get("value") == k
        assert first <= mark.start <= mark.end <= first + step
