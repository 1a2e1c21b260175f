"""Engines whose drafts follow from other counters.

SGLang, from answers of its own collector classes; TensorRT-LLM, composed.
"""

import re
from itertools import product
from typing import Any

import pytest

from support.builders import lines, process_reading, processed, tensorrt, upstream
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import Basis, DraftCost
from vllm_specdec_exporter.economics.profiles import BUILTIN, CostSettings
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines import (
    ServerInfo,
    add_server_info,
    read,
    read_server_info,
)
from vllm_specdec_exporter.engines.reading import Drafting, EngineReading, Load
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.measures.measures import DraftShape
from vllm_specdec_exporter.observe.derived_totals import Derivation, why_unadvisable
from vllm_specdec_exporter.observe.pipeline import interrupt
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings

SETTINGS = Settings(
    windows=(Window(30), Window(300)),
    judged=Window(30),
    thresholds=Thresholds(minimum_drafts=20),
)
RECORDED = upstream("sglang-k3.txt").decode()
#: The same as a server prints it.
RECORDED_BODY = RECORDED.encode()
STARTED = upstream("sglang-started.txt")
OFF = upstream("sglang-off.txt")


def answer(
    requests: float,
    drafts: float,
    accepted: float,
    *,
    k: float = 3,
    more: str = "",
    **gauges: float,
) -> bytes:
    """The recorded answer with the totals of other requests, which each have a token
    without a draft.
    """
    values = {
        "num_requests_total": requests,
        "spec_verify_calls_total": drafts,
        "generation_tokens_total": requests + drafts + accepted,
        "spec_num_draft_tokens": k + 1,
        "spec_num_steps": k,
        **gauges,
    }
    text = RECORDED + more
    for name, value in values.items():
        text, replaced = re.subn(
            rf"(?m)^(sglang:{name}\{{.*\}}) \S+$", rf"\g<1> {value!r}", text
        )
        assert replaced, name
    return text.encode()


def without(series: str, body: bytes) -> bytes:
    """Return an answer without the series that begin like this."""
    return re.sub(rb"(?m)^sglang:(?:%b).*\n" % series.encode(), b"", body)


def only(body: bytes, content_type: str = "") -> EngineReading:
    (engine,) = read(body, content_type).engines
    return engine


def polled(
    *answers: bytes, settings: Settings = SETTINGS, shape: DraftShape | None = None
) -> EngineResult:
    """The result after these answers of one server, ten seconds apart; `shape` is of
    records of requests.
    """
    shapes = {}
    if shape:
        shapes["tiny-llama"] = shape
    readings = [(number * 10.0, read(body)) for number, body in enumerate(answers)]
    (result,) = processed(readings, settings, shapes=shapes)[-1]
    return result


def served(requests: float, *, accepted: float = 75, **more: Any) -> bytes:
    """The recorded answer after requests that had 40 drafts each."""
    return answer(requests, 40 * requests, accepted * requests, **more)


#: Eight requests with 320 drafts, of whose tokens 600 were accepted; and twice as much.
ONE = served(8)
TWO = served(16)


class TestArithmetic:
    def test_it_is_that_of_the_recorded_run(self) -> None:
        """8 requests, 320 verifications of 3 drafted tokens, 600 accepted: what the run
        was driven with.
        """
        result = polled(STARTED, RECORDED_BODY)
        window = result.window("30s")

        assert result.deployment.dialect == "sglang"
        assert result.num_speculative_tokens == 3
        assert result.counters.drafts == 320
        assert result.counters.draft_tokens == 960
        assert result.counters.accepted_tokens == 600
        assert window.drafts == 320
        assert window.mean_acceptance_length == 2.875
        again = polled(RECORDED_BODY, TWO).window("30s")
        assert again.acceptance_ratio == 0.625
        assert again.mean_acceptance_length == 2.875
        assert again.mean_draft_length == 3.0
        assert again.position_acceptance_ratio == again.mean_acceptance_length_at == ()

    def test_an_accepted_total_never_falls_and_no_retraction_is_taken_for_a_restart(
        self,
    ) -> None:
        labels = (
            '{engine_type="unified",model_name="tiny-llama",pp_rank="0",tp_rank="0"}'
        )
        retracted = f"sglang:num_retracted_requests_total{labels}"
        first = served(8, more=f"{retracted} 0\n")
        second = served(8, more=f"{retracted} 4\n")
        third = answer(9, 360, 675 + 4, more=f"{retracted} 4\n")
        assert polled(first, second).counters.accepted_tokens == 600
        result = polled(first, second, third)
        assert result.engine_resets_total == 0
        assert result.counters.accepted_tokens == 675

    def test_a_restart_is_seen_in_the_counters_that_the_engine_has(self) -> None:
        result = polled(RECORDED_BODY, served(2))
        assert result.engine_resets_total == 1
        assert result.counters.accepted_tokens == 150
        assert result.windows == ()


