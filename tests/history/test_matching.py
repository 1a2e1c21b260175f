"""Speedups of the past against a known truth: found, not invented, and refused where
they cannot be known.
"""

import math
import random
from collections import Counter

import pytest

from history.world import ACCEPTED, DAY, STEP, Life, World, four, truth
from vllm_specdec_exporter.commands.history.cells import BlockLength, Cells
from vllm_specdec_exporter.commands.history.configuration import Configuration, runs_of
from vllm_specdec_exporter.commands.history.document import (
    HistoryDocument,
    ModelHistory,
)
from vllm_specdec_exporter.commands.history.matching import Compared, judge_change
from vllm_specdec_exporter.commands.history.report import render
from vllm_specdec_exporter.economics.statistics import format_ratio

#: Comparisons by place: each K against none, and each against the one before it.
AGAINST = [(1, 0), (3, 0), (3, 1), (5, 0), (5, 3)]
SEEDS = 100
#: Least share of intervals that hold the truth, which is what they promise.
PROMISED = 0.95


def words_of(past: ModelHistory) -> str:
    document = HistoryDocument(
        "",
        version="",
        since_seconds=0,
        until_seconds=0,
        block_seconds=3600,
        models=(past,),
    )
    return " ".join(render(document).split())


def history(world: World, **more: object) -> ModelHistory:
    (judged,) = world.past(**more).histories()
    return judged


def judged(world: World, history: ModelHistory) -> list[tuple[bool, bool]]:
    """Return for each comparison whether its interval holds the truth, and those of all
    its bins.
    """
    held = []
    for comparison in history.comparisons:
        k, k_before = (
            history.configurations[index].configuration.num_speculative_tokens
            if world.effect
            else 0
            for index in (comparison.new, comparison.old)
        )
        speedup = comparison.speedup
        assert speedup is not None, comparison.problem
        bins = [
            each_bin for each_bin in comparison.bins if each_bin.speedup.low is not None
        ]
        within = [
            each_bin.speedup.low
            <= truth([each_bin], k, k_before)
            <= each_bin.speedup.high
            for each_bin in bins
        ]
        held.append(
            (speedup.low <= truth(comparison.bins, k, k_before) <= speedup.high, within)
        )
    return held


@pytest.mark.full
@pytest.mark.parametrize(
    ("effect", "busier"),
    [(True, {}), (False, {}), (True, {2: 2.0})],
    ids=["effect", "none", "doubled"],
)
def test_intervals_hold_the_truth_as_often_as_promised(
    effect: bool, busier: dict[float, float]
) -> None:
    """Of a hundred pasts with four configurations, whole and in bins, also if the load
    doubles with the first change.
    """
    overall = Counter()
    in_bins = 0
    bins = 0
    for seed in range(SEEDS):
        world = four(seed, replicas=2, days=8, step=600.0, effect=effect, busier=busier)
        for index, (held, within) in enumerate(judged(world, history(world))):
            overall[index] += held
            in_bins += sum(within)
            bins += len(within)
    assert sum(overall.values()) >= PROMISED * SEEDS * len(AGAINST), overall
    assert min(overall.values()) >= (PROMISED - 0.02) * SEEDS, overall
    assert in_bins >= (PROMISED - 0.02) * bins


_TOO_SHORTLY = (
    "only no speculation had traffic; K=3 ran too shortly: for {} at a time, and "
    "15m near start and end are left out"
)


@pytest.mark.parametrize(
    ("minutes", "shortest_block", "problem"),
    [
        (10, 0.0, _TOO_SHORTLY.format("10m")),
        (15, 100.0, f"{_TOO_SHORTLY.format('15m')}, or less with a shorter --block"),
        (15, 200.0, _TOO_SHORTLY.format("15m")),
        (0, 0.0, "only no speculation had traffic"),
    ],
    ids=["10 min", "15 min", "no shorter block", "never"],
)
def test_what_ran_too_shortly_had_traffic_all_the_same(
    minutes: float, shortest_block: float, problem: str
) -> None:
    """Once for hours, once for a few steps of time: not "only the first had any"."""
    lives = [Life("r0:8000", 0, 0.5, 0)]
    if minutes:
        lives.append(Life("r0:8000", 0.5, 0.5 + minutes / 1440, 3))
    past = history(World(lives), shortest_block=shortest_block)
    assert past.problem == problem


