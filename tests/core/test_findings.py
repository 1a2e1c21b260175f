from __future__ import annotations

from dataclasses import replace

import pytest

from support.builders import increase
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.findings import Finding, Severity, find
from vllm_specdec_exporter.judgement.quality import Quality, judge_quality
from vllm_specdec_exporter.measures import Measures, derive
from vllm_specdec_exporter.thresholds import Thresholds

ACTIVE = Activity(ActivityState.ACTIVE, "1000 drafts in the last 5m")
PROBLEM, HINT = Severity


def measured(
    *positions: float, draft_tokens: float | None = None, generation: float | None = None
) -> Measures:
    """An active engine with 1000 drafts in its window."""
    return derive("5m", increase(1000, positions, draft_tokens=draft_tokens, generation=generation))


def texts(
    measures: Measures, *, defects: tuple[str, ...] = (), **limits: float
) -> list[tuple[Severity, str]]:
    """The findings on an active engine, without what to do about them."""
    thresholds = Thresholds().with_values(limits)
    quality = judge_quality(measures, [], thresholds)
    return [(f.severity, f.text) for f in find(ACTIVE, quality, measures, thresholds, defects=defects)]


class TestActivity:
    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            (ActivityState.OFF, [(HINT, "speculation is off: why")]),
            (ActivityState.BYPASSED, [(PROBLEM, "speculation is bypassed: why")]),
            (None, [(HINT, "why")]),
            (ActivityState.IDLE, [(HINT, "why")]),
            (ActivityState.WARMING_UP, [(HINT, "too little to judge by: why")]),
            (ActivityState.ACTIVE, []),
        ],
    )
    def test_states(self, state: ActivityState | None, expected: list[tuple[Severity, str]]) -> None:
        """Every state but the one in which all is told by the measures says why nothing more is known."""
        found = find(Activity(state, "why"), Quality(), None, Thresholds())

        assert expected == [(f.severity, f.text) for f in found]

    def test_measures_without_a_level_are_not_talked_about(self) -> None:
        """Too few drafts to judge are too few to complain about."""
        warming_up = Activity(ActivityState.WARMING_UP, "3 drafts")
        found = find(warming_up, Quality(), measured(10, 1), Thresholds())

        assert [(f.severity, f.text) for f in found] == [(HINT, "too little to judge by: 3 drafts")]

    @pytest.mark.parametrize("state", [ActivityState.OFF, None])
    def test_a_server_that_cannot_speculate(self, state: ActivityState | None) -> None:
        """Nobody is told to switch on, or to upgrade for, what a diffusion model does not have."""
        (found,) = find(
            Activity(state, "a diffusion model"), Quality(), measured(), Thresholds(), speculative=False
        )

        assert (
            Finding(HINT, "a diffusion model", "Nothing is to be done: no acceptance can be derived.")
            == found
        )


