"""Step times of the engine: learned while it serves, and the cost that follows from
them.
"""

import random
from types import SimpleNamespace

import pytest

from support.copies import replace
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.economics.hardware import parse_machine
from vllm_specdec_exporter.economics.model_names import parse_model
from vllm_specdec_exporter.economics.profiles import (
    Hardware,
    for_method,
    hardware_profile,
)
from vllm_specdec_exporter.economics.speedup import Estimate
from vllm_specdec_exporter.economics.step_correction import correct_by_steps
from vllm_specdec_exporter.economics.step_time import (
    HALF_LIFE,
    EngineSteps,
    StepFit,
    StepInterval,
    StepRegression,
    step_interval,
)
from vllm_specdec_exporter.economics.step_totals import steps_between
from vllm_specdec_exporter.engines.reading import Counters, Steps
from vllm_specdec_exporter.judgement.published_rules import apply_rules
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.measures.measures import Measures
from vllm_specdec_exporter.observe.state import EngineState
from vllm_specdec_exporter.publish.metrics import METRICS

FIXED = 8e-3
PER_REQUEST = 1.2e-4
PER_KV_CACHE = 20e-3
BATCHES = (1.0, 8.0, 32.0, 128.0)


def seconds(batch: float, kv_cache: float = 0.0) -> float:
    return FIXED + PER_REQUEST * batch + PER_KV_CACHE * kv_cache


def learned(intervals: list[StepInterval]) -> tuple[StepRegression, float]:
    times = StepRegression()
    now = 0.0
    for interval in intervals:
        now += 5.0
        times = times.add(interval, 3.0, now)
    return times, now


def fitted(intervals: list[StepInterval]) -> StepFit:
    times, now = learned(intervals)
    found = times.fit(now)
    assert isinstance(found, StepFit), found
    return found


def test_the_line_of_the_engine_is_found_in_noise_and_outliers() -> None:
    """Noise of a tenth, and one interval in fifty ten times too long: within 3 % over
    the batches seen.
    """
    chance = random.Random(7)
    intervals = []
    for _ in range(3000):
        batch = chance.uniform(1, 64)
        true = seconds(batch) * chance.gauss(1, 0.1)
        intervals.append(
            StepInterval(true * (10 if chance.random() < 0.02 else 1), batch)
        )

    found = fitted(intervals)

    for batch in (2, 8, 32, 60):
        assert found.seconds(batch) == pytest.approx(seconds(batch), rel=0.03), batch
    assert found.batches[0] < 2 < 50 < found.batches[1]


def test_the_published_error_covers_the_truth() -> None:
    """Few noisy intervals: 95 lines of 100 are within their error of the truth at every
    batch size.
    """
    (metric,) = [one for one in METRICS if one.name == "step_fit_error_ratio"]
    covered = 0
    for seed in range(200):
        chance = random.Random(seed)
        intervals = [
            StepInterval(seconds(batch) * chance.gauss(1, 0.1), batch)
            for batch in BATCHES * 3
        ]
        line = fitted(intervals)
        ((_, error),) = metric.samples(SimpleNamespace(steps=SimpleNamespace(fit=line)))
        covered += all(
            abs(line.seconds(batch) / seconds(batch) - 1) <= error for batch in BATCHES
        )
    assert covered >= 190, covered


def test_the_kv_cache_is_told_apart_where_its_use_varies() -> None:
    chance = random.Random(8)
    intervals = []
    for _ in range(2000):
        batch = chance.uniform(1, 64)
        kv_cache = 0.05 + 0.8 * (round(batch) % 7) / 7
        intervals.append(StepInterval(seconds(batch, kv_cache), batch, kv_cache))

    found = fitted(intervals)

    assert found.per_kv_cache == pytest.approx(PER_KV_CACHE, rel=0.1)
    assert found.seconds(16, 0.9) == pytest.approx(seconds(16, 0.9), rel=0.05)


def test_an_engine_that_changed_is_learned_anew() -> None:
    """Steps take twice as long from some time on; after six half-lives the new line
    counts.
    """
    chance = random.Random(9)

    def at(factor: float, count: int) -> list[StepInterval]:
        batches = [chance.uniform(1, 32) for _ in range(count)]
        return [StepInterval(seconds(batch) * factor, batch) for batch in batches]

    found = fitted(at(1.0, 500) + at(2.0, round(6 * HALF_LIFE / 5)))

    assert found.seconds(10) == pytest.approx(2 * seconds(10), rel=0.03)