def test_one_that_ran_too_shortly_beside_others_is_named() -> None:
    """A K that was taken back at once is no reason to say nothing of it."""
    day = 1.0
    lives = [
        Life("r0:8000", 0, day, 0),
        Life("r0:8000", day, 2 * day, 5),
        Life("r0:8000", 2 * day, 2 * day + 10 / 1440, 3),
    ]
    past = history(World(lives))
    assert [change.new for change in past.comparisons] == [1]
    assert past.problem == _TOO_SHORTLY.format("10m").partition("; ")[2]
    assert "K=3 ran too shortly: for 10m" in words_of(past)


def test_what_ran_longer_once_did_not_run_too_shortly() -> None:
    """It had no traffic for a day, and came back for ten minutes."""
    lives = [
        Life("r0:8000", 0, 1, 3),
        Life("r0:8000", 1, 2, 0),
        Life("r0:8000", 2, 2 + 10 / 1440, 3),
    ]
    world = World(lives)
    counts = world.counts[lives[0]]
    world.counts[lives[0]] = {name: 0 * values for name, values in counts.items()}
    assert history(world).problem == "only no speculation had traffic"


def test_a_load_that_doubles_with_speculation_deceives_the_mean_and_not_the_match() -> (
    None
):
    """The ratio of means is wrong by more than 30 %; at the same load it is right."""
    past = history(four(0, busier={3.5: 2.0}))
    without = past.configurations[0].time_per_output_token_seconds
    against_none = [each for each in past.comparisons if each.old == 0]
    assert len(against_none) == 3
    for comparison in against_none:
        drafting = past.configurations[comparison.new]
        k = drafting.configuration.num_speculative_tokens
        right = truth(comparison.bins, k)
        assert without / drafting.time_per_output_token_seconds < 0.7 * right, k
        # The drift is corrected by what a few days show of it.
        assert comparison.speedup.value == pytest.approx(right, rel=0.06), k
        assert comparison.speedup.holds(right), k


def test_a_rolling_change_is_compared_within_each_block_of_time() -> None:
    """While both run, the drift of the hours is the same for both, so it cancels."""
    lives = [Life(f"r{n}", 0, 3 + n, 0) for n in range(4)] + [
        Life(f"r{n}", 3 + n, 8, 3) for n in range(4)
    ]
    world = World(lives, 1)
    (comparison,) = history(world).comparisons
    assert comparison.matched_by == (
        "running requests",
        "prompt length",
        "block of time",
    )
    assert comparison.blocks == comparison.blocks_before == pytest.approx(72, abs=2)
    ((held, _),) = judged(world, history(world))
    assert held
    text = words_of(history(world))
    assert f"at the same load, in {comparison.coverage:.0%} of its traffic" in text
    apart = World([Life("r0", 0, 4, 0), Life("r0", 4, 8, 3)], 1)
    assert "block of time" not in history(apart).comparisons[0].matched_by


def test_prefill_servers_are_no_time_without_speculation() -> None:
    """Disaggregated: they draft nothing, emit one token for each request, and have 0 as
    time per token.
    """
    world = World(
        [Life("decode", 0, 4, 0), Life("decode", 4, 8, 3), Life("prefill", 0, 8, 0)], 1
    )
    for counts in (
        world.counts[life] for life in world.lives if life.replica == "prefill"
    ):
        counts["generation_tokens"] = counts["requests"].copy()
        counts["tpot_sum"] *= 0
    alone = World([life for life in world.lives if life.replica == "decode"], 1)
    assert history(world) == history(alone)


def test_a_past_that_always_speculated_is_compared_with_the_one_before() -> None:
    """In words: since when, both K, the speedup with its interval, and both lengths."""
    world = World([Life("r0", 0, 4, 3), Life("r0", 4, 8, 5)], 3)
    past = history(world)
    ((held, _),) = judged(world, past)
    assert held
    text = words_of(past)
    speedup = past.comparisons[0].speedup
    assert (
        "since 7 November (K 3 to 5): no certain difference, "
        f"{format_ratio(speedup.value)} "
        "times as fast"
    ) in text
    assert f"({speedup.low:.2f} to {speedup.high:.2f}) at the same load" in text
    assert "acceptance length 2.85 to 3.35" in text