class TestStates:
    @pytest.mark.parametrize(
        ("answers", "state", "reason"),
        [
            ((STARTED, STARTED), None, "not_shown_yet"),
            ((OFF, OFF), ActivityState.OFF, "says_off"),
            ((ONE, TWO), ActivityState.ACTIVE, "active"),
            ((ONE, ONE), ActivityState.WARMING_UP, "counted_at_end"),
            ((ONE, served(8, num_running_reqs=0)), ActivityState.IDLE, "idle"),
            (
                (ONE, answer(12, 320, 600, num_running_reqs=0)),
                ActivityState.IDLE,
                "first_tokens_only",
            ),
            ((ONE, answer(9, 320, 700)), ActivityState.BYPASSED, "bypassed"),
            ((ONE, answer(9, 360, 600, k=0)), ActivityState.BYPASSED, "paused"),
            ((served(8, k=0), served(12), TWO), ActivityState.BYPASSED, "paused"),
        ],
    )
    def test_each_is_told_from_the_others(
        self, answers: tuple[bytes, ...], state: ActivityState | None, reason: str
    ) -> None:
        result = polled(*answers)
        assert result.activity.state is state
        assert name_of(result.activity.reason) == f"activity.{reason}"
        assert (result.quality.level is None) is (state is not ActivityState.ACTIVE)

    def test_drafts_of_no_printed_steps_are_drafts(self) -> None:
        """SGLang's n-gram drafts are trees of some tokens, and it prints 0 steps for
        them.
        """
        few = {"accepted": 37.5, "k": 7, "spec_num_steps": 0}
        result = polled(served(8, **few), served(16, **few))
        window = result.window("30s")
        assert result.activity.state == ActivityState.ACTIVE
        assert result.num_speculative_tokens == 7
        assert window.mean_acceptance_length == 1.9375
        assert window.acceptance_ratio is None
        reason = values_of(result.advice.reason)["reason"]
        assert name_of(reason) == "unadvisable.trees_or_blocks"

    def test_a_tree_has_an_interval(self) -> None:
        """Three steps and 15 verified tokens: it costs what verifying 14 tokens costs,
        and between three and 14 steps of the drafter.
        """
        profile = BUILTIN["llama-3.1-8b-h100-eagle"]
        settings = replace(SETTINGS, costs=CostSettings(profile))
        tree = {"spec_num_draft_tokens": 15}
        result = polled(served(8, **tree), served(16, **tree), settings=settings)
        window = result.window("30s")
        speedups = [
            window.mean_acceptance_length / profile.step_cost(k, window.batch_size)
            for k in (14, 3)
        ]
        assert window.mean_draft_length is None
        assert window.estimate.speedup_low < speedups[0] < window.estimate.speedup
        assert window.estimate.speedup < speedups[1] <= window.estimate.speedup_high
        assert result.payoff.verdict is not None

    def test_tokens_without_a_draft_are_accepted_nowhere(self) -> None:
        """A bypassed engine generates tokens; when it drafts again, they do not count
        as accepted.
        """
        answers = (ONE, answer(9, 320, 700), answer(13, 480, 1000))
        result = polled(*answers)
        assert polled(*answers[:2]).counters.accepted_tokens == 600
        assert result.counters.accepted_tokens == 900
        assert result.window("30s").mean_acceptance_length == 2.875

    def test_its_own_gauges_of_acceptance_are_published_nowhere(self) -> None:
        """They keep their last value: here it is of another time than the counters."""
        stale = answer(16, 640, 600 + 96, spec_accept_length=4.0, spec_accept_rate=1.0)
        window = polled(ONE, stale).window("30s")
        assert (window.acceptance_ratio, window.mean_acceptance_length) == (0.1, 1.3)

    def test_a_prefill_worker_is_not_judged(self) -> None:
        body = RECORDED_BODY.replace(b'engine_type="unified"', b'engine_type="prefill"')
        assert polled(body, body).activity.reason.startswith("a prefill worker")

    def test_a_server_before_0_5_13_is_recognised_and_limited(self) -> None:
        """It has the gauges of acceptance, and no count of verifications."""
        old = without("spec_verify_calls|spec_num_", RECORDED_BODY)
        result = polled(old, old)
        assert result.deployment.dialect == "sglang-gauges"
        assert result.activity.state is None
        assert result.activity.reason.startswith(
            "SGLang before 0.5.13 does not count drafts"
        )
        assert result.counters.drafts is None
        assert result.counters.generation_tokens == 928
        assert [m.acceptance_ratio for m in result.windows] == [None, None]