class TestAcceptance:
    @pytest.mark.parametrize(
        ("measures", "expected"),
        [
            (measured(950, 850, 750), []),
            (measured(800, 500, 300), []),
            (
                measured(400, 300, 200),
                [(PROBLEM, "the first drafted token is rejected in 60% of the drafts")],
            ),
            (
                measured(400, 40, 4),
                [(PROBLEM, "the first drafted token is rejected in 60% of the drafts")],
            ),
            (
                measured(900, 300, 90),
                [(PROBLEM, "acceptance falls off steeply behind the first position")],
            ),
            (
                measured(700, 350, 175, 110),
                [(PROBLEM, "acceptance is poor: acceptance ratio 0.33 < 0.4")],
            ),
            (
                measured(700, 350, 175, 90),
                [(PROBLEM, "the last 1 of K=4 positions are accepted in fewer than 10% of the drafts")],
            ),
            (
                measured(800, 100, 50, draft_tokens=1200),
                [(HINT, "drafts hold 1.2 of K=3 tokens on average")],
            ),
            (
                measured(950, 850, 750, generation=8000),
                [(HINT, "only 44% of the generated tokens came out of drafts")],
            ),
        ],
    )
    def test_what_is_found(self, measures: Measures, expected: list[tuple[Severity, str]]) -> None:
        """One cause is named once: the first position before the decline, and both before the totals."""
        assert expected == texts(measures)

    def test_the_totals_where_there_are_no_positions(self) -> None:
        """Without positions, a poor total is what can be said."""
        measures = replace(measured(), acceptance_ratio=0.3, mean_acceptance_length=2.2)

        assert texts(measures) == [(PROBLEM, "acceptance is poor: acceptance ratio 0.30 < 0.4")]

    @pytest.mark.parametrize(
        ("generation", "limits", "expected"),
        [
            (7101, {}, True),
            (7100, {}, False),
            (7100, {"low_coverage_ratio": 0.51}, True),
            (35500, {"low_coverage_ratio": 0.1}, False),
        ],
    )
    def test_low_coverage(self, generation: float, limits: dict[str, float], expected: bool) -> None:
        """Less than half of the tokens out of drafts is low, or less than the operator says."""
        found = [text for _, text in texts(measured(950, 850, 750, generation=generation), **limits)]

        assert expected is any(text.startswith("only ") for text in found)

    @pytest.mark.parametrize(
        ("accepted", "limits", "expected"),
        [
            (980, {}, False),
            (981, {}, True),
            (981, {"abnormal_acceptance_ratio": 0.99}, False),
            (901, {"abnormal_acceptance_ratio": 0.9}, True),
        ],
    )
    def test_abnormally_many(self, accepted: int, limits: dict[str, float], expected: bool) -> None:
        """The finding goes by the same limit as the alert, wherever the operator puts it."""
        found = [text for _, text in texts(measured(*(accepted,) * 3), **limits)]

        assert expected is any("abnormally many" in text for text in found)

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            (0.125, "the last 2 of K=4 positions are accepted in fewer than 12.5% of the drafts"),
            (0.05, "acceptance is poor: acceptance ratio 0.33 < 0.4"),
        ],
    )
    def test_rarely_accepted(self, limit: float, expected: str) -> None:
        """Which positions are rarely worth drafting is what the published rule to lower K says."""
        found = texts(measured(700, 390, 120, 90), lower_k_last_position_acceptance_ratio=limit)

        assert found == [(PROBLEM, expected)]


class TestDefects:
    def test_all_are_one_hint(self) -> None:
        """A torn answer is harmless once, and says all that is torn in it."""
        found = find(ACTIVE, Quality(), None, Thresholds(), defects=("this", "that"))

        assert [(f.severity, f.text) for f in found] == [
            (HINT, "inconsistent sample: this; that"),
        ]


class TestOrder:
    def test_the_gravest_first(self) -> None:
        """Problems come before hints, whatever they are about."""
        found = texts(measured(400, 300, 200, draft_tokens=1500, generation=9000), defects=("torn",))

        assert [severity for severity, _ in found] == [PROBLEM, HINT, HINT, HINT]

    @pytest.mark.parametrize(
        "findings",
        [
            find(Activity(ActivityState.OFF, "why"), Quality(), None, Thresholds()),
            find(Activity(ActivityState.BYPASSED, "why"), Quality(), None, Thresholds()),
            find(Activity(ActivityState.IDLE, "why"), Quality(), None, Thresholds()),
            find(Activity(ActivityState.WARMING_UP, "why"), Quality(), None, Thresholds()),
            find(Activity(ActivityState.OFF, "why"), Quality(), None, Thresholds(), speculative=False),
            find(Activity(None, "why"), Quality(), None, Thresholds(), defects=("torn",)),
        ],
    )
    def test_each_says_what_to_do(self, findings: tuple[Finding, ...]) -> None:
        """No finding leaves its reader alone."""
        assert [f for f in findings if not f.action.endswith(".")] == []
