"""Step times of the engine: learned while it serves, and the cost that follows from
them.
"""

import random
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from support.copies import replace
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import Basis, CostProfile
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


def taken(
    batches: Iterable[float], time: Callable[[float], float] = seconds
) -> list[StepInterval]:
    return [StepInterval(time(batch), batch) for batch in batches]


def noisy(chance: random.Random, share: float) -> Callable[[float], float]:
    """True times with a noise of this share of them."""
    return lambda batch: seconds(batch) * chance.lognormvariate(0, share)


def learned(intervals: list[StepInterval]) -> tuple[StepRegression, float]:
    regression = StepRegression()
    time = 0.0
    for interval in intervals:
        time += 5.0
        regression = regression.add(interval, 3.0, time)
    return regression, time


def fitted(intervals: list[StepInterval]) -> StepFit:
    regression, time = learned(intervals)
    line = regression.fit(time)
    assert isinstance(line, StepFit), line
    return line


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

    line = fitted(intervals)

    for batch in (2, 8, 32, 60):
        assert line.seconds(batch) == pytest.approx(seconds(batch), rel=0.03), batch
    assert line.batches[0] < 2 < 50 < line.batches[1]


def test_the_published_error_covers_the_truth() -> None:
    """Few noisy intervals: 95 lines of 100 are within their error of the truth at every
    batch size.
    """
    (metric,) = [row for row in METRICS if row.name == "step_fit_error_ratio"]
    covered = 0
    for seed in range(200):
        chance = random.Random(seed)
        line = fitted(taken(BATCHES * 3, noisy(chance, 0.1)))
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

    line = fitted(intervals)

    assert line.per_kv_cache == pytest.approx(PER_KV_CACHE, rel=0.1)
    assert line.seconds(16, 0.9) == pytest.approx(seconds(16, 0.9), rel=0.05)


def test_an_engine_that_changed_is_learned_anew() -> None:
    """Steps take twice as long from some time on; after six half-lives the new line
    counts.
    """
    chance = random.Random(9)

    def at(factor: float, count: int) -> list[StepInterval]:
        batches = [chance.uniform(1, 32) for _ in range(count)]
        return taken(batches, lambda batch: factor * seconds(batch))

    line = fitted(at(1.0, 500) + at(2.0, round(6 * HALF_LIFE / 5)))

    assert line.seconds(10) == pytest.approx(2 * seconds(10), rel=0.03)


DOUBLING = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0) * 9
THROTTLED = {2.0: 2.5, 16.0: 2.5}
REFUSED = {
    "nothing observed": ([], "no steps observed"),
    "one batch size": (taken([8.0] * 50), "only batch sizes of 8.0 to 8.0 observed"),
    "prefill": (
        [StepInterval(seconds(8) * 5, 8.0, None, 0.7)] * 50,
        "70% of the tokens are prompts",
    ),
    "no time": ([StepInterval(float("nan"), 8.0)] * 50, "no step time in the interval"),
    "steps that get shorter": (
        taken(DOUBLING, lambda batch: seconds(40 - batch)),
        "step time does not rise with the batch",
    ),
    "steps that begin below 0": (
        taken(DOUBLING, lambda batch: 0.01 * (batch - 0.9)),
        "step time rises more steeply than the batch",
    ),
    "a single time for each of two batch sizes": (
        taken((2.0, 4.0)),
        "too few intervals to tell how much the step times scatter",
    ),
    "scatter": (
        [
            StepInterval(seconds(batch) * factor, batch)
            for factor in (0.2, 1.8, 0.2)
            for batch in (2.0, 4.0)
        ],
        "step times scatter: the line is known within",
    ),
    "throttling": (
        taken(DOUBLING, lambda batch: seconds(batch) * THROTTLED.get(batch, 1)),
        "from a line over the batch size",
    ),
}


@pytest.mark.parametrize("noise", [0.05, 0.2])
@pytest.mark.parametrize("count", [12, 40])
def test_a_line_through_two_bins_claims_no_more_than_they_can_tell(
    count: int, noise: float
) -> None:
    """At most 7 % of the runs are off by more than their error."""
    missed = 0
    runs = 0
    for seed in range(100):
        chance = random.Random(seed)
        batches = [chance.choice((2.0, 4.0)) for _ in range(count)]
        regression, time = learned(taken(batches, noisy(chance, noise)))
        line = regression.fit(time)
        if isinstance(line, StepFit):
            runs += 1
            missed += abs(line.seconds(2) / seconds(2) - 1) > line.error
    assert runs > 50
    assert missed <= 0.07 * runs