class TestGauges:
    @staticmethod
    def of_ranks(body: bytes, name: str, values: dict[str, float]) -> bytes:
        """Return the answer with a series of `name` for each pair of labels in place of
        the one.
        """
        rows = []
        for labels, value in values.items():
            rows.append(f'sglang:{name}{{model_name="tiny-llama",{labels}}} {value}')
        return without(rf"{name}\{{", body) + lines(*rows)

    def test_of_tensor_and_pipeline_ranks_the_first_counts_and_data_ranks_add_up(
        self,
    ) -> None:
        """64 ranks: 2 of data, 8 of tensors each, 4 of pipelines."""
        running = {}
        usage = {}
        for dp, tp, pp in product(range(2), range(8), range(4)):
            labels = (
                f'dp_rank="{dp}",tp_rank="{8 * dp + tp}",pp_rank="{pp}",'
                f'moe_ep_rank="{tp}"'
            )
            # What only the first rank of each data rank must count.
            running[labels] = 99.0
            usage[labels] = 0.9
            if (tp, pp) == (0, 0):
                running[labels] = 5.0 + dp
                usage[labels] = 0.2 + dp / 10
        body = self.of_ranks(RECORDED_BODY, "num_running_reqs", running)
        body = self.of_ranks(body, "token_usage", usage)
        body = self.of_ranks(body, "spec_num_draft_tokens", dict.fromkeys(running, 4.0))
        engine = only(body)

        assert engine.load == Load(11, 1, pytest.approx(0.3))
        assert engine.counters == only(RECORDED_BODY).counters

    def test_with_priorities_the_series_without_one_is_the_total(self) -> None:
        rows = {
            'tp_rank="0",priority=""': 9.0,
            'tp_rank="0",priority="1"': 4.0,
            'tp_rank="0",priority="2"': 5.0,
        }
        body = self.of_ranks(RECORDED_BODY, "num_running_reqs", rows)
        assert only(body).load.requests_running == 9

    def test_counters_by_priority_add_up(self) -> None:
        """A request without a priority is counted under the empty one, which is no
        total.
        """
        body = ONE
        priorities = ('priority=""', 'priority="5"')
        for name, half in (
            ("num_requests_total", 4.0),
            ("spec_verify_calls_total", 160.0),
            ("generation_tokens_total", 464.0),
        ):
            body = self.of_ranks(body, name, dict.fromkeys(priorities, half))
        assert only(body).counters == only(ONE).counters