def test_without_a_time_by_requests_the_step_over_its_tokens_is_compared() -> None:
    """Before 0.11, vLLM has only the inter-token latency; with requests of equal length
    both are the same.
    """
    world = four(2)
    by_requests = history(world)
    by_steps = history(world, leave_out=("tpot_sum", "tpot_count"))
    assert {each.per_token for each in by_requests.comparisons} == {False}
    assert {each.per_token for each in by_steps.comparisons} == {True}
    speedups = [each.speedup.value for each in by_requests.comparisons]
    assert speedups == pytest.approx(
        [each.speedup.value for each in by_steps.comparisons], rel=1e-6
    )
    # an upgrade in the middle of each configuration
    for counts in world.counts.values():
        for name in ("tpot_sum", "tpot_count"):
            counts[name] = counts[name].copy()
            counts[name][: len(counts[name]) // 2] = math.nan
    upgraded = history(world).configurations
    assert [each.requests for each in upgraded] == [
        each.requests for each in by_requests.configurations
    ]
    (neither, *_) = history(
        world, leave_out=("tpot_sum", "tpot_count", "step_seconds")
    ).comparisons
    assert (
        "stored neither request_time_per_output_token_seconds_sum nor inter"
        in neither.problem
    )


_OTHER_LOADS = World([Life("r0", 0, 4, 0), Life("r0", 4, 8, 3)], 1, busier={4: 12.0})
_TOO_SHORT = World([Life("r0", 0, 4, 0), Life("r0", 4, 4.1, 3)], 1)
_NONE_AT_ITS_LOAD = (
    "3% of its traffic has a counterpart at the same load, and 10% is needed"
)
_TOO_FEW = (
    "3 blocks of time with loads of both, against 48, and 6 of about equal traffic are "
    "needed"
)
_REFUSED = {
    "other loads": (_OTHER_LOADS, _NONE_AT_ITS_LOAD),
    "too short": (_TOO_SHORT, _TOO_FEW),
}


@pytest.mark.parametrize(("world", "missing"), _REFUSED.values(), ids=_REFUSED)
def test_what_cannot_be_compared_is_refused_with_what_is_missing(
    world: World, missing: str
) -> None:
    past = history(world)
    assert past.comparisons[0].speedup is None
    assert missing in past.comparisons[0].problem
    assert "cannot be compared: " in words_of(past)


def finish(
    cells: Cells,
    block: int,
    tokens: float,
    seconds: float,
    prompt: float = 100.0,
    prefill: float = 0.0,
) -> None:
    """Let so many tokens be generated in a block, with four running requests."""
    cells.add(
        block,
        4.0,
        prompt,
        generated=tokens,
        seconds=seconds * tokens,
        requests=tokens,
        begun=1.0,
        prefill_seconds=prefill * prompt,
    )


@pytest.mark.parametrize("prompt", [750.0, 1300.0, 1700.0, 3000.0])
@pytest.mark.parametrize("answer", [100.0, 200.0, 400.0])
def test_longer_prompts_and_answers_are_no_effect_of_the_change(
    prompt: float, answer: float
) -> None:
    """Contexts are read and prompts computed in the steps of others; how much that is
    shows in no configuration alone. It is within the interval, and nothing is refused.
    """
    sides = (Cells(), Cells())
    for block in range(40):
        for cells, first, shape in (
            (sides[0], 0, (1500.0, 200.0)),
            (sides[1], 40, (prompt, answer)),
        ):
            of_prompt, of_answer = shape
            finish(
                cells,
                first + block,
                tokens=of_answer,
                seconds=1 + of_prompt / 10_000 + 0.03 * of_prompt / of_answer,
                prompt=of_prompt,
            )
    judged = judge_change(Compared(sides), 1, 0)
    assert judged.speedup is not None, judged.problem
    assert judged.effect == "no certain difference", judged
    assert judged.speedup.holds(1), judged


@pytest.mark.parametrize(
    "busy", [{20: 4000.0}, dict.fromkeys(range(16, 25), 1000.0)], ids=["one", "some"]
)
def test_blocks_with_most_of_the_traffic_make_no_interval_narrow(
    busy: dict[int, float],
) -> None:
    """Blocks scatter by a tenth, neighbours alike, and few of them have most of the
    traffic.
    """
    held = compared = 0
    for seed in range(300):
        chance = random.Random(seed)
        sides = []
        for seconds, first in ((1.0, 0), (0.8, 40)):
            cells = Cells()
            scatter = 0.0
            for block in range(40):
                if len(busy) > 1:
                    scatter = 0.5 * scatter + chance.gauss(0, 0.07)
                else:
                    scatter = chance.gauss(0, 0.1)
                tokens = busy.get(block, 100.0)
                finish(cells, first + block, tokens, seconds * math.exp(scatter))
            sides.append(cells)
        judged = judge_change(Compared(sides), 1, 0).speedup
        if judged is not None:
            compared += 1
            held += judged.holds(1.25)
    assert compared > 100
    assert held >= 0.9 * compared, (held, compared)


@pytest.mark.parametrize("gain", [0.6, 1.0, 2.5])
def test_a_machine_that_changes_at_the_same_time_is_no_effect(gain: float) -> None:
    """A GPU that is 27 % faster computes prompts faster too. Only an effect beyond what
    that explains is one.
    """
    chance = random.Random(1)
    sides = (Cells(), Cells())
    for block in range(40):
        for cells, first, machine, speedup in (
            (sides[0], 0, 1.0, 1.0),
            (sides[1], 40, 1.27, 1.27 * gain),
        ):
            finish(
                cells,
                first + block,
                tokens=100.0,
                seconds=math.exp(chance.gauss(0, 0.02)) / speedup,
                prefill=1e-4 * math.exp(chance.gauss(0, 0.02)) / machine,
            )
    judged = judge_change(Compared(sides), 1, 0)
    assert judged.speedup.holds(gain), judged
    effects = {0.6: "worse", 1.0: "no certain difference", 2.5: "helped"}
    assert judged.effect == effects[gain], judged
    prefill = judged.prefill_speedup.value
    assert judged.other_changes == (
        f"prefills are {prefill:.2f} times as fast per prompt token",
    )


@pytest.mark.parametrize("machine", [0.9, 1.1])
@pytest.mark.parametrize("scatter", [0.02, 0.1, 0.3])
def test_a_machine_that_differs_by_a_tenth_is_no_effect(
    machine: float, scatter: float
) -> None:
    """Whether the times of prefills show it for certain or not."""
    named = 0
    for seed in range(10):
        chance = random.Random(seed)
        sides = (Cells(), Cells())
        for block in range(80):
            speed = 1.0
            if block >= 40:
                speed = machine
            finish(
                sides[block >= 40],
                block,
                tokens=100.0,
                seconds=math.exp(chance.gauss(0, 0.02)) / speed,
                prefill=1e-4 * math.exp(chance.gauss(0, scatter)) / speed,
            )
        judged = judge_change(Compared(sides), 1, 0)
        assert judged.speedup.holds(1), (seed, judged)
        assert judged.effect == "no certain difference", (seed, judged)
        named += bool(judged.other_changes)
    assert named >= 5


@pytest.mark.parametrize(
    ("new", "changes"),
    [
        ({"cache_dtype": "auto", "num_gpu_blocks": "9500"}, ()),
        ({"cache_dtype": "fp8"}, ("cache_dtype auto to fp8",)),
        (
            {"cache_dtype": "auto", "num_gpu_blocks": "27000"},
            ("num_gpu_blocks 10000 to 27000",),
        ),
        ({}, ()),
    ],
)
def test_another_configuration_of_the_cache_changed_too(
    new: dict[str, str], changes: tuple[str, ...]
) -> None:
    """Without prefill times, whose effect it is cannot be known."""
    chance = random.Random(1)
    sides = (Cells(), Cells())
    for block in range(80):
        pace = math.exp(chance.gauss(0, 0.02)) / (1.0 if block < 40 else 1.34)
        finish(sides[block >= 40], block, tokens=100.0, seconds=pace)
    old = {"cache_dtype": "auto", "num_gpu_blocks": "10000"}
    for cells, facts in zip(sides, (old, new), strict=True):
        for name, value in facts.items():
            cells.facts[name][value] += 1
    judged = judge_change(Compared(sides), 1, 0)
    assert judged.other_changes == changes
    effect = "not certain to be its effect" if changes else "helped"
    assert judged.effect == effect


@pytest.mark.parametrize(("cached", "named"), [(0.95, True), (0.05, False)])
def test_prompts_that_the_prefix_cache_had_changed_too(
    cached: float, named: bool
) -> None:
    """A server that finds 95 % of its prompts has no prefills between its steps."""
    world = World([Life("r0", 0, 4, 0), Life("r0", 4, 8, 3)], 1)
    for life, ratio in zip(world.lives, (0.0, cached), strict=True):
        counts = world.counts[life]
        counts["prefix_cache_queries"] = counts["prompt_tokens"]
        counts["prefix_cache_hits"] = ratio * counts["prompt_tokens"]
    past = history(world)
    (comparison,) = past.comparisons
    ratios = [each.prefix_cache_hit_ratio for each in past.configurations]
    assert ratios == pytest.approx([0.0, cached])
    assert bool(comparison.other_changes) is named
    if named:
        assert comparison.effect == "not certain to be its effect"
        assert "from the prefix cache 0% to 95%" in words_of(past)


@pytest.mark.parametrize("by_day", [-0.04, -0.02, 0.02, 0.04])
def test_a_steady_drift_is_no_effect_of_the_change(by_day: float) -> None:
    """What makes all slower each day shows within each configuration."""
    for seed in range(20):
        chance = random.Random(seed)
        sides = (Cells(), Cells())
        for block in range(2 * 96):
            pace = math.exp(by_day * block / 24 + chance.gauss(0, 0.03))
            finish(sides[block >= 96], block, tokens=100.0, seconds=pace)
        judged = judge_change(Compared(sides), 1, 0)
        assert judged.effect == "no certain difference", (seed, judged)


def test_traffic_without_a_counterpart_is_said_with_its_load() -> None:
    """The speedup of a third of the traffic is not that of all of it."""
    world = World([Life("r0", 0, 4, 0), Life("r0", 4, 8, 3)], 1, busier={4: 3.0})
    past = history(world)
    (comparison,) = past.comparisons
    uncompared = comparison.uncompared
    assert comparison.coverage + uncompared.share == pytest.approx(1)
    assert 0.1 < comparison.coverage < 0.8
    assert uncompared.running_high > 20
    text = words_of(past)
    assert (
        f"not known for the other {uncompared.share:.0%}, at {uncompared.running:.0f}"
        in text
    )


def test_a_shorter_block_is_advised_where_it_can_help() -> None:
    """Not where the time of both is too short for six blocks of any length."""
    sides = (Cells(), Cells())
    for block in range(20):
        finish(sides[0], block, tokens=100.0, seconds=1.0)
    for block in range(20, 23):
        finish(sides[1], block, tokens=100.0, seconds=1.0)
    problems = {
        shortest: judge_change(
            Compared(sides, BlockLength(3600.0, shortest)), 1, 0
        ).problem
        for shortest in (0.0, 300.0, 3600.0)
    }
    assert problems[300.0].endswith("more time, or a shorter --block, such as 15m")
    assert problems[0.0].endswith("needed of each: more time")
    assert problems[3600.0].endswith("needed of each: more time")


def test_the_length_is_what_answers_got_of_drafts() -> None:
    """Tokens that are accepted behind the end of an answer count as accepted."""
    life = Life("r0", 1, 2, 3)
    world = World([Life("r0", 0, 1, 0), life], 1)
    counts = world.counts[life]
    counts["accepted_tokens"] = 3 * counts["drafts"]
    drafting = history(world).configurations[1]
    assert drafting.mean_acceptance_length == pytest.approx(
        1 + sum(ACCEPTED[:3]), rel=1e-6
    )


def test_requests_near_a_change_are_counted_as_left_out() -> None:
    """Phases of an hour lose a quarter of their requests, and say so; a lost sample
    begins no new phase.
    """
    lives = [Life("r0", n / 24, (n + 1) / 24, 3 * (n % 2)) for n in range(16)]
    world = World(lives, 1)
    past = history(world)
    assert [each.periods for each in past.configurations] == [8, 8]
    for each in past.configurations:
        k = each.configuration.num_speculative_tokens
        counted = sum(
            world.counts[life]["requests"][:-1].sum() for life in lives if life.k == k
        )
        assert each.requests + each.requests_left_out == pytest.approx(counted, rel=0.1)
    assert "(+" in words_of(past)


def test_every_request_counts_once_and_none_near_a_change() -> None:
    """What is compared and shown is what finished, but for two steps after a start and
    one before an end.
    """
    world = World([Life("r0", 0, 1, 0), Life("r0", 1, 2, 3)], 1)
    finished = [world.counts[life]["requests"][2:-2].sum() for life in world.lives]
    shown = history(world).configurations
    assert [each.requests for each in shown] == finished


def test_a_pod_and_its_successor_are_one_replica_at_a_time() -> None:
    """As in Kubernetes, where each restart has a new name and both are seen within the
    step of the change.
    """
    lives = [
        Life(f"pod-{n}", max(0, n / 4 - STEP / DAY), (n + 1) / 4, 3) for n in range(8)
    ]
    (only,) = history(World(lives, 1)).configurations
    assert (only.replicas, only.periods) == (1, 1)


def test_runs_end_at_gaps_and_changes_and_fill_what_is_not_shown_for_a_time() -> None:
    """An exporter that is down for a time makes no new configuration; a gap and another
    version do.
    """
    old = Configuration(3, "eagle3", "0.32.0")
    new = Configuration(3, "eagle3", "0.33.0")
    deeper = Configuration(5, "eagle3", "0.33.0")
    shown = [Configuration(3), old, Configuration(3), None, None, new, deeper]
    assert runs_of(shown) == [
        (old, range(3)),
        (new, range(5, 6)),
        (deeper, range(6, 7)),
    ]
