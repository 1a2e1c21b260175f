"""Cases of decisions.yml: what should be changed?"""

from dataclasses import replace

from vllm_specdec_exporter.config.thresholds import Thresholds

from .case import Table, Worlds, cases, never, of_models, silent
from .histories import engines, models
from .world import Phase, World, idle

#: Under these only the mean acceptance length says "disable": a drafter that costs next to nothing.
BY_LENGTH = replace(Thresholds(), disable_acceptance_ratio=0.01)


# --- Disable, by the published rules

SHORT = Phase(30, acceptance=(0.1, 0.05, 0.0), speedup=0.95)
#: Above the threshold of 1.2, and within its dead band.
NEARLY = Phase(20, acceptance=(0.15, 0.05, 0.03), speedup=0.95)
LONG_ENOUGH = Phase(20, acceptance=(0.2, 0.06, 0.04), speedup=0.95)
REJECTED = Phase(30, acceptance=(0.6, 0.4, 0.2), speedup=1.1, basis="calibrated")
#: Above the threshold of 50 %, and within its dead band.
NEARLY_HALF = replace(REJECTED, minutes=20, acceptance=(0.7, 0.5, 0.33))
MORE_THAN_HALF = replace(REJECTED, minutes=20, acceptance=(0.7, 0.5, 0.4))

DAY = 24 * 60
DISABLE = "warning model action=disable recommended_k=0"
#: The same while a page says it to people.
BOTH = [DISABLE, DISABLE.replace("warning", "none")]

GUESS = "warning model reason=estimate action=measure"

THIN_NIGHT = replace(REJECTED, minutes=180, drafts=10, speedup=None)


def published_rule() -> World:
    """Models that the published rule says to disable, each by one number, and one that it does not."""
    world = World()
    for index, (name, acceptance, guess) in enumerate(
        (
            ("eagle3-at-30", (0.5, 0.25, 0.15), None),
            ("mtp-of-length-1.15", (0.15,), 0.95),
            ("draft-model-at-42", (0.7, 0.5, 0.4, 0.3, 0.2), None),
            ("unknown-at-40", (0.6, 0.4, 0.2), None),
            ("guessed-at-1.24", (0.6, 0.4, 0.2), 1.24),
            ("draft-model-at-55", (0.75, 0.55, 0.35), None),
        )
    ):
        one = Phase(45, acceptance=acceptance, speedup=None, guess=guess)
        world.engine(one, model=name, instance=f"10.0.0.{index}:9850")
    return world


WAVE = replace(REJECTED, minutes=20)
#: Hardly any traffic, but for ten minutes, and for one that is bad.
SPARSE = (
    replace(THIN_NIGHT, minutes=60, acceptance=(0.9, 0.7, 0.5)),
    Phase(9, drafts=60, speedup=None),
    Phase(1, drafts=600, acceptance=(0.0, 0.0, 0.0), speedup=None),
    replace(THIN_NIGHT, minutes=50, acceptance=(0.9, 0.7, 0.5)),
)
UNSURE = Phase(20, acceptance=(0.66, 0.46, 0.26), speedup=None, guess=1.24)