class TestAdvice:
    #: With a cost that is known, so that there could be advice.
    SETTINGS = replace(
        SETTINGS,
        thresholds=Thresholds(minimum_drafts=20, advice_minimum_drafts=50),
        costs=CostSettings(BUILTIN["llama-3.1-8b-h100-eagle"]),
    )

    @pytest.mark.parametrize(
        ("answers", "reason"),
        [
            ((ONE, TWO), "no_advice.positions_in_records"),
            (
                (
                    served(8, spec_num_draft_tokens=9),
                    served(16, spec_num_draft_tokens=9),
                ),
                "unadvisable.trees_or_blocks",
            ),
            ((ONE, served(12, k=5), TWO, served(20)), "unadvisable.k_changes"),
        ],
    )
    def test_it_refuses_and_says_why(
        self, answers: tuple[bytes, ...], reason: str
    ) -> None:
        result = polled(*answers, settings=self.SETTINGS)
        assert result.activity.state is ActivityState.ACTIVE
        advised = result.advice.reason
        assert name_of(values_of(advised).get("reason", advised)) == reason

    @pytest.mark.parametrize(
        ("series", "reason"),
        [
            ("spec_num_", "draft_length_unknown"),
            ("num_requests_total", "length_unknown"),
            ("num_running_reqs", "running_unknown"),
        ],
    )
    def test_it_says_what_is_missing(self, series: str, reason: str) -> None:
        result = polled(without(series, ONE), without(series, TWO))
        assert name_of(result.advice.reason) == "no_advice.no_speedup"
        missing = values_of(result.advice.reason)["reason"]
        assert name_of(missing) == f"payoff.{reason}"

    #: Of 1,000 drafts of 3 tokens: 0.9, 0.08 and 0.02 of them accepted these positions.
    SHALLOW = DraftShape(1000, (1.0, 2.0, 3.0), (0.9, 0.08, 0.02))

    def test_records_of_requests_give_the_positions_that_the_server_does_not_count(
        self,
    ) -> None:
        """What is to be pasted is SGLang's own; the positions themselves stay
        unpublished.
        """
        spec = Speculation(configured=True, method="eagle3", num_speculative_tokens=3)
        settings = replace(self.SETTINGS, speculation=spec)
        answers = [
            served(requests, accepted=40, num_running_reqs=32) for requests in (8, 16)
        ]
        result = polled(*answers, settings=settings, shape=self.SHALLOW)

        assert result.advice.action is Action.DECREASE_K
        assert result.advice.num_speculative_tokens == 1
        (finding,) = (f for f in result.findings if "another K" in f.text)
        assert finding.action.startswith(
            "Start SGLang with --speculative-algorithm EAGLE3 "
            "--speculative-num-steps 1 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 2"
        )
        assert result.advice.speculative_config == ""
        assert result.window("30s").position_acceptance_ratio == ()
        few = polled(
            *answers, settings=settings, shape=replace(self.SHALLOW, drafts=50)
        )
        assert few.advice.action is not Action.INSUFFICIENT_DATA

    @pytest.mark.parametrize(
        "shape",
        [
            # too few: the operator's `advice_minimum_drafts` is 50
            replace(SHALLOW, drafts=49),
            replace(SHALLOW, survival=(0.9, 0.8, 0.7)),  # of other traffic
            # of another K
            replace(SHALLOW, mean_lengths=(1.0, 2.0), survival=(0.9, 0.1)),
            DraftShape(0, ()),
        ],
    )
    def test_records_that_are_no_sample_of_the_traffic_give_none(
        self, shape: DraftShape
    ) -> None:
        answers = (served(8, accepted=40), served(16, accepted=40))
        result = polled(*answers, settings=self.SETTINGS, shape=shape)
        assert result.advice.action is Action.INSUFFICIENT_DATA


def test_tensorrts_drafted_tokens_by_position_give_advice_if_drafts_vary() -> None:
    """Its answer is composed.

    Where vLLM needs records of requests, TensorRT-LLM counts what was drafted.
    """
    first = tensorrt((400, 200, 100), (320, 120, 50))
    second = tensorrt((800, 400, 200), (640, 240, 100))
    result = polled(first, second, settings=TestAdvice.SETTINGS)
    window = result.window("30s")
    assert window.mean_draft_length == 1.75
    assert window.mean_acceptance_length == 1 + 490 / 400
    assert result.advice.action is not Action.INSUFFICIENT_DATA
    # What a draft would hold with a smaller K: 1 of 1, 1.5 of 2.
    costs = [option.step_cost for option in result.advice.options[:4]]
    profile = TestAdvice.SETTINGS.costs.profile
    assert costs == pytest.approx(
        [1, *(profile.step_cost(held, 8) for held in (1, 1.5, 1.75))], rel=0.05
    )


