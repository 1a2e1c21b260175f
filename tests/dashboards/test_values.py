"""What panels show is right: computed again in Python, from the counters as they were
scraped.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dashboards.grafana import Value
from dashboards.live import newest
from dashboards.reckoning import distribution, events, grown, panel, rate_windows, total
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_catalogue import LLAMA, QWEN

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

MODELS = (LLAMA, QWEN)  # three pods with K=3, two engines of one pod with K=4


def _world(name: str) -> Any:
    @pytest.fixture(scope="module", name=name.replace("-", "_"))
    def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
        with open_world(name, shared_folder(tmp_path_factory)) as world:
            yield world

    return opened


healthy = _world("healthy")
changes = _world("changes")
harmful = _world("harmful")


def is_one_of(shown: float, expected: Iterable[float]) -> bool:
    """Tell whether a value is what one of the windows gives."""
    return any(shown == pytest.approx(value, rel=1e-9) for value in expected)


def chosen(model: str, world: World | None = None) -> dict[str, Value]:
    """Return the values of variables of somebody who looks at a model."""
    code = model == QWEN and world is not None and world.name == "healthy"
    return {"namespace": "code" if code else "chat", "model_name": model}


# --- fleets


@pytest.mark.parametrize("model", MODELS)
def test_a_row_of_a_model_is_ratios_of_sums(healthy: World, model: str) -> None:
    """A busy engine counts for more than a quiet one; speedup is all tokens over all
    their plain time.
    """
    row = panel(healthy, "overview: Models").rows("model_name")[model,]
    engines = grown(healthy, model_name=model)
    expected = {
        "Acceptance": total(engines, "accepted") / total(engines, "draft_tokens"),
        "Speedup, 5 m": total(engines, "generated")
        / sum(engine.generated / engine.speedup for engine in engines),
        "K": engines[0].k,
    }
    drafts, share = re.fullmatch(r"(\d+)k, (\d+) %", row["Rests on"]).groups()
    assert float(drafts) * 1000 == pytest.approx(total(engines, "drafts"), abs=1001)
    emitted = total(engines, "drafts") + total(engines, "accepted")
    covered = min(1.0, emitted / total(engines, "generated"))
    assert float(share) == pytest.approx(100 * covered, abs=1)
    shown = {name: float(row[name]) for name in expected}
    assert shown == pytest.approx(expected, rel=1e-5)


def test_a_mean_of_ratios_would_be_another_number(healthy: World) -> None:
    drafts = [engine.drafts for engine in grown(healthy, model_name=LLAMA)]
    assert max(drafts) > 10 * min(drafts)


def test_a_row_of_an_engine_is_its_own(healthy: World) -> None:
    """Three pods, each with the exporter's own speedup; at first of the model that
    gains least.
    """
    rows = panel(healthy, "deep-dive: Engines").rows("instance", "engine")
    speedups = sorted(float(row["Speedup, 3 m"]) for row in rows.values())
    assert speedups == pytest.approx(
        sorted(engine.speedup for engine in grown(healthy, model_name=LLAMA)), rel=1e-5
    )


@pytest.mark.parametrize("model", MODELS)
def test_what_is_drawn_over_time_is_of_each_model(healthy: World, model: str) -> None:
    """Coverage and waste are ratios of sums, too."""
    name = "deep-dive: Coverage and wasted verification"
    shown = panel(healthy, name, **chosen(model, healthy)).values()
    coverage = []
    waste = []
    for engines in rate_windows(healthy, model_name=model):
        drafts, accepted, drafted, generated = (
            total(engines, counter)
            for counter in ("drafts", "accepted", "draft_tokens", "generated")
        )
        coverage.append(min(1.0, (accepted + drafts) / generated))
        waste.append((drafted - accepted) / (drafted + drafts))
    assert is_one_of(shown["coverage"], coverage)
    assert is_one_of(shown["wasted"], waste)


# --- positions and K, with engines of different K


@pytest.mark.parametrize("position", range(3))
def test_positions_are_ratios_of_sums_over_the_engines_that_have_them(
    healthy: World, position: int
) -> None:
    """Of all drafts, and of those accepted up to the one before."""
    of_all = []
    of_reached = []
    for engines in rate_windows(healthy, model_name=LLAMA):
        deep = [engine for engine in engines if engine.k > position]
        accepted = sum(engine.positions[position] for engine in deep)
        drafts = total(deep, "drafts")
        reached = drafts
        if position:
            reached = sum(engine.positions[position - 1] for engine in deep)
        of_all.append(accepted / drafts)
        of_reached.append(accepted / reached)
    for title, expected in (("", of_all), ("Conditional ", of_reached)):
        name = f"deep-dive: {title}acceptance by position"
        shown = panel(healthy, name.replace(": a", ": A")).values()
        assert is_one_of(shown[f"position {position}"], expected), name


@pytest.mark.parametrize(("model", "k"), [(LLAMA, 3), (QWEN, 4)])
def test_each_k_is_of_one_model(healthy: World, model: str, k: int) -> None:
    """The K in use and the K advised are marked, the gain is over the K in use."""
    table = panel(
        healthy, "deep-dive: What each K gives", **chosen(model, healthy)
    ).rows("model_name", "num_speculative_tokens")
    rows = {int(key): cells for (name, key), cells in table.items() if name == model}
    assert [drafted for drafted, cells in rows.items() if "In use" in cells] == [k]
    # No K but this one has run: none "was slower".
    (advice,) = (cells["Advised"] for cells in rows.values() if "Advised" in cells)
    assert advice == "advised"
    speedups = {
        drafted: float(cells["Speedup, est."]) for drafted, cells in rows.items()
    }
    assert sorted(speedups) == list(range(1 + max(speedups)))
    assert max(speedups) >= k
    assert speedups[0] == 1
    engines = grown(healthy, model_name=model)
    for drafted in range(1, 1 + k):
        accepted = sum(sum(engine.positions[:drafted]) for engine in engines)
        expected = 1 + accepted / total(engines, "drafts")
        length = float(rows[drafted]["Length"])
        assert length == pytest.approx(expected, rel=1e-5), drafted
    assert float(rows[k]["Gain, est."]) == pytest.approx(0, abs=1e-9)
    assert float(rows[1]["Gain, est."]) == pytest.approx(
        speedups[1] / speedups[k] - 1, rel=1e-4
    )


def risen(world: World, name: str, pod: str) -> float:
    """Return how much a counter of vLLM rose as long as its pod was there."""
    _, rows = next(world.scraped.select(f"vllm:{name}", pod=pod))
    return float(np.nanmax(rows) - np.nanmin(rows))


def test_a_change_is_judged_by_the_time_per_output_token_before_and_after(
    changes: World,
) -> None:
    """Of a rollout from K=3 to K=5 at the same load, from five minutes after it on."""
    table = panel(
        changes, "deep-dive: Before and after each change", **chosen(QWEN)
    ).rows("was_k")
    assert {k for (k,) in table} == {"3", "5"}
    times = {}
    for k, pod in (("3", "coder-6d5f8b7c9-0"), ("5", "coder-7c9bd4f4d-0")):
        spent = risen(changes, "request_decode_time_seconds_sum", pod)
        tokens = risen(changes, "request_generation_tokens_sum", pod)
        firsts = risen(changes, "request_generation_tokens_count", pod)
        times[k] = spent / (tokens - firsts)
        row = {name: float(table[k,][name]) for name in ("From", "TPOT", "To", "For")}
        assert row["TPOT"] == pytest.approx(times[k], rel=0.01), k
        assert row["From"] <= row["TPOT"] <= row["To"], k
        assert 20 <= row["For"] / 60 <= 30, k
    assert times["5"] < float(table["3",]["From"])
    assert [table[k,].get("Since then") for k in ("3", "5")] == ["faster now", None]
    assert float(table["3",]["Until, time ago"]) > 300
    assert table["5",]["Until, time ago"] == "now"
    assert panel(
        changes, "deep-dive: Before and after each change", **chosen(LLAMA)
    ).empty, "engines differ"


def estimated_ks(world: World, pod: str) -> set[str]:
    """Return each K of which the exporter of a pod has an estimate."""
    name = "vllm_specdec_estimated_speedup_at"
    series = world.scraped.select(name, pod=pod)
    return {of["num_speculative_tokens"] for of, rows in series if rows[-1] > 0}


def test_a_k_that_only_some_engines_have_has_no_speedup(changes: World) -> None:
    """It would be of other traffic: of one model, with pods of K=2 and K=3."""
    table = panel(changes, "deep-dive: What each K gives", **chosen(LLAMA)).rows(
        "num_speculative_tokens"
    )
    assert [k for (k,), cells in table.items() if "In use" in cells] == ["2", "3"]
    first, second = (estimated_ks(changes, pod) for pod in ("llama-0", "llama-1"))
    assert first != second
    shown = {k for (k,), cells in table.items() if "Speedup, est." in cells}
    assert shown == first & second


def test_the_present_requests_stand_at_their_batch(healthy: World) -> None:
    """In the row of each pod's requests; their number, not the next power of two."""
    name = "deep-dive: Estimated best K by batch size"
    rows = panel(healthy, name, **chosen(LLAMA)).rows("batch_size")
    sizes = sorted(int(size) for (size,) in rows)
    running = healthy.scraped.select("vllm_specdec_requests_running", model_name=LLAMA)
    expected: dict[int, list[float]] = {}
    for _, samples in running:
        size = sizes[bisect_left(sizes, samples[-1])]
        expected.setdefault(size, []).append(float(samples[-1]))
    shown = {
        int(size): float(cells["Running now"])
        for (size,), cells in rows.items()
        if "Running now" in cells
    }
    assert shown == pytest.approx(
        {size: np.mean(requests) for size, requests in expected.items()}
    )