@pytest.mark.parametrize(("intervals", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_shows_no_line_is_refused_with_the_reason(
    intervals: list[StepInterval], reason: str
) -> None:
    regression, time = learned(intervals)
    assert reason in str(regression.fit(time))


def test_another_k_starts_anew() -> None:
    regression, time = learned(taken((1.0, 2.0, 4.0, 8.0)))
    assert isinstance(regression.fit(time), StepFit)

    regression = regression.add(StepInterval(0.02, 4.0), 5.0, time + 5)

    assert (regression.k, len(regression.bins)) == (5, 1)


def test_memory_is_bounded_and_old_intervals_end() -> None:
    """Whatever batches come, there are as many bins as half-doublings; after a day none
    counts.
    """
    chance = random.Random(1)
    batches = [chance.uniform(1, 1024) for _ in range(5000)]
    regression, time = learned(taken(batches))

    assert len(regression.bins) <= 21
    assert regression.fit(time + 86400) == "no steps observed"


K = 3


def steps(
    plain: tuple[float, ...] = (),
    drafting: tuple[float, ...] = (),
    slope: float = 0.001,
) -> EngineSteps:
    """Steps of 10 ms and `slope` for each request without drafts; half as long again
    with them.
    """
    learned_steps = EngineSteps()
    for time in range(20):
        for batches, k, factor in ((plain, 0, 1.0), (drafting, K, 1.5)):
            for batch in batches:
                step = StepInterval(factor * (0.010 + slope * batch), batch)
                learned_steps = learned_steps.add(step, k, 5.0 * time)
    return learned_steps


#: With and without drafts at the same batch sizes.
EVEN = steps((1, 2, 4, 8), (1, 2, 4, 8))


def known_hardware(gpu: str, model: str, method: str) -> CostProfile:
    hardware = Hardware(*parse_machine(gpu), parse_model(model))
    return hardware_profile(for_method(method), hardware, method=method)


def corrected(
    profile: CostProfile,
    learned: EngineSteps,
    batch: float | None = 4.0,
    *,
    drafted: float | None = K,
    method: str = "ngram",
) -> CostProfile:
    return correct_by_steps(
        profile, learned, drafted=drafted, batch=batch, time=100.0, method=method
    )


def test_steps_with_and_without_drafts_are_a_measurement() -> None:
    profile = corrected(for_method("eagle3"), EVEN)
    assert profile.basis is Basis.MEASURED
    assert profile.step_cost(K, 4) == pytest.approx(1.5, rel=0.02)
    assert profile.uncertainty < 0.1


@pytest.mark.parametrize("known", [False, True], ids=["generic", "known hardware"])
def test_the_error_of_a_measurement_is_its_own_in_every_batch_that_was_measured(
    known: bool,
) -> None:
    """Also with known hardware, whose own error widens with the batch; beyond, it is
    that of a profile.
    """
    profile = for_method("ngram")
    if known:
        profile = known_hardware("h100", "8B", "ngram")
    measured_profile = corrected(profile, EVEN, 8.0)
    ends = [measured_profile.cost_range(K, batch)[1] for batch in (8, 100)]
    measured, beyond = (measured_profile.step_cost(K, batch) for batch in (8, 100))
    assert ends == pytest.approx(
        [measured * (1 + measured_profile.uncertainty), beyond * 1.6]
    )


def test_drafts_that_seem_to_save_time_within_the_error_are_free() -> None:
    """A step with drafts takes no less than a plain one: 0.97 of it is within the
    error, 0.9 is not.
    """
    profile = for_method("ngram")

    def of_plain(share: float) -> CostProfile:
        """Steps with drafts that take this share of a plain one."""
        bins = tuple(
            (at, replace(bin_, seconds=share / 1.5 * bin_.seconds))
            for at, bin_ in EVEN.drafting.bins
        )
        return corrected(profile, EngineSteps(EVEN.plain, StepRegression(K, bins)))

    free = of_plain(0.97)
    assert (free.basis, free.step_cost(K, 4)) == (Basis.MEASURED, 1.0)
    contradicted = of_plain(0.9)
    assert contradicted.basis is Basis.MODELLED
    assert contradicted.step_cost(K, 4) == profile.step_cost(K, 4)


@pytest.mark.parametrize("method", ["eagle3", "draft_model", "mtp", ""])
def test_a_draft_model_has_no_plain_steps(method: str) -> None:
    """With K=0 in a schedule, vLLM still runs its first pass."""
    profile = corrected(for_method("eagle3"), EVEN, method=method)
    assert profile.basis is Basis.MODELLED


def test_it_is_not_extrapolated() -> None:
    """Beyond one and a half times the batch sizes at which both kinds were seen, the
    profile holds.
    """
    profile = for_method("eagle3")
    learned_steps = steps((1, 2, 4), (4, 8, 16))
    assert corrected(profile, learned_steps).basis is Basis.MEASURED
    assert corrected(profile, learned_steps, 12.0) is profile


def test_steps_with_drafts_alone_give_the_slope() -> None:
    """Break-even moves with the batch as on this machine."""
    profile = for_method("eagle3")
    rise = {}
    for slope in (0.0001, 0.001):
        sloped = corrected(profile, steps((), (1, 8, 64), slope), 8.0)
        assert sloped.basis is Basis.MODELLED, slope
        times = [
            sloped.step_times(K, 1)[1]
            + sloped.load
            * (sloped.step_times(K, batch)[1] - sloped.step_times(K, 1)[1])
            for batch in (1, 64)
        ]
        assert times[1] / times[0] == pytest.approx(
            (0.010 + slope * 64) / (0.010 + slope), rel=0.05
        ), slope
        rise[slope] = sloped.step_cost(K, 64) / sloped.step_cost(K, 1)
    assert rise[0.001] > rise[0.0001]


def test_a_token_takes_no_less_than_no_time_with_a_learned_slope() -> None:
    """The second token of a drafter with a single pass costs nothing, which a steep
    slope turns negative.
    """
    flat = known_hardware("l40s", "1.7B", "dflash")
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


def test_a_slope_by_which_plain_steps_take_longer_leaves_the_profile() -> None:
    """With a long context, the time of verification hardly rises with the batch."""
    flat = known_hardware("a100", "70B", "ngram").at_context(16_000.0)
    assert corrected(flat, steps((), (3, 5, 8), 4e-5), 7.0) is flat


@pytest.mark.parametrize(
    ("learned_steps", "drafted", "batch"),
    [
        pytest.param(EngineSteps(), K, 4.0, id="nothing learned"),
        pytest.param(
            EngineSteps(EVEN.drafting, replace(EVEN.plain, k=K)), K, 4.0, id="swapped"
        ),
        pytest.param(EVEN, 5, 4.0, id="another K"),
        pytest.param(EVEN, None, None, id="no drafts"),
        pytest.param(steps((1, 2, 4), (4, 4, 4)), K, 4.0, id="one batch size"),
    ],
)
def test_what_shows_nothing_leaves_the_profile(
    learned_steps: EngineSteps, drafted: float | None, batch: float | None
) -> None:
    profile = for_method("eagle3")
    assert corrected(profile, learned_steps, batch, drafted=drafted) is profile


def test_a_calibrated_profile_keeps_its_slope() -> None:
    calibrated = replace(for_method("eagle3"), basis=Basis.CALIBRATED)
    assert corrected(calibrated, steps((), (1, 8, 64)), 8.0) is calibrated


def test_few_drafts_are_neither() -> None:
    """Steps of which few have drafts, as with n-gram lookup, are learned as neither
    kind.
    """
    learned_steps = EngineSteps().add(StepInterval(0.01, 2.0), 0.3, 5.0)
    assert learned_steps.plain.bins == ()
    assert learned_steps.drafting.bins == ()
    assert learned_steps.drafting.refused == "few steps have drafts"


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
    start = Counters(generation_tokens=0.0), Steps(prompt_tokens=0.0, requests=0.0)
    for requests, context in ((10.0, 700.0), (9.0, None)):
        generated = Counters(generation_tokens=400.0 * requests)
        prompts = Steps(prompt_tokens=500.0 * requests)
        end = generated, replace(prompts, requests=requests)
        assert steps_between(start, end).mean_context == context, requests
    assert steps_between(start, (generated, prompts)).mean_context is None


@pytest.mark.parametrize(
    ("drafts", "accepted", "emitted"),
    [
        pytest.param(100.0, 150.0, 150.0, id="drafts emit 150 tokens"),
        pytest.param(100.0, 190.0, 150.0, id="answers end within drafts"),
        pytest.param(100.0, 0.0, 0.0, id="nothing is accepted"),
        pytest.param(0.0, 0.0, 0.0, id="nothing is drafted"),
    ],
)
def test_observations_of_tokens_are_no_steps(
    drafts: float, accepted: float, emitted: float
) -> None:
    """Such as vLLM's pull request 47382 would make them: their mean is no time of a
    step.

    Ten requests with 100 steps of 30 ms.
    """
    start = (
        Counters(0.0, accepted_tokens=0.0, generation_tokens=0.0),
        Steps(0.0, 0.0, requests=0.0),
    )
    end = Counters(drafts, accepted_tokens=accepted, generation_tokens=110.0 + emitted)
    of_steps = Steps(3.0, 100.0, requests=10.0)
    of_tokens = replace(of_steps, step_observations=100.0 + emitted)
    shown = step_interval(steps_between(start, (end, of_steps)), 4.0, None)
    assert shown[0].seconds == 0.03
    by_tokens = step_interval(steps_between(start, (end, of_tokens)), 4.0, None)
    assert by_tokens == (None if emitted else shown)