class TestDraftedByPosition:
    """TensorRT-LLM counts how many drafts had a token at each position; its answers are
    composed.
    """

    #: Of 400 drafts 200 have a second token, and 100 a third one; K is 4.
    FIRST = tensorrt((400, 200, 100), (320, 120, 50), k=4)
    SECOND = tensorrt((800, 400, 200), (640, 240, 100), k=4)

    def test_conditional_acceptance_is_of_the_drafts_that_had_a_token_there(
        self,
    ) -> None:
        """Of 320 drafts half have a second token, and 120 of these 160 had it accepted;
        then 50 of 60.
        """
        result = polled(self.FIRST, self.SECOND)
        window = result.window("30s")

        assert window.position_conditional_acceptance_ratio == (
            0.8,
            0.75,
            pytest.approx(5 / 6),
            None,
        )
        assert window.position_decay_ratio == pytest.approx((0.75 * 5 / 6) ** 0.5)
        assert window.position_acceptance_ratio == (0.8, 0.3, 0.125, 0.0)
        assert (
            window.mean_acceptance_length
            == window.expected_tokens_per_step
            == 1 + 490 / 400
        )

    def test_the_drafts_that_reach_a_position_are_those_that_can_have_it_accepted(
        self,
    ) -> None:
        """Added up from poll to poll, so that they never fall; another process counts
        on.
        """
        assert polled(self.FIRST).drafts_reaching_position == ()
        assert polled(self.FIRST, self.SECOND).drafts_reaching_position == (
            400,
            160,
            60,
            0,
        )
        # with all of 400 second tokens
        third = tensorrt((1200, 800, 200), (960, 440, 100), k=4)
        assert polled(self.FIRST, self.SECOND, third).drafts_reaching_position == (
            800,
            480,
            60,
            0,
        )
        restarted = polled(self.FIRST, self.SECOND, self.FIRST, self.SECOND)
        assert restarted.engine_resets_total == 1
        assert restarted.drafts_reaching_position == (800, 320, 120, 0)

    def test_the_counts_bound_them(self) -> None:
        """Drafts with a second token are accepted more often here: 150 of 150, not 150
        of half of 200.
        """
        result = polled(tensorrt((1, 1), (1, 1)), tensorrt((401, 201), (201, 151)))
        assert result.window("30s").position_conditional_acceptance_ratio == (
            0.5,
            1.0,
            None,
        )
        # Of 300 drafts 290 have a second token, and of the 290 accepted so far at least
        # 280.
        result = polled(tensorrt((1, 1), (1, 1)), tensorrt((301, 291), (291, 141)))
        reached = result.drafts_reaching_position[1]
        assert reached == pytest.approx(290 * 290 / 300)
        assert 280 <= reached <= 290

    def test_of_short_drafts_only_those_long_enough_can_be_accepted(self) -> None:
        result = polled(self.FIRST, tensorrt((800, 400, 200), (640, 230, 101), k=4))
        defect = "51 accepted at position 2, but only 50 drafted there"
        assert result.defects == ()
        result = polled(self.FIRST, tensorrt((800, 400, 150), (640, 230, 101), k=4))
        assert (result.defects, result.inconsistent_samples_total) == ((defect,), 1)
        assert result.window("30s").position_conditional_acceptance_ratio[2] == 1.0

    def test_a_count_with_a_gap_is_no_total(self) -> None:
        """The other positions would add up to too few tokens."""
        gap = re.sub(rb'(?m)^trtllm_spec_decode_accepted.*"1".*\n', b"", self.SECOND)
        result = polled(self.FIRST, gap)
        assert result.counters.accepted_tokens is None
        assert result.counters.drafts is None
        assert result.activity.state is None
        reason = "positions with gaps (0, 2): per-position values ignored"
        assert result.activity.reason == reason
        assert polled(self.FIRST, gap, self.SECOND).engine_resets_total == 0