DISABLE_CASES: Table = {
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
        engines(
            (replace(REJECTED, minutes=50, speedup=0.8, basis="measured"), replace(REJECTED, speedup=1.5))
        ),
        {49: BOTH, 51: ""},
    ),
    # Traffic is not thin, so what was measured before says nothing of now.
    "it-paid-for-hours-and-does-not-any-more": (
        engines(
            (
                replace(REJECTED, minutes=180, speedup=1.3, basis="measured"),
                replace(REJECTED, minutes=60, speedup=0.8, basis="modelled"),
            )
        ),
        {179: "", 215: BOTH},
    ),
    "what-loses-every-night-is-told-once": (
        engines((Phase(22 * 60), replace(REJECTED, minutes=120)) * 3),
        {1350 + 60: DISABLE, 2 * DAY - 30: "", 3 * DAY - 30: ""},
    ),
    # In between it has not been well: nobody works at night.
    "a-fault-that-lasts-is-told-on-each-of-its-days": (
        engines((Phase(12 * 60), idle(12 * 60), *(replace(REJECTED, minutes=12 * 60), idle(12 * 60)) * 3)),
        {
            day * DAY + minute: DISABLE if minute < 720 else ""
            for day in (1, 2, 3)
            for minute in (60, 600, 900)
        },
    ),
    "what-pays-every-night-is-silent": (
        engines((Phase(22 * 60), replace(REJECTED, minutes=120, speedup=1.3)) * 2),
        silent(DAY - 90, DAY - 1) | silent(2 * DAY - 90, 2 * DAY - 1),
    ),
    # Yesterday it could be judged for ten minutes only, and was bad in one of them.
    "one-bad-minute-of-a-quiet-yesterday": (
        engines((*SPARSE, Phase(DAY - 120), replace(REJECTED, minutes=60))),
        {DAY + 55: DISABLE},
    ),
    # Twenty minutes each: programs get one decision, and then none before it has lost for longer.
    "waves-of-loss-decide-once": (
        engines((*(WAVE, replace(WAVE, speedup=1.3)) * 8, replace(WAVE, minutes=80))),
        {57: DISABLE, **silent(61, 340), 390: DISABLE},
    ),
    "a-gap-in-scraping-does-not-make-a-second-decision": (
        engines((Phase(20), REJECTED, Phase(10, gone=True), REJECTED)),
        dict.fromkeys(range(47, 90), DISABLE),
    ),
    # Whatever the method, as with `--threshold published`. A guess neither silences nor acts.
    "the-published-rule-to-the-letter": (
        published_rule,
        {
            40: [
                f"{DISABLE} model_name={name}"
                for name in ("draft-model-at-42", "eagle3-at-30", "mtp-of-length-1.15", "unknown-at-40")
            ]
            + [f"{GUESS} model_name=guessed-at-1.24"]
        },
    ),
    "a-guess-says-otherwise-until-it-is-measured": (
        engines(
            (
                replace(REJECTED, minutes=45, speedup=None, guess=1.24, interval=(0.87, 1.74), loss=0.12),
                replace(REJECTED, minutes=90, speedup=0.9, basis="measured"),
            )
        ),
        {40: GUESS, 125: BOTH},
    ),
    "a-guess-of-one-engine-beside-two-that-lose": (
        engines(
            (replace(REJECTED, minutes=60, speedup=None, guess=1.02, interval=(0.9, 1.2), basis="modelled"),),
            *[(replace(REJECTED, minutes=60, speedup=0.8, basis="measured"),)] * 2,
        ),
        {50: BOTH},
    ),
    "a-measurement-whose-interval-includes-1-is-a-guess": (
        engines(
            (
                replace(
                    REJECTED, minutes=60, speedup=None, guess=1.02, interval=(0.98, 1.06), basis="measured"
                ),
            )
        ),
        {50: GUESS},
    ),
    # Also with an interval wholly above 1, and in a night that is too thin to judge.
    "an-estimate-above-1-is-a-guess-by-day-and-by-night": (
        engines(
            *[
                (
                    replace(REJECTED, minutes=60, speedup=1.3, basis="modelled"),
                    replace(THIN_NIGHT, minutes=75, drafts=60),
                )
            ]
            * 2
        ),
        {50: GUESS, 132: GUESS},
    ),
    # Of 46 % and 54 %: one question, as long as nobody has measured.
    "acceptance-in-waves-is-one-question": (
        engines((Phase(20), *(UNSURE, replace(UNSURE, acceptance=(0.74, 0.54, 0.34))) * 5)),
        dict.fromkeys(range(45, 220, 5), GUESS),
    ),
    "a-guess-is-not-asked-about-every-night": (
        engines((Phase(480), replace(UNSURE, minutes=480), Phase(960), replace(UNSURE, minutes=480))),
        {600: GUESS, 1200: "", 2100: ""},
    ),
    # At night each engine has too few drafts for a speedup; by day speculation is known to pay.
    "what-pays-by-day-is-not-switched-off-by-night": (
        engines(*[(replace(REJECTED, minutes=60, speedup=1.3), THIN_NIGHT)] * 20),
        silent(60, 239),
    ),
    # For two hours a page silences the ticket: programs get the decision by an alert for no person.
    "while-harm-pages-programs-hear-of-it-too": (
        engines(
            (
                Phase(20),
                replace(REJECTED, speedup=0.8, basis="measured"),
                replace(REJECTED, speedup=0.97, basis="measured"),
            )
        ),
        {33: "", 47: BOTH, 75: BOTH},
    ),
    "measured-slower-and-rejected": (
        engines((Phase(20), replace(REJECTED, speedup=0.97, basis="measured"))),
        {47: DISABLE},
    ),
}
DISABLE_NEVER: Worlds = {
    "rejected-drafts-of-a-drafter-so-cheap-that-they-pay": engines(
        (replace(SHORT, minutes=60, speedup=1.3, basis="calibrated"),)
    ),
    "measured-no-slower-whatever-the-ratio-says": engines(
        (replace(SHORT, minutes=60, speedup=1.02, basis="measured"),)
    ),
    "a-few-rejected-drafts": engines((replace(SHORT, minutes=60, drafts=15),)),
    "one-replica-of-ten-rejects": engines((replace(SHORT, minutes=60),), *[(Phase(60, speedup=1.1),)] * 9),
}

