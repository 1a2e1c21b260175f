"""Cases of decisions.yml: what should be changed?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_specdec_exporter.thresholds import Thresholds

from .case import Case
from .world import Phase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable

#: Under these only the mean acceptance length says "disable": a drafter that costs next to nothing.
BY_LENGTH = replace(Thresholds(), disable_acceptance_ratio=0.01)


def _built(*phases: Phase, thresholds: Thresholds | None = None) -> Callable[[], World]:
    """Return what builds one engine."""

    def build() -> World:
        world = World(thresholds or Thresholds())
        world.engine(*phases)
        return world

    return build


def _replicas(*engines: tuple[Phase, ...]) -> Callable[[], World]:
    """Return what builds replicas of one model."""

    def build() -> World:
        world = World()
        for index, phases in enumerate(engines, 1):
            world.engine(*phases, instance=f"10.0.0.{index}:9850")
        return world

    return build


# --- Disable, by the published rules

SHORT = Phase(30, acceptance=(0.1, 0.05, 0.0), speedup=0.95)
#: Above the threshold of 1.2, and within its dead band.
NEARLY = Phase(20, acceptance=(0.15, 0.05, 0.03), speedup=0.95)
LONG_ENOUGH = Phase(20, acceptance=(0.2, 0.06, 0.04), speedup=0.95)
REJECTED = Phase(30, acceptance=(0.6, 0.4, 0.2), speedup=1.1)
#: Above the threshold of 50 %, and within its dead band.
NEARLY_HALF = Phase(20, acceptance=(0.7, 0.5, 0.33), speedup=1.1)
MORE_THAN_HALF = Phase(20, acceptance=(0.7, 0.5, 0.4), speedup=1.1)


BY_THE_RULES = (
    Case(
        "short-acceptance-for-a-quarter-of-an-hour",
        "Disable",
        _built(Phase(20), SHORT, thresholds=BY_LENGTH),
        {34: "", 47: "warning model reason=mean_acceptance_length action=disable recommended_k=0"},
    ),
    Case(
        "short-acceptance-hardly-better-is-still-short",
        "Disable",
        _built(Phase(20), SHORT, NEARLY, thresholds=BY_LENGTH),
        {
            47: "warning model reason=mean_acceptance_length action=disable recommended_k=0",
            68: "warning model reason=mean_acceptance_length action=disable recommended_k=0",
        },
    ),
    Case(
        "long-enough-acceptance-ends-it",
        "Disable",
        _built(Phase(20), SHORT, NEARLY, LONG_ENOUGH, thresholds=BY_LENGTH),
        {
            47: "warning model reason=mean_acceptance_length action=disable recommended_k=0",
            68: "warning model reason=mean_acceptance_length action=disable recommended_k=0",
            80: "",
        },
    ),
    Case(
        "within-the-dead-band-nothing-begins",
        "Disable",
        _built(Phase(20), replace(NEARLY, minutes=60), thresholds=BY_LENGTH),
        {78: ""},
    ),
    Case(
        "short-acceptance-for-ten-minutes",
        "Disable",
        _built(
            Phase(20),
            *(replace(SHORT, minutes=10), LONG_ENOUGH, replace(SHORT, minutes=10), LONG_ENOUGH),
            thresholds=BY_LENGTH,
        ),
        {35: "", 50: "", 65: ""},
    ),
    Case(
        "two-rejected-of-three-for-a-quarter-of-an-hour",
        "Disable",
        _built(Phase(20), REJECTED),
        {34: "", 47: "warning model reason=acceptance_ratio action=disable recommended_k=0"},
    ),
    Case(
        "acceptance-hardly-better-is-still-too-low",
        "Disable",
        _built(Phase(20), REJECTED, NEARLY_HALF),
        {
            47: "warning model reason=acceptance_ratio action=disable recommended_k=0",
            68: "warning model reason=acceptance_ratio action=disable recommended_k=0",
        },
    ),
    Case(
        "acceptance-of-more-than-half-ends-it",
        "Disable",
        _built(Phase(20), REJECTED, NEARLY_HALF, MORE_THAN_HALF),
        {
            47: "warning model reason=acceptance_ratio action=disable recommended_k=0",
            68: "warning model reason=acceptance_ratio action=disable recommended_k=0",
            80: "",
        },
    ),
    Case(
        "it-ends-at-once-when-speculation-pays",
        "Disable",
        _built(Phase(20), REJECTED, replace(REJECTED, minutes=10, speedup=1.4)),
        {47: "warning model reason=acceptance_ratio action=disable recommended_k=0", 52: ""},
    ),
    Case(
        "rejected-drafts-of-a-drafter-so-cheap-that-they-pay",
        "Disable",
        _built(replace(SHORT, minutes=60, speedup=1.3)),
        {58: ""},
    ),
    Case(
        "measured-no-slower-whatever-the-ratio-says",
        "Disable",
        _built(replace(SHORT, minutes=60, speedup=1.02, basis="measured")),
        {58: ""},
    ),
    Case(
        "measured-slower-and-rejected",
        "Disable",
        _built(Phase(20), replace(REJECTED, speedup=0.97, basis="measured")),
        {47: "warning model reason=acceptance_ratio action=disable recommended_k=0"},
    ),
    Case("a-few-rejected-drafts", "Disable", _built(replace(SHORT, minutes=60, drafts=15)), {58: ""}),
    Case(
        "one-replica-of-ten-rejects",
        "Disable",
        _replicas((replace(SHORT, minutes=60),), *[(Phase(60, speedup=1.1),)] * 9),
        {58: ""},
    ),
)

# --- Disable, by what it pays

#: Acceptance is fair, and the batch is full.
COSTLY = Phase(45, acceptance=(0.7, 0.6, 0.55), speedup=0.9, action="disable", recommended_k=0, running=128)
KEPT = replace(COSTLY, action="keep", recommended_k=3)
NO_ADVICE = replace(COSTLY, action="insufficient_data", recommended_k=None)


BY_PAYOFF = (
    Case(
        "no-k-pays-at-this-load",
        "Disable",
        _built(COSTLY),
        {12: "", 42: "warning model reason=payoff action=disable recommended_k=0"},
    ),
    Case(
        "it-pays-again",
        "Disable",
        _built(COSTLY, Phase(20, running=128)),
        {42: "warning model reason=payoff action=disable recommended_k=0", 48: ""},
    ),
    Case(
        "it-pays-again-though-the-advice-lags",
        "Disable",
        _built(COSTLY, replace(COSTLY, minutes=20, speedup=1.5)),
        {42: "warning model reason=payoff action=disable recommended_k=0", 48: ""},
    ),
    Case(
        "a-smaller-k-pays",
        "Disable",
        _built(COSTLY, replace(COSTLY, minutes=20, action="decrease_k", recommended_k=1)),
        {42: "warning model reason=payoff action=disable recommended_k=0", 50: ""},
    ),
    Case(
        "no-k-pays-on-two-of-three-engines",
        "Disable",
        _replicas((COSTLY,), (COSTLY,), (KEPT,)),
        {42: "warning model reason=payoff action=disable recommended_k=0"},
    ),
    Case(
        "only-engines-with-advice-have-a-vote",
        "Disable",
        _replicas((COSTLY,), (NO_ADVICE,), (NO_ADVICE,)),
        {42: "warning model reason=payoff action=disable recommended_k=0"},
    ),
    Case("no-k-pays-on-one-of-two-engines", "Disable", _replicas((COSTLY,), (KEPT,)), {42: ""}),
    Case("advised-off-and-as-fast-as-plain", "Disable", _built(replace(COSTLY, speedup=1.0)), {42: ""}),
    Case("no-k-pays-for-a-few-drafts", "Disable", _built(replace(COSTLY, drafts=15)), {42: ""}),
)

# --- Reenable

#: Plain decoding, at the load that the phases before have.
OFF = Phase(
    80,
    drafts=0,
    acceptance=(),
    plain_tokens=3000,
    speedup=None,
    activity="off",
    action="insufficient_data",
    recommended_k=None,
)
TOO_MANY = Phase(30, acceptance=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3), speedup=1.1)


TO_REENABLE = (
    Case(
        "off-at-a-load-at-which-it-paid",
        "Reenable",
        _built(Phase(60), OFF),
        {115: "", 135: "warning model action=enable recommended_k=3"},
    ),
    Case(
        "off-for-less-than-a-day-since-the-load-was-too-high",
        "Reenable",
        _built(Phase(60), COSTLY, replace(OFF, minutes=150, running=6)),
        {180: "", 245: ""},
    ),
    Case(
        "the-k-to-have-again-is-the-one-that-paid",
        "Reenable",
        _built(TOO_MANY, Phase(60), OFF),
        {165: "warning model action=enable recommended_k=3"},
    ),
    Case(
        "speculation-is-on-again",
        "Reenable",
        _built(Phase(60), OFF, Phase(80)),
        {
            135: "warning model action=enable recommended_k=3",
            190: "warning model action=enable recommended_k=3",
            210: "",
        },
    ),
    Case(
        "off-at-a-higher-load",
        "Reenable",
        _built(Phase(60), replace(OFF, minutes=150, running=9)),
        {135: "", 205: ""},
    ),
    Case(
        "off-at-a-load-at-which-it-has-lost-since",
        "Reenable",
        _built(Phase(60), replace(COSTLY, running=8), replace(OFF, minutes=150)),
        {180: "", 250: ""},
    ),
    Case(
        "off-since-what-was-drafted-was-rejected",
        "Reenable",
        _built(Phase(60), REJECTED, replace(OFF, minutes=150)),
        {170: "", 235: ""},
    ),
    Case("off-and-it-never-paid", "Reenable", _built(Phase(60, speedup=1.1), OFF), {135: ""}),
    Case("off-and-nothing-known-of-before", "Reenable", _built(replace(OFF, minutes=140)), {135: ""}),
    Case(
        "off-and-nothing-to-do",
        "Reenable",
        _built(Phase(60), idle(20), replace(OFF, minutes=140, plain_tokens=0, running=0)),
        {145: "", 215: ""},
    ),
    Case("off-on-one-of-two-replicas", "Reenable", _replicas((Phase(60), OFF), (Phase(140),)), {135: ""}),
)

# --- another K, another method

RAISE = Phase(75, acceptance=(0.95, 0.9, 0.85), action="increase_k", recommended_k=4)
LOWER = Phase(75, acceptance=(0.7, 0.3, 0.05), speedup=1.1, action="decrease_k", recommended_k=2)
SWITCH = Phase(75, acceptance=(0.6, 0.3, 0.1), speedup=1.05, action="switch_method", recommended_k=2)


CHANGES = (
    Case(
        "a-larger-k-for-an-hour",
        "RaiseK",
        _built(RAISE),
        {55: "", 70: "warning model action=increase_k recommended_k=4"},
    ),
    Case(
        "a-larger-k-is-advised-no-more",
        "RaiseK",
        _built(RAISE, Phase(30)),
        {
            70: "warning model action=increase_k recommended_k=4",
            85: "warning model action=increase_k recommended_k=4",
            97: "",
        },
    ),
    Case(
        "the-same-larger-k-on-two-of-three-engines",
        "RaiseK",
        _replicas((RAISE,), (RAISE,), (replace(RAISE, recommended_k=5),)),
        {70: "warning model action=increase_k recommended_k=4"},
    ),
    Case(
        "engines-do-not-agree-on-a-larger-k",
        "RaiseK",
        _replicas((RAISE,), (replace(RAISE, recommended_k=5),)),
        {70: ""},
    ),
    Case(
        "a-larger-k-that-changes-after-half-an-hour",
        "RaiseK",
        _built(replace(RAISE, minutes=40), replace(RAISE, minutes=40, recommended_k=5)),
        {78: ""},
    ),
    Case("a-larger-k-for-a-few-drafts", "RaiseK", _built(replace(RAISE, drafts=15)), {70: ""}),
    Case(
        "a-smaller-k-for-an-hour",
        "LowerK",
        _built(LOWER),
        {55: "", 70: "warning model action=decrease_k recommended_k=2"},
    ),
    Case(
        "a-smaller-k-is-advised-no-more",
        "LowerK",
        _built(LOWER, replace(LOWER, minutes=30, action="keep", recommended_k=3)),
        {
            70: "warning model action=decrease_k recommended_k=2",
            85: "warning model action=decrease_k recommended_k=2",
            97: "",
        },
    ),
    Case(
        "a-smaller-k-on-one-of-two-engines",
        "LowerK",
        _replicas((LOWER,), (replace(LOWER, action="keep", recommended_k=3),)),
        {70: ""},
    ),
    Case("a-smaller-k-for-a-few-drafts", "LowerK", _built(replace(LOWER, drafts=15)), {70: ""}),
    Case(
        "another-method-for-an-hour",
        "SwitchMethod",
        _built(SWITCH),
        {55: "", 70: "warning model action=switch_method"},
    ),
    Case(
        "another-method-whatever-the-best-k",
        "SwitchMethod",
        _replicas(
            *((replace(SWITCH, drafts=200, recommended_k=k),) for k in (1, 2)), (replace(LOWER, drafts=200),)
        ),
        {70: "warning model action=switch_method"},
    ),
    Case(
        "another-method-is-advised-no-more",
        "SwitchMethod",
        _built(SWITCH, replace(SWITCH, minutes=30, action="keep")),
        {70: "warning model action=switch_method", 85: "warning model action=switch_method", 97: ""},
    ),
    Case(
        "another-method-on-one-of-two-engines",
        "SwitchMethod",
        _replicas((SWITCH,), (replace(SWITCH, action="keep"),)),
        {70: ""},
    ),
    Case("another-method-for-a-few-drafts", "SwitchMethod", _built(replace(SWITCH, drafts=15)), {70: ""}),
)

# --- NearBreakEven

NEAR = Phase(75, acceptance=(0.8, 0.55, 0.35), speedup=1.1)


NEAR_BREAK_EVENS = (
    Case(
        "between-half-and-two-thirds-accepted",
        "NearBreakEven",
        _built(NEAR),
        {25: "", 70: "info model action=measure"},
    ),
    Case(
        "near-break-even-and-beneficial-after-all",
        "NearBreakEven",
        _built(NEAR, replace(NEAR, minutes=50, speedup=1.4)),
        {70: "info model action=measure", 98: "info model action=measure", 112: ""},
    ),
    Case(
        "below-break-even-is-another-alert",
        "NearBreakEven",
        _built(replace(NEAR, acceptance=(0.7, 0.5, 0.28))),
        {70: ""},
    ),
    Case(
        "two-thirds-accepted", "NearBreakEven", _built(replace(NEAR, acceptance=(0.85, 0.65, 0.5))), {70: ""}
    ),
    Case("near-break-even-of-a-cheap-drafter", "NearBreakEven", _built(replace(NEAR, speedup=1.3)), {70: ""}),
    Case(
        "near-break-even-and-measured-already",
        "NearBreakEven",
        _built(replace(NEAR, basis="measured")),
        {70: ""},
    ),
    Case("near-break-even-on-a-few-drafts", "NearBreakEven", _built(replace(NEAR, drafts=15)), {70: ""}),
)

CASES: tuple[Case, ...] = (*BY_THE_RULES, *BY_PAYOFF, *TO_REENABLE, *CHANGES, *NEAR_BREAK_EVENS)