class TestBadInput:
    def test_a_k_that_changes_leaves_the_acceptance_ratio_unknown_and_the_length_exact(
        self,
    ) -> None:
        answers = (ONE, served(12, k=5), TWO, served(20))
        result = polled(*answers)
        window = result.window("30s")
        assert (result.counters.draft_tokens, window.acceptance_ratio) == (None, None)
        assert (window.mean_acceptance_length, result.engine_resets_total) == (2.875, 0)

    def test_a_k_that_changes_across_an_outage_is_that_of_another_start(self) -> None:
        """Its counters may be larger than those of the start before."""
        states, _ = process_reading({}, read(ONE), 0.0, SETTINGS)
        states = interrupt(states)
        for number, n in enumerate((2, 3), 1):
            body = read(served(8 * n, k=5))
            states, (result,) = process_reading(states, body, number * 10.0, SETTINGS)
        assert result.window("30s").acceptance_ratio == 600 / 1600

    def test_more_accepted_than_drafted_is_a_counted_defect_and_no_ratio_above_1(
        self,
    ) -> None:
        result = polled(ONE, answer(16, 400, 1200))
        window = result.window("30s")
        assert (window.acceptance_ratio, window.mean_acceptance_length) == (1, 4)
        assert result.inconsistent_samples_total == 1
        assert result.defects == ("360 tokens more than 80 drafts can have given",)

    def test_accepted_tokens_have_a_bound_whatever_is_known_of_k(self) -> None:
        """After a change of K the largest, without K that of all positions."""
        changed = (ONE, served(12, k=5), TWO)
        result = polled(*changed, answer(20, 800, 20000))
        assert result.counters.accepted_tokens == 1200 + 5 * 160
        assert result.defects == ("18000 tokens more than 160 drafts can have given",)

        answers = (served(8, accepted=12_000), served(16, accepted=12_000))
        result = polled(*(without("spec_num_", body) for body in answers))
        assert result.counters.accepted_tokens == 2 * 320 * 256
        assert result.inconsistent_samples_total == 2

    def test_of_a_tree_a_token_for_each_step_can_be_accepted(self) -> None:
        """Known by its top-k: n-gram drafts, whose steps say nothing, and blocks look
        alike.
        """
        tree = Drafting(
            num_speculative_tokens=8.0,
            verified_tokens=9.0,
            draft_steps=3.0,
            method="eagle3",
            topk=4,
        )
        assert tree.depth == 3
        assert replace(tree, topk=None).depth == 8
        assert replace(tree, topk=1).depth == 8
        assert replace(tree, method="ngram").depth == 8
        assert replace(tree, method="").depth == 8
        assert Drafting().depth is None

    @pytest.mark.parametrize(
        ("drafts", "accepted", "defects"),
        [
            # Tokens of 11 requests with the drafts of 10, and the other way round.
            (400, 75 * 11 + 40, 0),
            (440, 75 * 10 - 41, 1),
        ],
    )
    def test_tokens_and_drafts_of_a_request_in_two_answers_are_counted_in_full(
        self, drafts: float, accepted: float, defects: int
    ) -> None:
        """The answer was made between the two counters; either may come first."""
        first, *others = map(served, (10, 11, 12, 13))
        result = polled(first, answer(11, drafts, accepted), *others)
        assert result.counters.accepted_tokens == 75 * 13
        assert result.inconsistent_samples_total == defects

    def test_a_gauge_without_its_counters_gives_no_ratio(self) -> None:
        gauges = without(r"\w+_total\{", RECORDED_BODY)
        result = polled(gauges, gauges)
        assert result.activity.state is ActivityState.WARMING_UP
        assert result.window("30s").acceptance_ratio is None

    def test_generated_tokens_without_a_count_of_verifications_are_no_bypass(
        self,
    ) -> None:
        """SGLang's Rust front end counts the former only."""
        body = without("spec_verify_calls", RECORDED_BODY)
        result = polled(body, body)
        assert result.activity.state is None
        assert result.activity.reason.startswith("no finished request had a draft, or")

    def test_a_k_that_no_server_has_is_left_out(self) -> None:
        engine = only(served(8, spec_num_draft_tokens=1e9))
        assert engine.counters.draft_tokens is None
        assert engine.defects == ("sglang:spec_num_draft_tokens is 1000000000.0",)


def test_a_configured_server_without_a_batch_is_idle() -> None:
    settings = replace(
        SETTINGS, speculation=Speculation(configured=True, num_speculative_tokens=3)
    )
    result = polled(STARTED, STARTED, settings=settings)
    assert (result.activity.state, result.quality.level) == (ActivityState.IDLE, None)


