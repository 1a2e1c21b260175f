"""What the recording rules record, against formulas that know nothing of PromQL."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.fleet import END, build
from alerts.formulas import all_values, text
from alerts.lint import read_bundle, records
from alerts.promtool import History, Query, alert_names, verify
from alerts.world import JOB, MODEL, Phase, World, idle
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import Basis

RECORDED = tuple(records(read_bundle()))
#: It asks for a day before the day, which the common world does not have.
DAY = "model:vllm_specdec_mean_acceptance_length:ratio_rate1d"
EXPECTED = {
    name: values
    for name, values in all_values().items()
    if name in RECORDED and name != DAY
}
DECIDING = (
    ":bool",
    "_rule:ratio",
    "_decisive:",
    "_lack:",
    "_cause:",
    "_judged_speedup:",
    "_judged_acceptance:",
    "_poor_acceptance:",
    "_allowed_loss:",
    "_usual_",
    "_step:",
    "_of_best_day:",
)
VERDICT = "model:vllm_specdec_verdict:info"
#: Looked at below, what only an A/B test has; in `cases_quality` and `cases_tap`, what
#: takes hours or fails.
BY_HAND = {
    DAY,
    "engine:vllm_specdec_method:info",
    "model:vllm_specdec_restarts:count2h",
    "method:vllm_specdec_held_speedup:last1h",
    # Conditions and verdict: in the cases of the alerts that they decide, and below.
    *(name for name in RECORDED if any(each in name for each in DECIDING)),
    VERDICT,
    "instance:vllm_specdec_tap_unconnected:ratio_rate5m",
    # What boards alone read: in the values of their panels.
    *(
        rule["record"]
        for group in read_bundle().groups
        if group["name"].startswith("vllm-specdec.boards")
        for rule in group["rules"]
    ),
}
WITHOUT = Phase(
    20, drafts=0, acceptance=(), speedup=None, activity="off", step_fit=(0.01, 0.0005)
)
LLAMA = f'{{model_name="{MODEL}", namespace="chat"}}'


def _query(minute: int, expr: str, values: Mapping[str, float]) -> Query:
    """Return a query for values that are equal to nine decimals: promtool knows no
    tolerance.
    """
    counted = {
        labels: math.floor(value * 1e9 + 0.5) for labels, value in values.items()
    }
    return Query(minute, f"round(1e9 * ({expr}))", counted)


def _expr(name: str) -> str:
    """Return what is asked for: a sum of samples by the number of samples, which
    depends on who looks.
    """
    series, _, window = name.rpartition(":sum")
    if series:
        samples = f"count_over_time({series}:rate5m[{window}])"
        return f"{name} / ignoring (drafts) group_left () {samples}"
    return name


def _verify(folder: Path, world: World, *queries: Query, interval: str = "1m") -> None:
    """Assert that promtool agrees, with the rules alone that are asked for, evaluated
    so often.
    """
    rules = {name for name in RECORDED for query in queries if name in query.expr}
    history = History("recorded", world, queries, has_all_thresholds=True)
    complaint = verify(folder, history, rules=rules, interval=interval)
    assert complaint == "", complaint


def _recorded(folder: Path, world: World, minute: int, **values: float) -> None:
    """Assert these values of the one model, by record without `model:vllm_specdec_`."""
    queries = [
        _query(
            minute,
            f"sum without (threshold) (model:vllm_specdec_{name.replace('__', ':')})",
            {LLAMA: value},
        )
        for name, value in values.items()
    ]
    _verify(folder, world, *queries)


def test_every_recorded_series_has_the_value_that_its_formula_gives(
    tmp_path: Path,
) -> None:
    queries = [
        _query(END, _expr(name), {text(key): value for key, value in values.items()})
        for name, values in EXPECTED.items()
    ]
    _verify(tmp_path, build(), *queries, interval="3m")


def test_every_recorded_series_is_looked_at() -> None:
    assert set(RECORDED) - set(EXPECTED) == BY_HAND
    assert [name for name, values in EXPECTED.items() if not values] == []


# --- by hand


def test_the_first_hours_of_a_model_are_no_day(tmp_path: Path) -> None:
    world = World()
    world.engine(Phase(2 * 1440, acceptance=(0.9, 0.7, 0.5)))
    found = {LLAMA: 1 + 0.9 + 0.7 + 0.5}
    _verify(tmp_path, world, _query(1430, DAY, {}), _query(2870, DAY, found))


def test_the_speedup_of_half_an_hour_is_all_its_tokens_over_all_its_time(
    tmp_path: Path,
) -> None:
    world = World()
    # Ten minutes of each: 20 for every 10 / 0.8 + 10 / 1.6 = 18.75; the mean of the
    # speedups is 1.2.
    world.engine(
        Phase(10, speedup=None), Phase(10, speedup=0.8), Phase(20, speedup=1.6)
    )
    _recorded(
        tmp_path,
        world,
        29,
        speedup__ratio_rate30m=20 / 18.75,
        speedup__ratio_rate1h=20 / 18.75,
    )


def test_a_model_with_several_methods_is_judged_by_method(tmp_path: Path) -> None:
    """Each by its own sums, while it has enough drafts; a model with one method has no
    such series.
    """
    world = World()
    for index, (method, accepted, speedup) in enumerate(
        (("eagle3", 0.1, 0.8), ("ngram", 0.9, 1.5))
    ):
        one = Phase(
            20, acceptance=(accepted,), speedup=speedup, info={"method": method}
        )
        world.engine(one, instance=f"10.0.0.{index}:9850")
    few = Phase(20, drafts=20, info={"method": "medusa"})
    world.engine(few, instance="10.0.0.9:9850")
    world.engine(Phase(20), model="other", instance="10.0.0.10:9850")
    labels = 'model_name="meta-llama/Llama-3.1-8B-Instruct", namespace="chat"}'
    queries = [
        _query(18, f'method:vllm_specdec_judged_{ratio}:ratio_rate5m{{method!=""}}', {
            f'{{method="eagle3", {labels}': eagle, f'{{method="ngram", {labels}': ngram
        })
        for ratio, eagle, ngram in (("acceptance", 0.1, 0.9), ("speedup", 0.8, 1.5))
    ]  # fmt: skip
    known = Query(
        18,
        "count by (model_name) (engine:vllm_specdec_method:info)",
        {f'{{model_name="{MODEL}"}}': 3},
    )
    _verify(tmp_path, world, *queries, known)


@pytest.mark.parametrize("basis", Basis)
def test_a_speedup_whose_interval_includes_1_is_a_guess_whatever_its_basis(
    basis: Basis, tmp_path: Path
) -> None:
    world = World()
    world.engine(Phase(20, speedup=None, guess=1.24, basis=basis))
    world.engine(
        Phase(20, speedup=None, guess=1.3, basis=basis), instance="10.0.0.2:9850"
    )
    _recorded(tmp_path, world, 18, guessed_speedup__min=1.24)


@pytest.mark.parametrize(("basis", "guess"), [("observed", 1.5), ("calibrated", None)])
def test_an_observed_speedup_is_a_guess_and_a_calibrated_one_is_not(
    basis: str, guess: float | None, tmp_path: Path
) -> None:
    world = World()
    world.engine(Phase(20, speedup=1.5, basis=basis))
    known = {LLAMA: 1.5}
    queries = [
        _query(
            18, "model:vllm_specdec_guessed_speedup:min", {} if guess is None else known
        ),
        _query(
            18,
            "model:vllm_specdec_speedup_without_guesses:ratio_rate5m",
            known if guess is None else {},
        ),
    ]
    _verify(tmp_path, world, *queries)


@pytest.mark.parametrize(("loss", "counts"), [(0.96, True), (0.94, False)])
def test_an_unknown_speedup_that_probably_loses_counts_as_the_middle_of_its_interval(
    loss: float, counts: bool, tmp_path: Path
) -> None:
    """Nor does it leave the gain of an hour ago, as thin traffic does: nothing is said
    of now.
    """
    world = World()
    world.engine(
        Phase(20), Phase(20, speedup=None, guess=0.8, interval=(0.6, 1.08), loss=loss)
    )
    world.engine(
        Phase(20),
        Phase(20, drafts=2, speedup=None),
        model="thin",
        instance="10.0.0.2:9850",
    )
    # The exporter's value, as worlds write it down.
    found = {LLAMA: round(math.sqrt(0.6 * 1.08), 6)} if counts else {}
    thin = LLAMA.replace(MODEL, "thin")
    queries = [
        _query(38, "model:vllm_specdec_speedup:ratio_rate5m", found),
        Query(
            38,
            "model:vllm_specdec_is_beneficial_in_last1d:bool",
            {f"model:vllm_specdec_is_beneficial_in_last1d:bool{thin}": 1.0},
        ),
    ]
    _verify(tmp_path, world, *queries)


def test_advice_whose_series_have_a_type_is_counted_once(tmp_path: Path) -> None:
    """Prometheus 3 adds it to gauges where it is told to; rates lose it."""
    advised = "vllm_specdec_recommended_num_speculative_tokens"
    advice = "vllm_specdec_recommendation"
    world = World(without=frozenset({advised, advice}))
    world.engine(Phase(40, speedup=None, action="disable"))
    world.without = frozenset()
    labels = {
        "job": JOB,
        "instance": "10.0.0.1:9850",
        "namespace": "chat",
        "model_name": MODEL,
        "engine": "0",
        "__type__": "gauge",
    }
    world.put(advised, labels, 0, [0] * 40)
    world.put(advice, {**labels, "action": "disable"}, 0, [1] * 40)
    share = (
        "sum without (action) (model:vllm_specdec_advice:ratio) "
        "and on () count(engine:vllm_specdec_drafts:rate5m)"
    )
    _verify(tmp_path, world, _query(39, share, {LLAMA: 1}))


@pytest.mark.parametrize(
    ("basis", "decides"), [("measured", False), ("calibrated", True)]
)
def test_replicas_without_speculation_decide_no_measurement_that_is_open(
    basis: str, decides: bool, tmp_path: Path
) -> None:
    world = World()
    # A plain step of 8 requests takes 0.028 s; a step with drafts as long, for 2
    # tokens.
    world.engine(
        Phase(
            20,
            acceptance=(0.6, 0.4),
            speedup=None,
            guess=1.05,
            basis=basis,
            step_seconds=0.028,
            running=8,
        )
    )
    world.engine(
        idle(20, activity="off", step_fit=(0.02, 0.001)), instance="10.0.0.2:9850"
    )
    speedup = Query(
        18,
        "round(model:vllm_specdec_speedup:ratio_rate5m)",
        {LLAMA: 2.0} if decides else {},
    )
    _verify(tmp_path, world, speedup)


@pytest.mark.parametrize(("error", "speedup"), [(0.3, 1.5), (0.1, 0.8)])
def test_a_replica_counts_where_the_error_of_its_line_leaves_out_1(
    error: float, speedup: float, tmp_path: Path
) -> None:
    """Else the next basis decides, as if there were no replica."""
    world = World()
    # For 2 tokens a step with drafts takes 2.5 times as long as a plain one: 0.8.
    world.engine(
        Phase(
            20,
            acceptance=(0.6, 0.4),
            speedup=1.5,
            basis="calibrated",
            step_seconds=0.07,
            running=8,
        )
    )
    other = idle(20, activity="off", step_fit=(0.02, 0.001), step_fit_error=error)
    world.engine(other, instance="10.0.0.2:9850")
    _recorded(tmp_path, world, 18, speedup__ratio_rate5m=speedup)


@pytest.mark.parametrize(("k", "state"), [(0, 12.0), (3, 4.0)])
def test_boards_say_off_where_the_schedule_has_no_drafts_and_bypassed_where_it_has(
    k: int, state: float, tmp_path: Path
) -> None:
    world = World()
    world.engine(idle(20, activity="bypassed", scheduled_k=k))
    _verify(
        tmp_path, world, _query(18, "model:vllm_specdec_state:code", {LLAMA: state})
    )


@pytest.mark.parametrize(("error", "ends", "state"), [(0.3, 2.0, 3.0), (0.1, 0.0, 2.0)])
def test_where_replicas_decide_boards_say_harmful_without_the_exporters_interval(
    error: float, ends: float, state: float, tmp_path: Path
) -> None:
    """Else a loss is likely, with the interval."""
    life = Phase(
        20, acceptance=(0.6, 0.4), speedup=None, basis="calibrated", step_seconds=0.07
    )
    world = World()
    world.engine(replace(life, guess=0.9, interval=(0.7, 1.1), loss=0.8))
    other = idle(20, activity="off", step_fit=(0.02, 0.001), step_fit_error=error)
    world.engine(other, instance="10.0.0.2:9850")
    interval = Query(
        18,
        "count(model:vllm_specdec_speedup_interval:ratio) or vector(0)",
        {"{}": ends},
    )
    _verify(
        tmp_path,
        world,
        interval,
        _query(18, "model:vllm_specdec_state:code", {LLAMA: state}),
    )


@pytest.mark.parametrize(
    ("lives", "verdict"),
    [
        ([Phase(20, speedup=0.9)], "harmful"),
        ([Phase(20, speedup=1.1)], "marginal"),
        ([Phase(20, speedup=1.3)], "beneficial"),
        ([Phase(20, speedup=None, guess=1.1)], "unknown"),
        # The published rule says that it does not pay, and a guess that it does.
        ([Phase(20, speedup=1.6, acceptance=(0.1, 0.02, 0.01))], "unknown"),
        (
            [Phase(20, speedup=1.6, acceptance=(0.1, 0.02, 0.01), basis="measured")],
            "beneficial",
        ),
        # Its only speedup is that against a replica without speculation.
        ([Phase(20, speedup=None, step_seconds=0.06), WITHOUT], "harmful"),
        # One engine is unknown, the other gains.
        (
            [
                Phase(20, speedup=None, guess=1.1),
                Phase(20, speedup=1.3, basis="measured"),
            ],
            "beneficial",
        ),
        ([idle(20)], None),
    ],
)
def test_a_model_has_one_verdict(
    lives: list[Phase], verdict: str | None, tmp_path: Path
) -> None:
    world = World()
    for index, life in enumerate(lives):
        world.engine(life, instance=f"10.0.0.{index}:9850")
    if verdict is None:
        samples = {}
    else:
        samples = {f'{VERDICT}{LLAMA[:-1]}, verdict="{verdict}"}}': 1.0}
    _verify(tmp_path, world, Query(18, VERDICT, samples), interval="3m")


def test_the_objective_weighs_times_by_their_drafts(tmp_path: Path) -> None:
    world = World()
    # 7200 drafts that gain, and after an idle hour 60000 within ten minutes that lose:
    # 89 %. Hour by hour it would be 98 %. Rates over five minutes blur the edges a
    # little.
    gain = Phase(120, drafts=60)
    lose = Phase(10, drafts=6000, speedup=0.8)
    world.engine(gain, idle(60), lose, idle(60))
    shares = [
        f'model:vllm_specdec_loss:ratio{{window="{window}"}}' for window in ("6h", "3d")
    ]
    # Of the objective's 95 %.
    shares.append("0.05 * (1 - model:vllm_specdec_worth_it_error_budget:remaining30d)")
    queries = [
        Query(
            246,
            f"count by (model_name, namespace) ({share} > 0.86 < 0.92)",
            {LLAMA: 1.0},
        )
        for share in shares
    ]
    _verify(tmp_path, world, *queries, interval="3m")


def test_a_measured_speedup_beats_that_against_replicas(tmp_path: Path) -> None:
    world = World()
    life = Phase(20, speedup=0.9, basis="measured", step_seconds=0.028, running=8)
    world.engine(life)
    other = idle(20, activity="off", step_fit=(0.02, 0.001), step_fit_error=0.01)
    world.engine(other, instance="10.0.0.2:9850")
    _recorded(tmp_path, world, 18, speedup__ratio_rate5m=0.9)


def test_of_exporters_that_disagree_the_lowest_threshold_counts(tmp_path: Path) -> None:
    world = World(
        Thresholds(disable_acceptance_ratio=0.3, poor_mean_acceptance_length=1.4)
    )
    world.engine(Phase(10))
    world.thresholds = Thresholds(
        disable_acceptance_ratio=0.4, poor_mean_acceptance_length=1.25
    )
    world.engine(Phase(10), instance="10.0.0.2:9850")
    _recorded(
        tmp_path,
        world,
        8,
        **{
            'threshold__min{threshold="disable_acceptance_ratio"}': 0.3,
            'threshold__min{threshold="poor_mean_acceptance_length"}': 1.25,
        },
    )


def test_an_exporter_of_several_models_has_thresholds_for_each(tmp_path: Path) -> None:
    world = World()
    world.engine(Phase(10))
    world.engine(Phase(10), model="other", exporter=False)
    own = {"job": JOB, "instance": "10.0.0.1:9850", "namespace": "chat"}
    for model in (MODEL, "other"):
        labels = {**own, "model_name": model, "threshold": "severe_speedup"}
        world.put("vllm_specdec_model_threshold", labels, 0, [0.9] * 10)
    name = 'model:vllm_specdec_threshold:min{threshold="severe_speedup"}'
    expected = {
        LLAMA.replace(MODEL, model)[:-1] + ', threshold="severe_speedup"}': 0.9
        for model in (MODEL, "other")
    }
    _verify(tmp_path, world, _query(8, name, expected))


def test_a_threshold_is_there_while_a_scrape_is_lost(tmp_path: Path) -> None:
    world = World()
    world.engine(Phase(10), Phase(2, gone=True), Phase(10))
    _recorded(
        tmp_path,
        world,
        11,
        **{'threshold__min{threshold="disable_acceptance_ratio"}': 0.5},
    )


def test_an_idle_model_has_no_ratios(tmp_path: Path) -> None:
    world = World()
    world.engine(idle(70))
    names = [name for name in RECORDED if ":ratio_rate" in name]
    _verify(tmp_path, world, *(Query(69, name, {}) for name in names), interval="3m")


def test_a_restart_takes_nothing_away(tmp_path: Path) -> None:
    world = World()
    # Of the minute of the restart nothing is known: three of the four that the five
    # scrapes of a window span.
    world.engine(Phase(20), Phase(20, restart=True))
    _recorded(
        tmp_path, world, 22, drafts__rate5m=1800 / 240, acceptance__ratio_rate5m=0.7
    )


def test_a_pair_of_servers_doubles_counts_and_breaks_no_rule(tmp_path: Path) -> None:
    """Its series reach the rules twice, by a label that nothing takes off: ratios hold,
    and promtool would tell of a rule that fails.
    """
    pair = World()
    for series, samples in build().samples().items():
        name, _, labels = series.partition("{")
        for replica in "ab":
            pair.repeat(f'{name}{{prometheus_replica="{replica}",{labels}', samples)
    length = "model:vllm_specdec_mean_acceptance_length:ratio_rate5m"
    drafts = "model:vllm_specdec_drafts:rate5m"
    queries = [
        _query(END, name, {text(key): times * v for key, v in EXPECTED[name].items()})
        for name, times in ((length, 1), (drafts, 2))
    ]
    complaint = verify(
        tmp_path,
        History("pair", pair, queries),
        rules={*RECORDED, *alert_names()},
        interval="3m",
        texts=False,
    )
    assert complaint == "", complaint