# --- Disable, by what it pays

#: Acceptance is fair, and the batch is full.
COSTLY = Phase(45, acceptance=(0.7, 0.6, 0.55), speedup=0.9, action="disable", recommended_k=0, running=128)
KEPT = replace(COSTLY, action="keep", recommended_k=3)
NO_ADVICE = replace(COSTLY, action="insufficient_data", recommended_k=None)

DISABLE_CASES_BY_WHAT_IT_PAYS: Table = {
    "no-k-pays-until-it-pays-again-though-the-advice-lags": (
        engines((COSTLY, replace(COSTLY, minutes=20, speedup=1.5))),
        {12: "", 42: BOTH, 48: ""},
    ),
    "a-smaller-k-pays": (
        engines((COSTLY, replace(COSTLY, minutes=20, action="decrease_k", recommended_k=1))),
        {42: BOTH, 50: ""},
    ),
    "no-k-pays-on-two-of-three-engines": (engines((COSTLY,), (COSTLY,), (KEPT,)), {42: BOTH}),
    "only-engines-with-advice-have-a-vote": (engines((COSTLY,), (NO_ADVICE,), (NO_ADVICE,)), {42: BOTH}),
}
DISABLE_NEVER_BY_WHAT_IT_PAYS: Worlds = {
    "no-k-pays-on-one-of-two-engines": engines((COSTLY,), (KEPT,)),
    "advised-off-and-as-fast-as-plain": engines((replace(COSTLY, speedup=1.0),)),
    "advised-off-and-beneficial": engines((replace(COSTLY, speedup=1.3),)),
    "no-k-pays-for-a-few-drafts": engines((replace(COSTLY, drafts=15),)),
}

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
ENABLED = [
    ENABLE,
    *(
        f"warning model action=enable recommended_k={k} model_name={name}"
        for k, name in ((2, "poet"), (1, "judge"))
    ),
]