def test_the_heatmap_counts_every_draft_once(healthy: World) -> None:
    """Its cumulative buckets, taken apart, are the distribution of accepted tokens per
    draft.
    """
    shown = panel(healthy, "deep-dive: Accepted tokens per draft").values()
    cumulative = [0.0, *(shown[le] for le in sorted(shown, key=float))]
    parts = np.diff(cumulative)
    agrees = []
    for engines in rate_windows(healthy, model_name=LLAMA):
        counts = distribution(engines)
        drafts = np.array([counts[accepted] for accepted in sorted(counts)])
        agrees.append(
            np.allclose(parts / parts.sum(), drafts / drafts.sum(), rtol=1e-6)
        )
    assert any(agrees)


def test_the_estimate_of_several_engines_is_what_they_emit_over_what_it_costs(
    healthy: World,
) -> None:
    """Tokens out of all drafts over the plain steps that these took, by the gauges of
    each engine.
    """

    def gauges(name: str) -> NDArray[np.float64]:
        query = f'vllm_specdec_{name}{{window="5m",model_name="{LLAMA}"}}'
        values = healthy.prometheus.query(query, healthy.end)
        # In the order of the pods, which have one engine each.
        return np.array([values[series] for series in sorted(values)])

    emitted = gauges("drafts_per_second") + gauges("accepted_tokens_per_second")
    expected = emitted.sum() / (emitted / gauges("estimated_speedup")).sum()
    shown = panel(healthy, "deep-dive: Speedup, estimated and measured").values()
    assert shown["estimated"] == pytest.approx(expected, rel=0.01)


