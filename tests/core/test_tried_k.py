"""Advice on ground that is known: no K before the context is, and the K that were
really tried before any curve.
"""

from random import Random
from typing import Any

import pytest

from economics.servers import Server, expected, settings_for, survival_of
from support.messages import name_of, values_of
from vllm_specdec_exporter.economics.cost import (
    Basis,
    CostProfile,
    DraftCost,
    TargetCost,
)
from vllm_specdec_exporter.economics.hardware import parse_machine
from vllm_specdec_exporter.economics.model_names import parse_model
from vllm_specdec_exporter.economics.profiles import (
    Hardware,
    for_method,
    hardware_profile,
)
from vllm_specdec_exporter.engines.reading import EngineKey
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.state import EngineState

#: Of DFlash2 with K=5 (vLLM recipes 839).
DFLASH = (0.67, 0.644, 0.645, 0.644, 0.645)


def h20() -> CostProfile:
    hardware = Hardware(*parse_machine("h20"), parse_model("27B:fp8"))
    return hardware_profile(for_method("dflash"), hardware, method="dflash")


class TestContext:
    """Ten requests of 65,000 tokens at a time, of which 28 begin in five minutes."""

    @staticmethod
    def server(*, requests: float = 0.0) -> Server:
        settings = settings_for(h20(), "dflash", 5, Basis.CALIBRATED)
        server = Server(settings, 5, 10.0, requests=requests)
        server.prompt_tokens = requests * 64_000
        server.poll()
        return server

    @staticmethod
    def serve(server: Server, *, requests: float = 0.0) -> Action:
        server.add(543, expected(survival_of(DFLASH), 543))
        server.requests += requests
        server.prompt_tokens += requests * 64_000
        return server.poll(after=5).advice.action

    def test_no_k_is_advised_before_the_context_is_known(self) -> None:
        server = self.server()
        for requests in range(9):
            assert self.serve(server, requests=requests > 0) is (
                Action.INSUFFICIENT_DATA
            )
            reason = server.latest.advice.reason
        assert name_of(values_of(reason)["reason"]) == "unadvisable.context_unknown"
        self.serve(server, requests=2)
        self.serve(server)
        assert name_of(server.latest.advice.reason) != "no_advice.unadvisable"

    def test_it_is_that_of_the_servers_life_until_the_window_shows_it(self) -> None:
        """The exporter was started later than the server."""
        server = self.server(requests=58)
        self.serve(server)
        (state,) = server.states.values()
        assert state.context_tokens == pytest.approx(64_000, rel=1e-4)

    def test_it_is_remembered_where_few_requests_begin(self) -> None:
        server = self.server()
        self.serve(server, requests=20)
        for _ in range(130):
            self.serve(server)
        (state,) = server.states.values()
        assert state.context_tokens > 64_000
        assert server.latest.advice.action is not Action.INSUFFICIENT_DATA


#: Seconds of a step by K: K=7 is 19 % slower than K=5 by the token (vLLM recipes 839).
STEPS = {5: 0.0923, 7: 0.1114}
#: A drafter whose positions cost nearly nothing by its profile.
FREE = CostProfile("free", TargetCost(1.0), DraftCost(fixed=0.1, per_position=0.002))
#: Of which a sixth token gains about as much as it costs.
STEADY = CostProfile("steady", TargetCost(1.0), DraftCost(fixed=0.1, per_position=0.04))
SURVIVAL = {
    5: survival_of(DFLASH),
    7: survival_of((0.66, 0.602, 0.602, 0.602, 0.601, 0.602, 0.6)),
}


class Restarted:
    """A server that is started with one K after another, polled by one exporter."""

    def __init__(self, profile: CostProfile = FREE) -> None:
        self.settings = settings_for(profile, "dflash", None, Basis.CALIBRATED)
        self.states: dict[EngineKey, EngineState] = {}
        self.time = 0.0
        self.rng = Random(5)

    def run(
        self,
        k: int,
        minutes: float = 15,
        *,
        batch: float = 10.0,
        slower: float = 1.0,
        survival: tuple[float, ...] = (),
        context: float = 0.0,
        minutes_without: float = 0.0,
    ) -> EngineResult:
        """Run with this K for so long, with steps that scatter by 2 %; with a context,
        a request of so many tokens begins between two polls, after the first minutes.
        """
        server = Server(self.settings, k, batch, time=self.time, states=self.states)
        server.step_seconds = 0.0
        server.requests = 0.0
        if context:
            server.prompt_tokens = 0.0
        server.poll(after=60)
        for number in range(round(minutes * 12)):
            seconds = STEPS[k] * slower * self.rng.gauss(1.0, 0.02)
            drafts = batch * 5 / seconds
            server.add(drafts, expected(survival or SURVIVAL[k], drafts))
            server.step_seconds += 5 * batch
            if context and number >= minutes_without * 12:
                server.requests += 1
                server.prompt_tokens = (server.prompt_tokens or 0.0) + context
            result = server.poll(after=5)
        self.time = server.time
        self.states = server.states
        return result


