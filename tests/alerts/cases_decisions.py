"""Cases of decisions.yml: what should be changed?"""

from __future__ import annotations

from dataclasses import replace

from vllm_specdec_exporter.config.thresholds import Thresholds

from .case import Case, cases, never, silent
from .histories import engines
from .world import Phase, World, idle

#: Under these only the mean acceptance length says "disable": a drafter that costs next to nothing.
BY_LENGTH = replace(Thresholds(), disable_acceptance_ratio=0.01)


# --- Disable, by the published rules

SHORT = Phase(30, acceptance=(0.1, 0.05, 0.0), speedup=0.95)
#: Above the threshold of 1.2, and within its dead band.
NEARLY = Phase(20, acceptance=(0.15, 0.05, 0.03), speedup=0.95)
LONG_ENOUGH = Phase(20, acceptance=(0.2, 0.06, 0.04), speedup=0.95)
REJECTED = Phase(30, acceptance=(0.6, 0.4, 0.2), speedup=1.1)
#: Above the threshold of 50 %, and within its dead band.
NEARLY_HALF = Phase(20, acceptance=(0.7, 0.5, 0.33), speedup=1.1)
MORE_THAN_HALF = Phase(20, acceptance=(0.7, 0.5, 0.4), speedup=1.1)

DISABLE = "warning model action=disable recommended_k=0"

THIN_NIGHT = replace(REJECTED, minutes=180, drafts=10, speedup=None)


def published_rule() -> World:
    """Models that the published rule says to disable, each by one number, and one that it does not."""
    world = World()
    for index, (name, acceptance) in enumerate(
        {
            "eagle3-at-30": (0.5, 0.25, 0.15),
            "mtp-of-length-1.15": (0.15,),
            "draft-model-at-42": (0.7, 0.5, 0.4, 0.3, 0.2),
            "unknown-at-40": (0.6, 0.4, 0.2),
            "draft-model-at-55": (0.75, 0.55, 0.35),
        }.items()
    ):
        world.engine(
            Phase(45, acceptance=acceptance, speedup=None), model=name, instance=f"10.0.0.{index}:9850"
        )
    return world


BY_THE_RULES = (
    *cases(
        "Disable",
        {
            "short-acceptance-until-it-is-long-enough": (
                engines((Phase(20), SHORT, NEARLY, LONG_ENOUGH), thresholds=BY_LENGTH),
                {34: "", 47: DISABLE, 68: DISABLE, 80: ""},
            ),
            "within-the-dead-band-nothing-begins": (
                engines((Phase(20), replace(NEARLY, minutes=60)), thresholds=BY_LENGTH),
                {78: ""},
            ),
            "short-acceptance-for-ten-minutes": (
                engines((Phase(20), *(replace(SHORT, minutes=10), LONG_ENOUGH) * 2), thresholds=BY_LENGTH),
                {35: "", 50: "", 65: ""},
            ),
            "two-rejected-of-three-until-it-is-less-than-half": (
                engines((Phase(20), REJECTED, NEARLY_HALF, MORE_THAN_HALF)),
                {34: "", 47: DISABLE, 68: DISABLE, 80: ""},
            ),
            "it-ends-at-once-when-speculation-pays": (
                engines((Phase(20), REJECTED, replace(REJECTED, minutes=10, speedup=1.4))),
                {47: DISABLE, 52: ""},
            ),
            "it-ends-when-a-measured-loss-gives-way-to-a-beneficial-estimate": (
                engines((replace(REJECTED, speedup=0.8, basis="measured"), replace(REJECTED, speedup=1.5))),
                {29: DISABLE, 31: ""},
            ),
            "a-gap-in-scraping-does-not-make-a-second-decision": (
                engines((Phase(20), REJECTED, Phase(10, gone=True), REJECTED)),
                dict.fromkeys(range(47, 90), DISABLE),
            ),
            # Whatever the method; nothing is known of the payoff, as where a modelled interval includes 1.
            "the-published-rule-to-the-letter": (
                published_rule,
                {
                    40: [
                        f"{DISABLE} model_name={name}"
                        for name in (
                            "draft-model-at-42",
                            "eagle3-at-30",
                            "mtp-of-length-1.15",
                            "unknown-at-40",
                        )
                    ]
                },
            ),
            # At night each engine has too few drafts for a speedup; by day speculation is known to pay.
            "what-pays-by-day-is-not-switched-off-by-night": (
                engines(*[(replace(REJECTED, minutes=60, speedup=1.3), THIN_NIGHT)] * 20),
                silent(60, 239),
            ),
            "measured-slower-and-rejected": (
                engines((Phase(20), replace(REJECTED, speedup=0.97, basis="measured"))),
                {47: DISABLE},
            ),
        },
    ),
    *never(
        "Disable",
        58,
        {
            "rejected-drafts-of-a-drafter-so-cheap-that-they-pay": engines(
                (replace(SHORT, minutes=60, speedup=1.3),)
            ),
            "measured-no-slower-whatever-the-ratio-says": engines(
                (replace(SHORT, minutes=60, speedup=1.02, basis="measured"),)
            ),
            "a-few-rejected-drafts": engines((replace(SHORT, minutes=60, drafts=15),)),
            "one-replica-of-ten-rejects": engines(
                (replace(SHORT, minutes=60),), *[(Phase(60, speedup=1.1),)] * 9
            ),
        },
    ),
)