REFUSED = {
    "nothing observed": ([], "no steps observed"),
    "one batch size": (
        [StepInterval(seconds(8), 8.0)] * 50,
        "only batch sizes of 8.0 to 8.0 observed",
    ),
    "prefill": (
        [StepInterval(seconds(8) * 5, 8.0, None, 0.7)] * 50,
        "70% of the tokens are prompts",
    ),
    "no time": ([StepInterval(float("nan"), 8.0)] * 50, "no step time in the interval"),
    "steps that get shorter": (
        [
            StepInterval(seconds(40 - batch), float(batch))
            for batch in (1, 2, 4, 8, 16, 32)
        ]
        * 9,
        "step time does not rise with the batch",
    ),
    "steps that begin below 0": (
        [
            StepInterval(0.01 * (batch - 0.9), float(batch))
            for batch in (1, 2, 4, 8, 16, 32)
        ]
        * 9,
        "step time rises more steeply than the batch",
    ),
    "a single time for each of two batch sizes": (
        [StepInterval(seconds(batch), batch) for batch in (2.0, 4.0)],
        "too few intervals to tell how much the step times scatter",
    ),
    "scatter": (
        [
            StepInterval(
                seconds(2.0 + 2 * (i % 2)) * (0.2, 1.8)[i // 2 % 2], 2.0 + 2 * (i % 2)
            )
            for i in range(6)
        ],
        "step times scatter: the line is known within",
    ),
    "throttling": (
        [
            StepInterval(seconds(b) * (2.5 if b in (2, 16) else 1), float(b))
            for b in (1, 2, 4, 8, 16, 32)
        ]
        * 9,
        "from a line over the batch size",
    ),
}


def test_a_line_through_two_bins_claims_no_more_than_they_can_tell() -> None:
    """Noise of 5 to 20 %: at most 7 % of the runs are off by more than their error."""
    for noise in (0.05, 0.2):
        for count in (12, 40):
            missed = 0
            runs = 0
            for seed in range(100):
                chance = random.Random(seed)
                batches = [chance.choice((2.0, 4.0)) for _ in range(count)]
                times, now = learned(
                    [
                        StepInterval(seconds(b) * chance.lognormvariate(0, noise), b)
                        for b in batches
                    ]
                )
                found = times.fit(now)
                if isinstance(found, StepFit):
                    runs += 1
                    missed += abs(found.seconds(2) / seconds(2) - 1) > found.error
            assert runs > 50, (noise, count)
            assert missed <= 0.07 * runs, (noise, count)


def test_what_shows_no_line_is_refused_with_the_reason() -> None:
    for case, (intervals, reason) in REFUSED.items():
        times, now = learned(intervals)
        assert reason in str(times.fit(now)), case


def test_another_k_starts_anew() -> None:
    times, now = learned(
        [StepInterval(seconds(batch), float(batch)) for batch in (1, 2, 4, 8)]
    )
    assert isinstance(times.fit(now), StepFit)

    times = times.add(StepInterval(0.02, 4.0), 5.0, now + 5)

    assert (times.k, len(times.bins)) == (5, 1)


def test_memory_is_bounded_and_old_intervals_end() -> None:
    """Whatever batches come, there are as many bins as half-doublings; after a day none
    counts.
    """
    chance = random.Random(1)
    batches = [chance.uniform(1, 1024) for _ in range(5000)]
    times, now = learned([StepInterval(seconds(batch), batch) for batch in batches])

    assert len(times.bins) <= 21
    assert times.fit(now + 86400) == "no steps observed"


K = 3


def steps(
    plain: tuple[float, ...] = (),
    drafting: tuple[float, ...] = (),
    slope: float = 0.001,
) -> EngineSteps:
    """Steps of 10 ms and `slope` for each request without drafts; half as long again
    with them.
    """
    found = EngineSteps()
    for time in range(20):
        for batch in plain:
            found = found.add(StepInterval(0.010 + slope * batch, batch), 0, 5.0 * time)
        for batch in drafting:
            found = found.add(
                StepInterval(1.5 * (0.010 + slope * batch), batch), K, 5.0 * time
            )
    return found


def test_steps_with_and_without_drafts_are_a_measurement() -> None:
    profile = for_method("eagle3")
    found = correct_by_steps(
        profile, steps((1, 2, 4, 8), (1, 2, 4, 8)), K, 4.0, 100.0, "ngram"
    )
    assert found.basis is Basis.MEASURED
    assert found.step_cost(K, 4) == pytest.approx(1.5, rel=0.02)
    assert found.uncertainty < 0.1


def test_the_error_of_a_measurement_is_its_own_in_every_batch_that_was_measured() -> (
    None
):
    """Also with known hardware, whose own error widens with the batch; beyond, it is
    that of a profile.
    """
    hardware = Hardware(*parse_machine("h100"), parse_model("8B"))
    for profile in (
        for_method("ngram"),
        hardware_profile(for_method("ngram"), hardware, method="ngram"),
    ):
        assert profile is not None
        both = steps((1, 2, 4, 8), (1, 2, 4, 8))
        found = correct_by_steps(profile, both, K, 8.0, 100.0, "ngram")
        for batch, error in ((8, found.uncertainty), (100, 0.6)):
            most = found.step_cost(K, batch) * (1 + error)
            assert found.cost_range(K, batch)[1] == pytest.approx(most), batch


def test_drafts_that_seem_to_save_time_within_the_error_are_free() -> None:
    """A step with drafts takes no less than a plain one: 0.97 of it is within the
    error, 0.9 is not.
    """
    both = steps((1, 2, 4, 8), (1, 2, 4, 8))
    profile = for_method("ngram")
    for factor, basis in ((0.97 / 1.5, Basis.MEASURED), (0.9 / 1.5, Basis.MODELLED)):
        bins = tuple(
            (at, replace(one, seconds=factor * one.seconds))
            for at, one in both.drafting.bins
        )
        shorter = EngineSteps(both.plain, StepRegression(K, bins))
        found = correct_by_steps(profile, shorter, K, 4.0, 100.0, "ngram")
        assert found.basis is basis, (factor, basis)
        assert found.step_cost(K, 4) == (
            1.0 if basis is Basis.MEASURED else profile.step_cost(K, 4)
        ), (factor, basis)


def test_a_draft_model_has_no_plain_steps() -> None:
    """With K=0 in a schedule, vLLM still runs its first pass."""
    both = steps((1, 2, 4, 8), (1, 2, 4, 8))
    for method in ("eagle3", "draft_model", "mtp", ""):
        found = correct_by_steps(for_method("eagle3"), both, K, 4.0, 100.0, method)
        assert found.basis is Basis.MODELLED, method


def test_it_is_not_extrapolated() -> None:
    """Beyond one and a half times the batch sizes at which both kinds were seen, the
    profile holds.
    """
    profile = for_method("eagle3")
    found = steps((1, 2, 4), (4, 8, 16))
    assert (
        correct_by_steps(profile, found, K, 4.0, 100.0, "ngram").basis is Basis.MEASURED
    )
    assert correct_by_steps(profile, found, K, 12.0, 100.0, "ngram") is profile


def test_steps_with_drafts_alone_give_the_slope() -> None:
    """Break-even moves with the batch as on this machine."""
    profile = for_method("eagle3")
    rise = {}
    for slope in (0.0001, 0.001):
        found = correct_by_steps(
            profile, steps((), (1, 8, 64), slope), K, 8.0, 100.0, "ngram"
        )
        assert found.basis is Basis.MODELLED, slope
        times = [
            found.step_times(K, 1)[1]
            + found.load * (found.step_times(K, batch)[1] - found.step_times(K, 1)[1])
            for batch in (1, 64)
        ]
        assert times[1] / times[0] == pytest.approx(
            (0.010 + slope * 64) / (0.010 + slope), rel=0.05
        ), slope
        rise[slope] = found.step_cost(K, 64) / found.step_cost(K, 1)
    assert rise[0.001] > rise[0.0001]


def test_a_token_takes_no_less_than_no_time_with_a_learned_slope() -> None:
    """The second token of a drafter with a single pass costs nothing, which a steep
    slope turns negative.
    """
    hardware = Hardware(*parse_machine("l40s"), parse_model("1.7B"))
    flat = hardware_profile(for_method("dflash"), hardware, method="dflash")
    assert flat is not None
    steep = replace(flat.at_context(300.0), load=4.0)
    window = Measures(
        window="5m",
        position_acceptance_ratio=(0.7, 0.4),
        estimate=Estimate(batch_size=5.0),
    )
    (rule,) = (
        rule
        for rule in apply_rules(window, steep, Thresholds())
        if rule.name == "marginal_benefit"
    )
    assert rule.text == "position 1 gives 0.40 tokens for the time of 0.00 plain steps"


def test_what_shows_nothing_leaves_the_profile() -> None:
    """Nothing learned, another K, no drafts, drafts at one batch size only.

    Nor does a slope of steps with drafts with which plain ones would take longer: with
    a long context, the time of verification hardly rises with the batch.
    """
    hardware = Hardware(*parse_machine("a100"), parse_model("70B"))
    flat = hardware_profile(for_method("ngram"), hardware, method="ngram")
    assert flat is not None
    flat = flat.at_context(16_000.0)
    assert (
        correct_by_steps(flat, steps((), (3, 5, 8), 4e-5), K, 7.0, 100.0, "ngram")
        is flat
    )
    profile = for_method("eagle3")
    both = steps((1, 2, 4), (1, 2, 4))
    for learned_steps, drafted, batch in (
        (EngineSteps(), K, 4.0),
        (EngineSteps(both.drafting, replace(both.plain, k=K)), K, 4.0),
        (both, 5, 4.0),
        (both, None, None),
        (steps((1, 2, 4), (4, 4, 4)), K, 4.0),
    ):
        assert (
            correct_by_steps(profile, learned_steps, drafted, batch, 100.0, "ngram")
            is profile
        ), (learned_steps, drafted, batch)


def test_a_calibrated_profile_keeps_its_slope() -> None:
    profile = for_method("eagle3")
    calibrated = profile.__class__(
        profile.name, profile.target, profile.draft, basis=Basis.CALIBRATED
    )
    assert (
        correct_by_steps(calibrated, steps((), (1, 8, 64)), K, 8.0, 100.0, "ngram")
        is calibrated
    )


def test_few_drafts_are_neither() -> None:
    """Steps of which few have drafts, as with n-gram lookup, are learned as neither
    kind.
    """
    found = EngineSteps().add(StepInterval(0.01, 2.0), 0.3, 5.0)
    assert (found.plain.bins, found.drafting.bins, found.drafting.refused) == (
        (),
        (),
        "few steps have drafts",
    )


def test_a_restart_forgets_the_steps() -> None:
    """The engine may come back with another model or on another machine."""
    state = EngineState()
    for poll in range(4):
        counters = Counters(
            drafts=100.0 * poll,
            draft_tokens=300.0 * poll,
            generation_tokens=200.0 * poll,
        )
        taken = Steps(
            step_seconds=1.0 * poll, step_observations=100.0 * poll, prompt_tokens=0.0
        )
        state = state.add_sample(
            Sample(5.0 * poll, counters, 4.0, steps=taken), 300.0, ()
        )
    assert state.steps.drafting.bins

    again = Sample(
        20.0,
        Counters(drafts=0.0, draft_tokens=0.0, generation_tokens=0.0),
        4.0,
        steps=Steps(),
    )
    assert state.add_sample(again, 300.0, ()).steps == EngineSteps()


def test_the_context_is_the_prompt_and_half_the_answer() -> None:
    """Of ten requests or more: fewer say little."""
    for requests, context in ((10, 700.0), (9, None)):
        after = (
            Counters(generation_tokens=400.0 * requests),
            Steps(prompt_tokens=500.0 * requests),
        )
        before = Counters(generation_tokens=0.0), Steps(prompt_tokens=0.0, requests=0.0)
        last = after[0], replace(after[1], requests=float(requests))
        assert steps_between(before, last).mean_context == context, (requests, context)
    assert steps_between(before, after).mean_context is None


def test_observations_of_tokens_are_no_steps() -> None:
    """Such as vLLM's pull request 47382 would make them: their mean is no time of a
    step.

    Ten requests with 100 steps of 30 ms: drafts emit 150 tokens; answers end within
    drafts; nothing is accepted; nothing is drafted.
    """
    first = (
        Counters(0.0, accepted_tokens=0.0, generation_tokens=0.0),
        Steps(0.0, 0.0, requests=0.0),
    )
    for drafts, accepted, emitted in (
        (100.0, 150.0, 150.0),
        (100.0, 190.0, 150.0),
        (100.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
    ):
        after = Counters(
            drafts, accepted_tokens=accepted, generation_tokens=110.0 + emitted
        )
        of_steps = Steps(3.0, 100.0, requests=10.0)
        of_tokens = replace(of_steps, step_observations=100.0 + emitted)
        shown = step_interval(steps_between(first, (after, of_steps)), 4.0, None)
        assert shown is not None, (drafts, accepted, emitted)
        assert shown[0].seconds == 0.03, (drafts, accepted, emitted)
        assert step_interval(steps_between(first, (after, of_tokens)), 4.0, None) == (
            None if emitted else shown
        ), (drafts, accepted, emitted)