def test_a_tree_that_the_gauges_do_not_show_is_known_from_its_top_k() -> None:
    """Three steps and four verified tokens: a draft of three in a row, or a tree of
    three.
    """
    row, tree = (
        add_server_info(read(RECORDED_BODY), ServerInfo("eagle3", topk)).engines[0]
        for topk in (1, 4)
    )
    assert (row.counters.draft_tokens, why_unadvisable(row, Derivation())) == (960, "")
    assert tree.counters.draft_tokens is None
    assert name_of(why_unadvisable(tree, Derivation())) == "unadvisable.trees"


def test_a_block_that_one_step_drafts_is_no_tree_by_its_top_k() -> None:
    """DFLASH and DSPARK: one step, 16 verified tokens, top-k 1."""
    reading = read(served(8, accepted=200, k=15, spec_num_steps=1))
    block = add_server_info(reading, ServerInfo("dflash", 1)).engines[0]
    assert block.counters.draft_tokens == 4800
    assert why_unadvisable(block, Derivation()) == ""
    assert reading.engines[0].counters.draft_tokens is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"speculative_algorithm": "NGRAM", "speculative_eagle_topk": 0}',
            ServerInfo("ngram"),
        ),
        (b'{"speculative_algorithm": "sk-secret", "version": "a\\nb"}', ServerInfo()),
        (
            b'{"speculative_algorithm": null, "version": "%s"}' % (b"1" * 65),
            ServerInfo(),
        ),
        (b'{"speculative_algorithm": ["sk-secret"]}', None),
        (b"", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_server_info_shows_known_algorithms_and_nothing_else(
    body: bytes, expected: ServerInfo | None
) -> None:
    assert read_server_info(body) == expected


def timed(draft: float, extend: float, verify: float) -> str:
    """The series of SGLang's device timer, composed by its names: two tensor and two
    data-parallel ranks.
    """
    seconds = {
        "eagle_draft": draft,
        "eagle_draft_extend": extend,
        "target_verify": verify,
        "extend": 99.0,
    }
    rows = []
    for category, dp, tp in product(seconds, (0, 1), (0, 1)):
        labels = (
            f'category="{category}",dp_rank="{dp}",engine_type="unified",'
            f'model_name="tiny-llama",pp_rank="0",tp_rank="{tp}"'
        )
        value = seconds[category] / 2
        rows.append(f"sglang:forward_execution_seconds_total{{{labels}}} {value}\n")
    return "".join(rows)


def test_the_device_timer_replaces_the_assumed_cost_of_drafting() -> None:
    """Drafting takes 3 s and 1 s where verification takes 10 s: 40 % of it at K=3."""
    seconds = (timed(0, 0, 0), timed(3, 1, 10))
    bodies = [ONE, answer(58, 5320, 9600)]
    with_timer = [served(8, more=seconds[0]), answer(58, 5320, 9600, more=seconds[1])]
    steps = only(with_timer[1]).steps
    assert (steps.draft_seconds, steps.verify_seconds) == (4.0, 10.0)

    settings = replace(SETTINGS, costs=CostSettings(BUILTIN["eagle3"]))
    assumed = polled(*bodies, settings=settings).window("30s")
    measured = polled(*with_timer, settings=settings).window("30s")
    target = BUILTIN["eagle3"].target
    batch = assumed.batch_size
    # of a request: no prompt, and half of its answer
    context = (50 + 5000 + 9000) / 2 / 50
    same = target.fixed + target.per_context_token * context * batch
    verification = same + target.per_token * batch * 4
    plain = same + target.per_token * batch
    assert measured.estimate.step_cost == pytest.approx(1.4 * verification / plain)
    assert assumed.estimate.step_cost != pytest.approx(
        1.4 * verification / plain, rel=0.01
    )


def test_measured_drafting_grows_with_k_and_leaves_a_calibrated_profile_alone() -> None:
    profile = BUILTIN["eagle3"]
    assert profile.with_measured_draft(None, 3.0) is profile
    assert profile.with_measured_draft(0.4, 0.0) is profile
    calibrated = replace(profile, basis=Basis.CALIBRATED)
    assert calibrated.with_measured_draft(0.4, 3.0) is calibrated
    free = replace(profile, draft=DraftCost())
    drafting = [
        profile.with_measured_draft(0.4, 2.0).step_times(k, 8)[1]
        - free.step_times(k, 8)[1]
        for k in (1, 2, 4)
    ]
    assert [cost / drafting[0] for cost in drafting] == pytest.approx([1, 2, 4])
