"""Cases of decisions.yml: what should be changed?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_specdec_exporter.thresholds import Thresholds

from .case import Case
from .promtool import Check, Expected
from .world import MODEL, Phase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-"
OF_MODEL = "?from=now-6h&var-namespace=chat&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct"
#: What every decision on a model carries.
DECISION = {
    "severity": "warning",
    "subject": "decision",
    "level": "model",
    "model_name": MODEL,
    "namespace": "chat",
}
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

DISABLE_BY_LENGTH = Expected(
    {**DECISION, "action": "disable", "recommended_k": "0", "reason": "mean_acceptance_length"},
    {
        "summary": "Speculation should be disabled: too little of what is drafted is accepted.",
        "description": f"Mean acceptance length of {MODEL} in chat has been below the threshold for 15 "
        "minutes and is 1.15.",
        "action": "Start vLLM without --speculative-config, or try another method first: "
        "vllm-specdec-exporter plan.",
        "value": "1.15",
        "threshold": "1.20",
        "sample": "3k drafts in 5m",
        "context": "speedup 0.95x",
        "runbook_url": f"{RUNBOOKS}Disable.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)
DISABLE_IN_THE_BAND = Expected(
    {**DECISION, "action": "disable", "recommended_k": "0", "reason": "mean_acceptance_length"},
    {
        **DISABLE_BY_LENGTH.annotations,
        "description": f"Mean acceptance length of {MODEL} in chat has been below the threshold for 15 "
        "minutes and is 1.23.",
        "value": "1.23",
    },
)
DISABLE_BY_ACCEPTANCE = Expected(
    {**DECISION, "action": "disable", "recommended_k": "0", "reason": "acceptance_ratio"},
    {
        "summary": "Speculation should be disabled: too little of what is drafted is accepted.",
        "description": f"The acceptance rate of {MODEL} in chat has been below the threshold for 15 minutes "
        "and is 40%.",
        "action": "Start vLLM without --speculative-config, or try another method first: "
        "vllm-specdec-exporter plan.",
        "value": "40%",
        "threshold": "50%",
        "sample": "3k drafts in 5m",
        "context": "speedup 1.10x",
        "runbook_url": f"{RUNBOOKS}Disable.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)
DISABLE_IN_THE_BAND_OF_ACCEPTANCE = Expected(
    {**DECISION, "action": "disable", "recommended_k": "0", "reason": "acceptance_ratio"},
    {
        **DISABLE_BY_ACCEPTANCE.annotations,
        "description": f"The acceptance rate of {MODEL} in chat has been below the threshold for 15 minutes "
        "and is 51%.",
        "value": "51%",
    },
)

BY_THE_RULES = (
    Case(
        "short-acceptance-for-a-quarter-of-an-hour",
        "Disable",
        "fires",
        _built(Phase(20), SHORT, thresholds=BY_LENGTH),
        47,
        (DISABLE_BY_LENGTH,),
        earlier=(Check(34, "Disable"),),
    ),
    Case(
        "short-acceptance-hardly-better-is-still-short",
        "Disable",
        "holds",
        _built(Phase(20), SHORT, NEARLY, thresholds=BY_LENGTH),
        68,
        (DISABLE_IN_THE_BAND,),
        earlier=(Check(47, "Disable", (DISABLE_BY_LENGTH,)),),
    ),
    Case(
        "long-enough-acceptance-ends-it",
        "Disable",
        "recovers",
        _built(Phase(20), SHORT, NEARLY, LONG_ENOUGH, thresholds=BY_LENGTH),
        80,
        earlier=(
            Check(47, "Disable", (DISABLE_BY_LENGTH,)),
            Check(68, "Disable", (DISABLE_IN_THE_BAND,)),
        ),
    ),
    Case(
        "within-the-dead-band-nothing-begins",
        "Disable",
        "silent",
        _built(Phase(20), replace(NEARLY, minutes=60), thresholds=BY_LENGTH),
        78,
        topic="other",
    ),
    Case(
        "short-acceptance-for-ten-minutes",
        "Disable",
        "silent",
        _built(
            Phase(20),
            *(replace(SHORT, minutes=10), LONG_ENOUGH, replace(SHORT, minutes=10), LONG_ENOUGH),
            thresholds=BY_LENGTH,
        ),
        65,
        earlier=(Check(35, "Disable"), Check(50, "Disable")),
        topic="too-short",
    ),
    Case(
        "two-rejected-of-three-for-a-quarter-of-an-hour",
        "Disable",
        "fires",
        _built(Phase(20), REJECTED),
        47,
        (DISABLE_BY_ACCEPTANCE,),
        earlier=(Check(34, "Disable"),),
    ),
    Case(
        "acceptance-hardly-better-is-still-too-low",
        "Disable",
        "holds",
        _built(Phase(20), REJECTED, NEARLY_HALF),
        68,
        (DISABLE_IN_THE_BAND_OF_ACCEPTANCE,),
        earlier=(Check(47, "Disable", (DISABLE_BY_ACCEPTANCE,)),),
    ),
    Case(
        "acceptance-of-more-than-half-ends-it",
        "Disable",
        "recovers",
        _built(Phase(20), REJECTED, NEARLY_HALF, MORE_THAN_HALF),
        80,
        earlier=(
            Check(47, "Disable", (DISABLE_BY_ACCEPTANCE,)),
            Check(68, "Disable", (DISABLE_IN_THE_BAND_OF_ACCEPTANCE,)),
        ),
    ),
    Case(
        "it-ends-at-once-when-speculation-pays",
        "Disable",
        "recovers",
        _built(Phase(20), REJECTED, replace(REJECTED, minutes=10, speedup=1.4)),
        52,
        earlier=(Check(47, "Disable", (DISABLE_BY_ACCEPTANCE,)),),
    ),
    Case(
        "rejected-drafts-of-a-drafter-so-cheap-that-they-pay",
        "Disable",
        "silent",
        _built(replace(SHORT, minutes=60, speedup=1.3)),
        58,
        topic="beneficial",
    ),
    Case(
        "measured-no-slower-whatever-the-ratio-says",
        "Disable",
        "silent",
        _built(replace(SHORT, minutes=60, speedup=1.02, basis="measured")),
        58,
        topic="other",
    ),
    Case(
        "measured-slower-and-rejected",
        "Disable",
        "fires",
        _built(Phase(20), replace(REJECTED, speedup=0.97, basis="measured")),
        47,
        (
            Expected(
                DISABLE_BY_ACCEPTANCE.labels,
                {**DISABLE_BY_ACCEPTANCE.annotations, "context": "speedup 0.97x"},
            ),
        ),
    ),
    Case(
        "a-few-rejected-drafts",
        "Disable",
        "silent",
        _built(replace(SHORT, minutes=60, drafts=15)),
        58,
        topic="low-traffic",
    ),
    Case(
        "one-replica-of-ten-rejects",
        "Disable",
        "silent",
        _replicas((replace(SHORT, minutes=60),), *[(Phase(60, speedup=1.1),)] * 9),
        58,
        topic="one-of-many",
    ),
)

# --- Disable, by what it pays

#: Acceptance is fair, and the batch is full.
COSTLY = Phase(45, acceptance=(0.7, 0.6, 0.55), speedup=0.9, action="disable", recommended_k=0, running=128)
KEPT = replace(COSTLY, action="keep", recommended_k=3)
NO_ADVICE = replace(COSTLY, action="insufficient_data", recommended_k=None)

DISABLE_BY_PAYOFF = Expected(
    {**DECISION, "action": "disable", "recommended_k": "0", "reason": "payoff"},
    {
        "summary": "Speculation should be disabled: no K would make it pay.",
        "description": f"For most engines of {MODEL} in chat the exporter has found for 15 minutes that no K "
        "makes speculation pay at this load.",
        "action": "Start vLLM without --speculative-config, or with the schedule on the exporter's status "
        "page.",
        "value": "0.90x",
        "threshold": "1.00x",
        "sample": "18k drafts in 30m",
        "context": "speedup 0.90x",
        "runbook_url": f"{RUNBOOKS}Disable.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)
DISABLE_THREE_ENGINES = Expected(
    {**DECISION, "action": "disable", "recommended_k": "0", "reason": "payoff"},
    {**DISABLE_BY_PAYOFF.annotations, "sample": "54k drafts in 30m"},
)

BY_PAYOFF = (
    Case(
        "no-k-pays-at-this-load",
        "Disable",
        "fires",
        _built(COSTLY),
        42,
        (DISABLE_BY_PAYOFF,),
        earlier=(Check(12, "Disable"),),
    ),
    Case(
        "it-pays-again",
        "Disable",
        "recovers",
        _built(COSTLY, Phase(20, running=128)),
        48,
        earlier=(Check(42, "Disable", (DISABLE_BY_PAYOFF,)),),
    ),
    Case(
        "it-pays-again-though-the-advice-lags",
        "Disable",
        "recovers",
        _built(COSTLY, replace(COSTLY, minutes=20, speedup=1.5)),
        48,
        earlier=(Check(42, "Disable", (DISABLE_BY_PAYOFF,)),),
    ),
    Case(
        "a-smaller-k-pays",
        "Disable",
        "recovers",
        _built(COSTLY, replace(COSTLY, minutes=20, action="decrease_k", recommended_k=1)),
        50,
        earlier=(Check(42, "Disable", (DISABLE_BY_PAYOFF,)),),
    ),
    Case(
        "no-k-pays-on-two-of-three-engines",
        "Disable",
        "fires",
        _replicas((COSTLY,), (COSTLY,), (KEPT,)),
        42,
        (DISABLE_THREE_ENGINES,),
    ),
    Case(
        "only-engines-with-advice-have-a-vote",
        "Disable",
        "fires",
        _replicas((COSTLY,), (NO_ADVICE,), (NO_ADVICE,)),
        42,
        (DISABLE_THREE_ENGINES,),
    ),
    Case(
        "no-k-pays-on-one-of-two-engines",
        "Disable",
        "silent",
        _replicas((COSTLY,), (KEPT,)),
        42,
        topic="one-of-many",
    ),
    Case(
        "advised-off-and-as-fast-as-plain",
        "Disable",
        "silent",
        _built(replace(COSTLY, speedup=1.0)),
        42,
        topic="other",
    ),
    Case(
        "no-k-pays-for-a-few-drafts",
        "Disable",
        "silent",
        _built(replace(COSTLY, drafts=15)),
        42,
        topic="low-traffic",
    ),
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

REENABLE = Expected(
    {**DECISION, "action": "enable", "recommended_k": "3"},
    {
        "summary": "Speculation is off, though it was beneficial at this load.",
        "description": f"{MODEL} in chat runs without speculation. Within the last week speculation with K = "
        "3 was beneficial at no fewer requests than ran at the peak of the last day.",
        "action": "Start vLLM with the speculative config of last week again, and watch the payoff.",
        "value": "8 requests run per engine",
        "threshold": "the highest load of the last 7 days at which it was beneficial",
        "runbook_url": f"{RUNBOOKS}Reenable.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)

TO_REENABLE = (
    Case(
        "off-at-a-load-at-which-it-paid",
        "Reenable",
        "fires",
        _built(Phase(60), OFF),
        135,
        (REENABLE,),
        earlier=(Check(115, "Reenable"),),
    ),
    Case(
        "off-for-less-than-a-day-since-the-load-was-too-high",
        "Reenable",
        "silent",
        _built(Phase(60), COSTLY, replace(OFF, minutes=150, running=6)),
        245,
        topic="other",
        earlier=(Check(180, "Reenable"),),
    ),
    Case(
        "the-k-to-have-again-is-the-one-that-paid",
        "Reenable",
        "fires",
        _built(TOO_MANY, Phase(60), OFF),
        165,
        (REENABLE,),
    ),
    Case(
        "speculation-is-on-again",
        "Reenable",
        "recovers",
        _built(Phase(60), OFF, Phase(80)),
        210,
        earlier=(Check(135, "Reenable", (REENABLE,)), Check(190, "Reenable", (REENABLE,))),
    ),
    Case(
        "off-at-a-higher-load",
        "Reenable",
        "silent",
        _built(Phase(60), replace(OFF, minutes=150, running=9)),
        205,
        earlier=(Check(135, "Reenable"),),
        topic="other",
    ),
    Case(
        "off-at-a-load-at-which-it-has-lost-since",
        "Reenable",
        "silent",
        _built(Phase(60), replace(COSTLY, running=8), replace(OFF, minutes=150)),
        250,
        earlier=(Check(180, "Reenable"),),
        topic="other",
    ),
    Case(
        "off-since-what-was-drafted-was-rejected",
        "Reenable",
        "silent",
        _built(Phase(60), REJECTED, replace(OFF, minutes=150)),
        235,
        earlier=(Check(170, "Reenable"),),
        topic="other",
    ),
    Case(
        "off-and-it-never-paid",
        "Reenable",
        "silent",
        _built(Phase(60, speedup=1.1), OFF),
        135,
        topic="other",
    ),
    Case(
        "off-and-nothing-known-of-before",
        "Reenable",
        "silent",
        _built(replace(OFF, minutes=140)),
        135,
        topic="missing-series",
    ),
    Case(
        "off-and-nothing-to-do",
        "Reenable",
        "silent",
        _built(Phase(60), idle(20), replace(OFF, minutes=140, plain_tokens=0, running=0)),
        215,
        earlier=(Check(145, "Reenable"),),
        topic="idle",
    ),
    Case(
        "off-on-one-of-two-replicas",
        "Reenable",
        "silent",
        _replicas((Phase(60), OFF), (Phase(140),)),
        135,
        topic="one-of-many",
    ),
)

# --- another K, another method

RAISE = Phase(75, acceptance=(0.95, 0.9, 0.85), action="increase_k", recommended_k=4)
LOWER = Phase(75, acceptance=(0.7, 0.3, 0.05), speedup=1.1, action="decrease_k", recommended_k=2)
SWITCH = Phase(75, acceptance=(0.6, 0.3, 0.1), speedup=1.05, action="switch_method", recommended_k=2)

RAISE_K = Expected(
    {**DECISION, "action": "increase_k", "recommended_k": "4"},
    {
        "summary": "A larger K would be faster.",
        "description": f"For most engines of {MODEL} in chat the exporter has advised K = 4 for an hour, "
        "because more tokens would be accepted.",
        "action": "Set num_speculative_tokens to 4; the status page has the config to paste.",
        "value": "K = 3",
        "threshold": "K = 4",
        "sample": "18k drafts in 30m",
        "context": "speedup 1.60x",
        "runbook_url": f"{RUNBOOKS}RaiseK.md",
        "dashboard_url": f"{GRAFANA}cost{OF_MODEL}",
    },
)
LOWER_K = Expected(
    {**DECISION, "action": "decrease_k", "recommended_k": "2"},
    {
        "summary": "A smaller K would be faster.",
        "description": f"For most engines of {MODEL} in chat the exporter has advised K = 2 for an hour, "
        "because the last positions cost more than they give.",
        "action": "Set num_speculative_tokens to 2; the status page has the config to paste.",
        "value": "K = 3",
        "threshold": "K = 2",
        "sample": "18k drafts in 30m",
        "context": "speedup 1.10x",
        "runbook_url": f"{RUNBOOKS}LowerK.md",
        "dashboard_url": f"{GRAFANA}cost{OF_MODEL}",
    },
)
SWITCH_METHOD = Expected(
    {**DECISION, "action": "switch_method"},
    {
        "summary": "Another speculation method should be tried.",
        "description": f"For most engines of {MODEL} in chat the exporter has found for an hour that even "
        "the best K gains little, and that acceptance is below what the method usually reaches.",
        "action": "Try another method on the same traffic, and compare: vllm-specdec-exporter compare.",
        "value": "1.05x",
        "sample": "18k drafts in 30m",
        "context": "speedup 1.05x",
        "runbook_url": f"{RUNBOOKS}SwitchMethod.md",
        "dashboard_url": f"{GRAFANA}cost{OF_MODEL}",
    },
)
RAISE_K_OF_TWO = Expected(RAISE_K.labels, {**RAISE_K.annotations, "sample": "54k drafts in 30m"})

CHANGES = (
    Case(
        "a-larger-k-for-an-hour",
        "RaiseK",
        "fires",
        _built(RAISE),
        70,
        (RAISE_K,),
        earlier=(Check(55, "RaiseK"),),
    ),
    Case(
        "a-larger-k-is-advised-no-more",
        "RaiseK",
        "recovers",
        _built(RAISE, Phase(30)),
        97,
        earlier=(Check(70, "RaiseK", (RAISE_K,)), Check(85, "RaiseK", (RAISE_K,))),
    ),
    Case(
        "the-same-larger-k-on-two-of-three-engines",
        "RaiseK",
        "fires",
        _replicas((RAISE,), (RAISE,), (replace(RAISE, recommended_k=5),)),
        70,
        (RAISE_K_OF_TWO,),
    ),
    Case(
        "engines-do-not-agree-on-a-larger-k",
        "RaiseK",
        "silent",
        _replicas((RAISE,), (replace(RAISE, recommended_k=5),)),
        70,
        topic="one-of-many",
    ),
    Case(
        "a-larger-k-that-changes-after-half-an-hour",
        "RaiseK",
        "silent",
        _built(replace(RAISE, minutes=40), replace(RAISE, minutes=40, recommended_k=5)),
        78,
        topic="too-short",
    ),
    Case(
        "a-larger-k-for-a-few-drafts",
        "RaiseK",
        "silent",
        _built(replace(RAISE, drafts=15)),
        70,
        topic="low-traffic",
    ),
    Case(
        "a-smaller-k-for-an-hour",
        "LowerK",
        "fires",
        _built(LOWER),
        70,
        (LOWER_K,),
        earlier=(Check(55, "LowerK"),),
    ),
    Case(
        "a-smaller-k-is-advised-no-more",
        "LowerK",
        "recovers",
        _built(LOWER, replace(LOWER, minutes=30, action="keep", recommended_k=3)),
        97,
        earlier=(Check(70, "LowerK", (LOWER_K,)), Check(85, "LowerK", (LOWER_K,))),
    ),
    Case(
        "a-smaller-k-on-one-of-two-engines",
        "LowerK",
        "silent",
        _replicas((LOWER,), (replace(LOWER, action="keep", recommended_k=3),)),
        70,
        topic="one-of-many",
    ),
    Case(
        "a-smaller-k-for-a-few-drafts",
        "LowerK",
        "silent",
        _built(replace(LOWER, drafts=15)),
        70,
        topic="low-traffic",
    ),
    Case(
        "another-method-for-an-hour",
        "SwitchMethod",
        "fires",
        _built(SWITCH),
        70,
        (SWITCH_METHOD,),
        earlier=(Check(55, "SwitchMethod"),),
    ),
    Case(
        "another-method-whatever-the-best-k",
        "SwitchMethod",
        "fires",
        _replicas(
            *((replace(SWITCH, drafts=200, recommended_k=k),) for k in (1, 2)), (replace(LOWER, drafts=200),)
        ),
        70,
        (
            Expected(
                SWITCH_METHOD.labels,
                {**SWITCH_METHOD.annotations, "value": "1.07x", "context": "speedup 1.07x"},
            ),
        ),
    ),
    Case(
        "another-method-is-advised-no-more",
        "SwitchMethod",
        "recovers",
        _built(SWITCH, replace(SWITCH, minutes=30, action="keep")),
        97,
        earlier=(
            Check(70, "SwitchMethod", (SWITCH_METHOD,)),
            Check(85, "SwitchMethod", (SWITCH_METHOD,)),
        ),
    ),
    Case(
        "another-method-on-one-of-two-engines",
        "SwitchMethod",
        "silent",
        _replicas((SWITCH,), (replace(SWITCH, action="keep"),)),
        70,
        topic="one-of-many",
    ),
    Case(
        "another-method-for-a-few-drafts",
        "SwitchMethod",
        "silent",
        _built(replace(SWITCH, drafts=15)),
        70,
        topic="low-traffic",
    ),
)

# --- NearBreakEven

NEAR = Phase(75, acceptance=(0.8, 0.55, 0.35), speedup=1.1)

NEAR_BREAK_EVEN = Expected(
    {**DECISION, "severity": "info", "action": "measure"},
    {
        "summary": "Acceptance is near break-even.",
        "description": f"{MODEL} in chat accepts 56.67% of its draft tokens: enough not to disable "
        "speculation by the rule, and too little to be sure that it pays.",
        "action": "Measure P99 under real load first: record a baseline with vllm-specdec-exporter baseline, "
        "and compare.",
        "value": "56.67% accepted",
        "threshold": "65%",
        "sample": "18k drafts in 30m",
        "context": "speedup 1.10x",
        "runbook_url": f"{RUNBOOKS}NearBreakEven.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)

NEAR_BREAK_EVENS = (
    Case(
        "between-half-and-two-thirds-accepted",
        "NearBreakEven",
        "fires",
        _built(NEAR),
        70,
        (NEAR_BREAK_EVEN,),
        earlier=(Check(25, "NearBreakEven"),),
    ),
    Case(
        "near-break-even-and-beneficial-after-all",
        "NearBreakEven",
        "recovers",
        _built(NEAR, replace(NEAR, minutes=50, speedup=1.4)),
        112,
        earlier=(
            Check(70, "NearBreakEven", (NEAR_BREAK_EVEN,)),
            Check(98, "NearBreakEven", (NEAR_BREAK_EVEN,)),
        ),
    ),
    Case(
        "below-break-even-is-another-alert",
        "NearBreakEven",
        "silent",
        _built(replace(NEAR, acceptance=(0.7, 0.5, 0.28))),
        70,
        topic="other",
    ),
    Case(
        "two-thirds-accepted",
        "NearBreakEven",
        "silent",
        _built(replace(NEAR, acceptance=(0.85, 0.65, 0.5))),
        70,
        topic="healthy",
    ),
    Case(
        "near-break-even-of-a-cheap-drafter",
        "NearBreakEven",
        "silent",
        _built(replace(NEAR, speedup=1.3)),
        70,
        topic="beneficial",
    ),
    Case(
        "near-break-even-and-measured-already",
        "NearBreakEven",
        "silent",
        _built(replace(NEAR, basis="measured")),
        70,
        topic="other",
    ),
    Case(
        "near-break-even-on-a-few-drafts",
        "NearBreakEven",
        "silent",
        _built(replace(NEAR, drafts=15)),
        70,
        topic="low-traffic",
    ),
)

CASES: tuple[Case, ...] = (*BY_THE_RULES, *BY_PAYOFF, *TO_REENABLE, *CHANGES, *NEAR_BREAK_EVENS)
