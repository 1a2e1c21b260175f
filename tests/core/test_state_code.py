"""The exporter's judgement of an engine as single numbers, for rules and boards."""

import math

import pytest

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict, probable_loss
from vllm_specdec_exporter.judgement.state import StateCode, state_code
from vllm_specdec_exporter.observe.result import (
    EngineResult,
    TargetResult,
    thresholds_by_model,
)

ACTIVE = Activity(ActivityState.ACTIVE)


@pytest.mark.parametrize(
    ("payoff", "code"),
    [
        (Payoff(PayoffVerdict.HARMFUL), StateCode.HARMFUL),
        (Payoff(PayoffVerdict.MARGINAL), StateCode.MARGINAL),
        (Payoff(PayoffVerdict.BENEFICIAL), StateCode.BENEFICIAL),
        (Payoff(PayoffVerdict.UNKNOWN), StateCode.UNKNOWN),
        (
            Payoff(PayoffVerdict.UNKNOWN, likely=PayoffVerdict.HARMFUL),
            StateCode.LIKELY_HARMFUL,
        ),
        (
            Payoff(PayoffVerdict.UNKNOWN, likely=PayoffVerdict.BENEFICIAL),
            StateCode.LIKELY_BENEFICIAL,
        ),
        (Payoff(), StateCode.NOT_JUDGED),
    ],
)
def test_an_active_engine_has_the_code_of_its_verdict(
    payoff: Payoff, code: StateCode
) -> None:
    assert state_code(ACTIVE, payoff, None) is code


@pytest.mark.parametrize(
    ("state", "scheduled_k", "code"),
    [
        (ActivityState.IDLE, None, StateCode.IDLE),
        (ActivityState.WARMING_UP, None, StateCode.WARMING_UP),
        (ActivityState.OFF, None, StateCode.OFF),
        (ActivityState.BYPASSED, None, StateCode.BYPASSED),
        (ActivityState.BYPASSED, 3, StateCode.BYPASSED),
        # The schedule has no drafts at this load.
        (ActivityState.BYPASSED, 0, StateCode.OFF),
        (None, None, StateCode.NOT_JUDGED),
    ],
)
def test_an_engine_that_is_not_active_has_the_code_of_what_it_does(
    state: ActivityState | None, scheduled_k: int | None, code: StateCode
) -> None:
    assert state_code(Activity(state), Payoff(), scheduled_k) is code


@pytest.mark.parametrize(("loss", "speedup"), [(0.95, math.sqrt(0.81)), (0.94, None)])
def test_an_open_interval_counts_as_its_middle_if_it_probably_loses(
    loss: float, speedup: float | None
) -> None:
    assert probable_loss(0.75, 1.08, loss, Thresholds()) == pytest.approx(speedup)


def test_thresholds_have_models_only_where_an_exporter_watches_several() -> None:
    """Rules join a single model with the thresholds themselves."""
    llama, qwen = (
        TargetResult(model, up=True, engines=(EngineResult(model, "0"),))
        for model in ("llama", "qwen")
    )
    values = {"harmful_speedup": 1.0}
    assert thresholds_by_model([llama, llama], values) == {}
    assert thresholds_by_model([qwen, llama], values) == {
        "llama": values,
        "qwen": values,
    }