REENABLE_CASES: Table = {
    "off-at-a-load-at-which-it-paid": (
        models(
            (Phase(60), OFF, Phase(80)),
            (Phase(60, acceptance=(0.9, 0.8), running=40), replace(OFF, running=12)),
            (Phase(60, acceptance=(0.9,), running=2.5), replace(OFF, running=1.5)),
        ),
        {115: "", 135: ENABLED, 190: ENABLED, 210: ""},
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
    "off-since-what-was-drafted-was-rejected": (engines((Phase(60), REJECTED, LONG_OFF)), {170: "", 235: ""}),
    "off-and-nothing-to-do": (
        engines((Phase(60), idle(20), replace(OFF, minutes=140, plain_tokens=0, running=0))),
        {145: "", 215: ""},
    ),
}
REENABLE_NEVER: Worlds = {
    "off-and-it-never-paid": engines((Phase(60, speedup=1.1), OFF)),
    "off-on-one-of-two-replicas": engines((Phase(60), OFF), (Phase(140),)),
}

# --- another K, another method

RAISE = Phase(DAY + 60, acceptance=(0.95, 0.9, 0.85), action="increase_k", recommended_k=4)
LOWER = Phase(DAY + 60, acceptance=(0.7, 0.3, 0.05), speedup=1.1, action="decrease_k", recommended_k=2)
SWITCH = Phase(90, acceptance=(0.6, 0.3, 0.1), speedup=1.05, action="switch_method", recommended_k=2)
RAISED, LOWERED = (
    "warning model action=increase_k recommended_k=4",
    "warning model action=decrease_k recommended_k=2",
)
SWITCHED = "warning model action=switch_method"
END = DAY + 45


def swinging(*ks: int) -> tuple[Phase, ...]:
    """The load swings, and the best K with it."""
    hours = range(DAY // 60 + 1)
    return tuple(replace(RAISE, minutes=60, recommended_k=ks[hour % len(ks)], gain=0.2) for hour in hours)


KCHANGE_ADVISED_CASES: Table = {
    "a-larger-k-until-it-is-set": (
        engines((RAISE, Phase(90, acceptance=(0.95, 0.9, 0.85, 0.8), recommended_k=4))),
        {75: "", 1305: "", END: RAISED, END + 60: RAISED, END + 90: ""},
    ),
    "half-of-the-engines-to-4-and-half-to-5": (
        engines(*[(RAISE,)] * 2, *[(replace(RAISE, recommended_k=5),)] * 2),
        {END: RAISED},
    ),
    "a-larger-k-of-4-to-9-by-the-load": (engines(swinging(4, 6, 9)), {END: RAISED}),
    # Two hours of a day it is the present K: a schedule helps, and no ticket does.
    "no-one-k-is-better-all-day": (engines(swinging(4, 6, 9, 6, 4, 9, 6, 9, 3)), {END: ""}),
    "a-smaller-k-until-it-is-advised-no-more": (
        models(
            (LOWER, replace(LOWER, minutes=240, action="keep", recommended_k=3)),
            (replace(LOWER, acceptance=(0.7, 0.3, 0.05, 0.02)),),
            (replace(LOWER, drafts=2000, recommended_k=1, gain=0.3),),
        ),
        {
            75: "",
            END: [
                LOWERED,
                f"{LOWERED} model_name=poet",
                "warning model action=decrease_k recommended_k=1 model_name=judge",
            ],
            END + 240: "",
        },
    ),
}
KCHANGE_ADVISED_NEVER: Worlds = {
    "a-larger-k-on-half-of-the-engines": engines((RAISE,), (replace(RAISE, action="keep", recommended_k=3),)),
    "a-larger-k-for-a-few-drafts": engines((replace(RAISE, drafts=15),)),
    "a-larger-k-that-gains-4-percent": engines((replace(RAISE, gain=0.04),)),
    "a-larger-k-for-half-a-day": engines(
        (replace(RAISE, minutes=720, action="keep", recommended_k=3), RAISE)
    ),
}
METHOD_CHANGE_ADVISED_CASES: Table = {
    "another-method-until-it-is-advised-no-more": (
        models(
            (SWITCH, replace(SWITCH, minutes=30, action="keep")), (replace(SWITCH, speedup=None, drafts=200),)
        ),
        {70: "", 86: of_models(SWITCHED, 2), 100: of_models(SWITCHED, 2), 112: ""},
    ),
    "another-method-whatever-the-best-k": (
        engines(
            (replace(SWITCH, drafts=200, recommended_k=1),),
            (replace(SWITCH, drafts=200),),
            (replace(LOWER, drafts=200),),
        ),
        {86: SWITCHED},
    ),
}
METHOD_CHANGE_ADVISED_NEVER: Worlds = {
    "another-method-on-one-of-two-engines": engines((SWITCH,), (replace(SWITCH, action="keep"),)),
    "another-method-for-a-few-drafts": engines((replace(SWITCH, drafts=15),)),
}

# --- NearBreakEven

TO_MEASURE = "info model action=measure"
NEAR = Phase(75, acceptance=(0.8, 0.55, 0.35), speedup=1.1)
NEAR_BREAK_EVEN_CASES: Table = {
    "near-break-even-until-it-is-beneficial": (
        models(
            (NEAR, replace(NEAR, minutes=50, speedup=1.4)),
            (replace(NEAR, acceptance=(0.8, 0.6, 0.42), speedup=None),),
            (replace(NEAR, acceptance=(0.51,), drafts=200, speedup=1.02),),
        ),
        {25: "", 70: of_models(TO_MEASURE), 98: of_models(TO_MEASURE), 112: ""},
    )
}
NEAR_BREAK_EVEN_NEVER: Worlds = {
    "below-break-even-is-another-alert": engines((replace(NEAR, acceptance=(0.7, 0.5, 0.28)),)),
    "two-thirds-accepted": engines((replace(NEAR, acceptance=(0.85, 0.65, 0.5)),)),
    "near-break-even-of-a-cheap-drafter": engines((replace(NEAR, speedup=1.3),)),
    "near-break-even-and-measured-already": engines((replace(NEAR, basis="measured"),)),
    "near-break-even-on-a-few-drafts": engines((replace(NEAR, drafts=15),)),
}

CASES = (
    *cases("Disable", DISABLE_CASES),
    *never("Disable", 58, DISABLE_NEVER),
    *cases("Disable", DISABLE_CASES_BY_WHAT_IT_PAYS),
    *never("Disable", 42, DISABLE_NEVER_BY_WHAT_IT_PAYS),
    *cases("Reenable", REENABLE_CASES),
    *never("Reenable", 135, REENABLE_NEVER),
    *cases("KChangeAdvised", KCHANGE_ADVISED_CASES),
    *never("KChangeAdvised", END, KCHANGE_ADVISED_NEVER),
    *cases("MethodChangeAdvised", METHOD_CHANGE_ADVISED_CASES),
    *never("MethodChangeAdvised", 70, METHOD_CHANGE_ADVISED_NEVER),
    *cases("NearBreakEven", NEAR_BREAK_EVEN_CASES),
    *never("NearBreakEven", 70, NEAR_BREAK_EVEN_NEVER),
)