# --- Disable, by what it pays

#: Acceptance is fair, and the batch is full.
COSTLY = Phase(45, acceptance=(0.7, 0.6, 0.55), speedup=0.9, action="disable", recommended_k=0, running=128)
KEPT = replace(COSTLY, action="keep", recommended_k=3)
NO_ADVICE = replace(COSTLY, action="insufficient_data", recommended_k=None)

BY_WHAT_IT_PAYS = (
    *cases(
        "Disable",
        {
            "no-k-pays-until-it-pays-again-though-the-advice-lags": (
                engines((COSTLY, replace(COSTLY, minutes=20, speedup=1.5))),
                {12: "", 42: DISABLE, 48: ""},
            ),
            "a-smaller-k-pays": (
                engines((COSTLY, replace(COSTLY, minutes=20, action="decrease_k", recommended_k=1))),
                {42: DISABLE, 50: ""},
            ),
            "no-k-pays-on-two-of-three-engines": (engines((COSTLY,), (COSTLY,), (KEPT,)), {42: DISABLE}),
            "only-engines-with-advice-have-a-vote": (
                engines((COSTLY,), (NO_ADVICE,), (NO_ADVICE,)),
                {42: DISABLE},
            ),
        },
    ),
    *never(
        "Disable",
        42,
        {
            "no-k-pays-on-one-of-two-engines": engines((COSTLY,), (KEPT,)),
            "advised-off-and-as-fast-as-plain": engines((replace(COSTLY, speedup=1.0),)),
            "advised-off-and-beneficial": engines((replace(COSTLY, speedup=1.3),)),
            "no-k-pays-for-a-few-drafts": engines((replace(COSTLY, drafts=15),)),
        },
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
LONG_OFF = replace(OFF, minutes=150)
TOO_MANY = Phase(30, acceptance=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3), speedup=1.1)
ENABLE = "warning model action=enable recommended_k=3"

TO_REENABLE = (
    *cases(
        "Reenable",
        {
            "off-at-a-load-at-which-it-paid": (
                engines((Phase(60), OFF, Phase(80))),
                {115: "", 135: ENABLE, 190: ENABLE, 210: ""},
            ),
            "off-for-less-than-a-day-since-the-load-was-too-high": (
                engines((Phase(60), COSTLY, replace(LONG_OFF, running=6))),
                {180: "", 245: ""},
            ),
            "the-k-to-have-again-is-the-one-that-paid": (engines((TOO_MANY, Phase(60), OFF)), {165: ENABLE}),
            "off-at-a-higher-load": (engines((Phase(60), replace(LONG_OFF, running=9))), {205: ""}),
            "off-at-a-load-at-which-it-has-lost-since": (
                engines((Phase(60), replace(COSTLY, running=8), LONG_OFF)),
                {180: "", 250: ""},
            ),
            "off-since-what-was-drafted-was-rejected": (
                engines((Phase(60), REJECTED, LONG_OFF)),
                {170: "", 235: ""},
            ),
            "off-and-nothing-to-do": (
                engines((Phase(60), idle(20), replace(OFF, minutes=140, plain_tokens=0, running=0))),
                {145: "", 215: ""},
            ),
        },
    ),
    *never(
        "Reenable",
        135,
        {
            "off-and-it-never-paid": engines((Phase(60, speedup=1.1), OFF)),
            "off-on-one-of-two-replicas": engines((Phase(60), OFF), (Phase(140),)),
        },
    ),
)

# --- another K, another method

RAISE = Phase(75, acceptance=(0.95, 0.9, 0.85), action="increase_k", recommended_k=4)
LOWER = Phase(75, acceptance=(0.7, 0.3, 0.05), speedup=1.1, action="decrease_k", recommended_k=2)
SWITCH = Phase(75, acceptance=(0.6, 0.3, 0.1), speedup=1.05, action="switch_method", recommended_k=2)
RAISED, LOWERED = (
    "warning model action=increase_k recommended_k=4",
    "warning model action=decrease_k recommended_k=2",
)
SWITCHED = "warning model action=switch_method"

CHANGES = (
    *cases(
        "RaiseK",
        {
            "a-larger-k-until-it-is-advised-no-more": (
                engines((RAISE, Phase(30))),
                {55: "", 70: RAISED, 85: RAISED, 97: ""},
            ),
            "the-same-larger-k-on-two-of-three-engines": (
                engines((RAISE,), (RAISE,), (replace(RAISE, recommended_k=5),)),
                {70: RAISED},
            ),
            "a-larger-k-that-changes-after-half-an-hour": (
                engines((replace(RAISE, minutes=40), replace(RAISE, minutes=40, recommended_k=5))),
                {78: ""},
            ),
        },
    ),
    *never(
        "RaiseK",
        70,
        {
            "engines-do-not-agree-on-a-larger-k": engines((RAISE,), (replace(RAISE, recommended_k=5),)),
            "a-larger-k-for-a-few-drafts": engines((replace(RAISE, drafts=15),)),
        },
    ),
    Case(
        "a-smaller-k-until-it-is-advised-no-more",
        "LowerK",
        engines((LOWER, replace(LOWER, minutes=30, action="keep", recommended_k=3))),
        {55: "", 70: LOWERED, 85: LOWERED, 97: ""},
    ),
    *never(
        "LowerK",
        70,
        {
            "a-smaller-k-on-one-of-two-engines": engines(
                (LOWER,), (replace(LOWER, action="keep", recommended_k=3),)
            ),
            "a-smaller-k-for-a-few-drafts": engines((replace(LOWER, drafts=15),)),
        },
    ),
    Case(
        "another-method-until-it-is-advised-no-more",
        "SwitchMethod",
        engines((SWITCH, replace(SWITCH, minutes=30, action="keep"))),
        {55: "", 70: SWITCHED, 85: SWITCHED, 97: ""},
    ),
    Case(
        "another-method-whatever-the-best-k",
        "SwitchMethod",
        engines(
            (replace(SWITCH, drafts=200, recommended_k=1),),
            (replace(SWITCH, drafts=200),),
            (replace(LOWER, drafts=200),),
        ),
        {70: SWITCHED},
    ),
    *never(
        "SwitchMethod",
        70,
        {
            "another-method-on-one-of-two-engines": engines((SWITCH,), (replace(SWITCH, action="keep"),)),
            "another-method-for-a-few-drafts": engines((replace(SWITCH, drafts=15),)),
        },
    ),
)

# --- NearBreakEven

NEAR = Phase(75, acceptance=(0.8, 0.55, 0.35), speedup=1.1)
NEAR_BREAK_EVENS = (
    Case(
        "near-break-even-until-it-is-beneficial",
        "NearBreakEven",
        engines((NEAR, replace(NEAR, minutes=50, speedup=1.4))),
        {25: "", 70: "info model action=measure", 98: "info model action=measure", 112: ""},
    ),
    *never(
        "NearBreakEven",
        70,
        {
            "below-break-even-is-another-alert": engines((replace(NEAR, acceptance=(0.7, 0.5, 0.28)),)),
            "two-thirds-accepted": engines((replace(NEAR, acceptance=(0.85, 0.65, 0.5)),)),
            "near-break-even-of-a-cheap-drafter": engines((replace(NEAR, speedup=1.3),)),
            "near-break-even-and-measured-already": engines((replace(NEAR, basis="measured"),)),
            "near-break-even-on-a-few-drafts": engines((replace(NEAR, drafts=15),)),
        },
    ),
)

CASES: tuple[Case, ...] = (*BY_THE_RULES, *BY_WHAT_IT_PAYS, *TO_REENABLE, *CHANGES, *NEAR_BREAK_EVENS)