def test_percentiles_within_the_first_bucket_are_not_drawn(healthy: World) -> None:
    """Below 10 ms, where vLLM's first bucket of time per output token ends, the mean is
    all there is.
    """
    shown = panel(healthy, "lite: Time per output token").values()
    assert shown.pop("mean") < 0.01
    assert all(value > 0.01 for value in shown.values())
    assert panel(healthy, "deep-dive: Time in the queue").values().keys() == {"mean"}


# --- verdicts, alerts and annotations


def test_alerts_are_listed_once_each_with_the_time_that_they_fired(
    harmful: World,
) -> None:
    """Critical ones come first, the watchdog not at all; the time before they fired,
    while they were pending, does not count.
    """
    labels = ("severity", "alertname", "cluster", "model_name", "instance", "engine")
    codes = {"critical": "1", "warning": "2", "info": "3"}
    firing: dict[tuple[str, ...], float] = {}
    for alert, rows in harmful.recorded.select("ALERTS", alertstate="firing"):
        if not math.isnan(rows[-1]) and alert["severity"] != "none":
            alert["severity"] = codes[alert["severity"]]
            key = tuple(alert.get(label, "") for label in labels)
            began = harmful.recorded.times[~np.isnan(rows)][0]
            firing[key] = max(firing.get(key, 0), harmful.end - float(began))
    table = panel(harmful, "overview: Firing alerts")
    shown = table.rows(*labels)
    rows = {key: float(cells["Fired, 24 h"]) for key, cells in shown.items()}
    assert rows == pytest.approx(firing, abs=130)
    ages = {
        tuple(series["metric"].get(label, "") for label in labels): harmful.end
        - newest(series) / 1000
        for target, series in table.series()
        if target["refId"] == "A"
    }
    assert ages == pytest.approx(firing, abs=130), "each has the time of its mark"
    assert {code for code, *_ in rows} >= {"1", "2"}