class TestTried:
    """K that really ran decide over the cost profile's curve."""

    def test_without_a_trial_the_curve_decides(self) -> None:
        assert Restarted().run(5).advice.action is Action.INCREASE_K

    def test_what_was_slower_is_not_advised(self) -> None:
        """Nor what lies beyond it; and the reason names the measurement."""
        server = Restarted()
        server.run(7)
        advice = server.run(5).advice
        assert advice.action is Action.KEEP
        (tried,) = [option for option in advice.options if option.tried]
        assert tried.num_speculative_tokens == 7
        speed = tried.speedup / advice.options[5].speedup
        assert speed == pytest.approx(0.81, abs=0.01)
        assert "K=7 really ran at this load, 0.81 times as fast as K=5" in advice.reason

    def test_what_was_faster_is_advised(self) -> None:
        server = Restarted()
        server.run(5)
        advice = server.run(7).advice
        assert (advice.action, advice.num_speculative_tokens) == (Action.DECREASE_K, 5)
        assert "K=5 really ran at this load, 1.24 times as fast as K=7" in advice.reason

    def test_there_is_no_advice_until_both_can_be_compared(self) -> None:
        """It might contradict what is measured minutes later."""
        server = Restarted()
        server.run(7)
        for minutes in (1, 3, 4):
            advice = server.run(5, minutes=minutes).advice
            reason = values_of(advice.reason)["reason"]
            assert name_of(reason) == "unadvisable.being_compared", minutes
            assert values_of(reason) == {"k": 7}
        assert server.run(5).advice.action is Action.KEEP

    def test_it_corrects_the_cost_of_other_k(self) -> None:
        """K=6 lies between both, and costs about half of what K=7 costs more."""
        server = Restarted()
        server.run(7)
        options = server.run(5).advice.options
        cost = [
            option.step_cost / FREE.step_cost(k, 10.0)
            for k, option in enumerate(options)
        ]
        assert cost[4] == cost[5] == 1.0
        assert cost[5] < cost[6] < cost[7]
        assert cost[6] == pytest.approx(cost[7] ** 0.5, rel=0.001)
        assert cost[8] == pytest.approx(cost[7])

    def test_advice_never_contradicts_a_trial_in_either_direction(self) -> None:
        """As often as K is changed back."""
        server = Restarted()
        server.run(5)
        for k in (7, 5, 7, 5):
            advice = server.run(k).advice
            assert advice.num_speculative_tokens == 5, (k, advice.reason)

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"batch": 40.0}, "another load"),
            ({"survival": (0.4, 0.2, 0.1, 0.05, 0.02)}, "traffic that is harder"),
        ],
    )
    def test_what_is_not_comparable_is_no_trial(
        self, change: dict[str, Any], why: str
    ) -> None:
        server = Restarted()
        server.run(7)
        options = server.run(5, **change).advice.options
        assert options, why
        assert not any(option.tried for option in options), why

    @pytest.mark.parametrize(
        ("before", "is_wide"), [(8_000.0, True), (64_000.0, False)]
    )
    def test_contexts_that_differ_widen_the_interval(
        self, before: float, is_wide: bool
    ) -> None:
        """A step of longer requests takes longer, whatever K."""
        server = Restarted()
        server.run(7, context=before)
        options = server.run(5, context=64_000.0).advice.options
        (tried,) = [option for option in options if option.tried]
        assert (tried.length_high / tried.length_low > 4) is is_wide

    def test_a_context_that_is_not_known_yet_is_not_one_token(self) -> None:
        """Requests are long, and none has begun for minutes."""
        server = Restarted()
        server.run(7, minutes=21, context=64_000.0, minutes_without=6)
        options = server.run(5, context=64_000.0).advice.options
        (tried,) = [option for option in options if option.tried]
        assert tried.length_high / tried.length_low < 1.3

    def test_what_was_faster_in_spite_of_longer_contexts_is_advised(self) -> None:
        """They move the upper end of its interval alone."""
        server = Restarted()
        server.run(5, context=64_000.0)
        advice = server.run(7, context=16_000.0).advice
        assert (advice.action, advice.num_speculative_tokens) == (Action.DECREASE_K, 5)

    def test_another_method_begins_anew(self) -> None:
        server = Restarted()
        server.run(7)
        server.settings = settings_for(FREE, "eagle3", None, Basis.CALIBRATED)
        options = server.run(5).advice.options
        assert not any(option.tried for option in options)

    def test_a_difference_that_scatter_explains_decides_nothing(self) -> None:
        """K=7 is as fast as K=5 but for a percent: neither is advised for it."""
        server = Restarted(STEADY)
        equal = STEPS[5] / STEPS[7] * sum((1, *SURVIVAL[7])) / sum((1, *SURVIVAL[5]))
        server.run(7, slower=equal * 1.01)
        assert server.run(5).advice.action is Action.KEEP