def test_the_change_of_a_speedup_is_what_its_causes_add_up_to(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Against the hours of the day before.

    Only acceptance has fallen, so drafts are to blame.
    """
    with open_world("day", shared_folder(tmp_path_factory)) as day:
        shown = panel(day, "overview: Models")
        (row,) = shown.rows("model_name").values()
        contributions = day.prometheus.query(
            "model:vllm_specdec_speedup_change:cause", day.end
        )
        speedup = next(
            rows
            for _, rows in day.recorded.select(
                "model:vllm_specdec_speedup:ratio_rate5m"
            )
        )
    judged = speedup[~np.isnan(speedup)]
    was, here, of_drafts, of_load = map(
        float,
        re.findall(r"(\S+) to (\S+) ×: drafts (\S+), load (\S+)", row["Why"])[0],
    )
    change = here - was
    causes = {dict(labels)["cause"]: value for labels, value in contributions.items()}
    assert causes.keys() == {"drafts", "load"}
    assert of_drafts == pytest.approx(causes["drafts"], abs=0.006)
    assert of_drafts < -0.3
    assert of_load == pytest.approx(causes["load"], abs=0.006)
    assert abs(of_load) < 0.05
    # Two numbers of two digits.
    assert change == pytest.approx(sum(causes.values()), abs=0.011)
    assert change == pytest.approx(judged[-1] - np.median(judged), abs=0.02)


def test_two_causes_of_one_minute_are_both_named_with_what_each_took(
    harmful: World,
) -> None:
    """Requests rose and acceptance fell at once, an hour and a quarter ago: compared
    with the time while it paid, of which only a quarter of an hour is known.
    """
    (row,) = panel(harmful, "overview: Models").rows("model_name").values()
    words = r"(\S+) to (\S+) ×: drafts (\S+), load (\S+)"
    found = re.fullmatch(words, row["Why"])
    assert found, row["Why"]
    was, here, of_drafts, of_load = map(float, found.groups())
    change = here - was
    assert of_drafts < -0.5
    assert of_load < -0.15
    assert change == pytest.approx(of_drafts + of_load, abs=0.021)
    table = panel(harmful, "deep-dive: What changed, and what it took").rows("of")
    before = {of: float(cells["Before"]) for (of,), cells in table.items()}
    today = {of: float(cells["Now"]) for (of,), cells in table.items()}
    assert before["length"] == pytest.approx(3.2, abs=0.05)
    assert today["length"] == pytest.approx(1.46, abs=0.05)
    # Of a mean engine, of 440 clients in all.
    assert before["load"] < 20
    assert today["load"] > 190
    assert today["K"] == before["K"] == 5
    assert float(table["speedup",]["Took, est."]) == pytest.approx(change, abs=0.011)


def test_a_measured_k_leads_over_the_estimate_on_every_surface(changes: World) -> None:
    """By the estimate K=3 would be faster; by the time per output token at the same
    load K=5 is.
    """
    gain = {}
    for name in ("overview: Models", "deep-dive: Verdict and what to do"):
        row = panel(changes, name).rows("model_name")[QWEN,]
        assert re.fullmatch(r"keep K 5: 3 was \d % slower", row["Do"]), name
        gain[name] = -int(row["Do"].split(" was ")[1].split()[0])
        words = r"est\. 1\.\d+ to 1\.\d+, but tokens came faster, which counts"
        assert re.fullmatch(words, row["Why"]), name
    rows = panel(changes, "deep-dive: Before and after each change").rows("was_k")
    assert rows["3",]["Since then"] == "faster now"
    assert "Mean speedup" not in rows["3",]
    by_k = panel(changes, "deep-dive: What each K gives").rows("num_speculative_tokens")
    measured = float(by_k["3",]["Measured"])
    assert measured < 0
    assert float(by_k["3",]["Speedup, est."]) > float(by_k["5",]["Speedup, est."])
    assert "Gain, est." not in by_k["3",], "what was measured decides"
    assert float(by_k["4",]["Gain, est."]) > 0
    batches = panel(changes, "deep-dive: Estimated best K by batch size").rows(
        "batch_size"
    )
    present = {
        cells["Measured"] for cells in batches.values() if "Running now" in cells
    }
    assert present == {"slower"}
    (engine,) = panel(changes, "deep-dive: Engines").rows("instance").values()
    assert "Estimated K" not in engine, "what was measured decides"
    assert by_k["3",]["Advised"] == "was slower"
    assert set(gain.values()) == {round(100 * measured)}
    table = panel(changes, "deep-dive: What changed, and what it took", **chosen(QWEN))
    taken = {of: cells.get("Took, est.") for (of,), cells in table.rows("of").items()}
    # The estimate gives the load nothing of what another K may have taken.
    assert taken["load"] is None
    assert (
        float(taken["K or load, est. only: measured, tokens came faster"] or 0) < -0.2
    )
    assert float(taken["length"] or 0) > 0.1


def test_the_present_batch_is_the_number_of_requests(harmful: World) -> None:
    """Not a power of two, of which it is the next."""
    rows = panel(harmful, "deep-dive: Before and after each change").rows("was_n")
    ((bucket,),) = rows
    (row,) = rows.values()
    running = float(row["Running"])
    assert float(bucket) / 2**0.5 < running < float(bucket) * 2**0.5
    assert running != float(bucket)


def test_since_is_the_time_of_the_verdict(harmful: World, healthy: World) -> None:
    """The traffic turned bad 75 minutes before the end, told to five minutes; or it
    never changed.
    """
    unchanged = panel(healthy, "overview: Models").rows("model_name").values()
    assert {row["Since"] for row in unchanged} == {"all data, > 1 h"}
    (row,) = panel(harmful, "overview: Models").rows("model_name").values()
    assert 65 * 60 <= float(row["Since"]) <= 80 * 60


def test_thresholds_are_those_of_each_models_exporter(changes: World) -> None:
    """Not the lowest of all. Of drafts of two and of three tokens that of the length
    decides, as it asks for more.
    """
    limits: dict[str, list[float]] = {}
    shown = {}
    for labels, rows in changes.scraped.select("vllm_specdec_info"):
        if not math.isnan(rows[-1]):
            model = labels["model_name"]
            limits[model] = [
                changes.prometheus.value(
                    "vllm_specdec_threshold"
                    f"{{threshold='disable_{name}',pod='{labels['pod']}'}}",
                    changes.end,
                )
                for name in ("acceptance_ratio", "mean_acceptance_length")
            ]
            drawn = panel(changes, "deep-dive: Acceptance rate", **chosen(model))
            shown[model] = drawn.values()["limit: disable below"]
    rate, length = limits[QWEN]
    # They are rounded to four digits.
    assert shown[QWEN] == pytest.approx(rate, rel=1e-3)
    assert shown[QWEN] == pytest.approx((length - 1) / 5, rel=1e-3)
    rate, length = limits[LLAMA]
    assert rate != limits[QWEN][0]
    assert rate < (length - 1) / 3 + 1e-3 < shown[LLAMA] < (length - 1) / 2
    limits_of_overview = panel(changes, "overview: Speedup").values()
    assert limits_of_overview["limit: harmful below"] == 1


#: How far somebody looks back, in hours, and the step that Grafana chooses then.
RANGES = {"3 hours": (3, 60), "7 days": (168, 300)}


def samples_of(
    world: World, name: str, **labels: str
) -> Iterator[list[tuple[float, float]]]:
    """Yield the samples of each series of a name."""
    for _, rows in world.scraped.select(f"vllm_specdec_{name}", **labels):
        there = ~np.isnan(rows)
        yield list(zip(world.scraped.times[there], rows[there], strict=True))


@pytest.mark.parametrize(("hours", "step"), RANGES.values(), ids=RANGES)
def test_changes_of_k_and_restarts_are_marked_where_they_are(
    changes: World, hours: float, step: float
) -> None:
    """Within a step of the first scrape that shows them, and nowhere else, at any
    range.
    """
    (samples,) = samples_of(changes, "num_speculative_tokens", pod="llama-0")
    moved = [
        (time, k) for (_, previous), (time, k) in pairwise(samples) if k != previous
    ]
    marked = events(changes, "K changes", hours, step, **chosen(LLAMA))
    assert (
        [float(mark.labels["value"]) for mark in marked]
        == [k for _, k in moved]
        == [5, 2]
    )
    for (time, _), mark in zip(moved, marked, strict=True):
        assert time <= mark.start <= mark.end <= time + step, time
    restarts = []
    for samples in samples_of(changes, "engine_resets_total", model_name=LLAMA):
        for (_, previous), (time, resets) in pairwise(samples):
            if resets > previous:
                restarts.append(time)
    starts = events(changes, "Starts", hours, step, **chosen(LLAMA))
    assert len(restarts) == 3
    for time in restarts:
        assert [mark for mark in starts if mark.start - step <= time <= mark.end], time
    for mark in starts:
        assert [time for time in restarts if time <= mark.start <= time + step], mark


@pytest.mark.parametrize(("hours", "step"), RANGES.values(), ids=RANGES)
def test_a_rollout_is_marked_once(changes: World, hours: float, step: float) -> None:
    """Where the new pods begin to answer, though no series of theirs ever changes."""
    (samples,) = samples_of(changes, "num_speculative_tokens", pod="coder-7c9bd4f4d-0")
    for name, k in (("K changes", "5"), ("Starts", None)):
        (mark,) = events(changes, name, hours, step, **chosen(QWEN))
        assert mark.labels.get("value") == k, name
        assert samples[0][0] <= mark.start <= mark.end <= samples[0][0] + step, name
