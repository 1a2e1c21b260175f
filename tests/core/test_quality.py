from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import Draft, count, drafts_of, increase
from vllm_specdec_exporter.history import Sample
from vllm_specdec_exporter.judgement.quality import Criterion, Quality, QualityLevel, judge_quality
from vllm_specdec_exporter.measures import Measures, derive
from vllm_specdec_exporter.reading import Counters
from vllm_specdec_exporter.thresholds import Thresholds
from vllm_specdec_exporter.window import delta

POOR, FAIR, HEALTHY, OPTIMAL = QualityLevel

#: Exactly healthy: it meets every healthy criterion, and misses optimal by its acceptance length.
SOUND = Measures(
    window="5m",
    span_seconds=300.0,
    drafts=1000,
    acceptance_ratio=0.65,
    mean_acceptance_length=1.8,
    position_acceptance_ratio=(0.95, 0.5, 0.3),
    mean_draft_length=3.0,
    position_decay_ratio=0.6,
)

#: It meets every optimal criterion.
BEST = Measures(
    window="5m",
    span_seconds=300.0,
    drafts=1000,
    acceptance_ratio=0.85,
    mean_acceptance_length=3.5,
    position_acceptance_ratio=(0.95, 0.85, 0.75),
    mean_draft_length=3.0,
    position_decay_ratio=0.9,
)


def judge(measures: Measures, *others: Measures, thresholds: Thresholds | None = None) -> Quality:
    return judge_quality(measures, others, thresholds or Thresholds())


def criterion(quality: Quality, level: QualityLevel, measure: str) -> Criterion:
    (found,) = (c for c in quality.criteria if (c.level, c.measure) == (level, measure))
    return found


class TestLevels:
    def test_poor_beats_all(self) -> None:
        """One poor criterion is enough, however good the rest is."""
        measures = replace(BEST, position_decay_ratio=0.49)

        assert Quality(POOR, ("position decay ratio 0.49 < 0.5",)) == replace(judge(measures), criteria=())

    def test_optimal(self) -> None:
        """All optimal criteria that can be judged hold, and are the reasons."""
        steady = replace(BEST, window="30s", span_seconds=30.0, mean_acceptance_length=3.4)

        assert Quality(
            OPTIMAL,
            (
                "mean acceptance length 3.50 > 2",
                "acceptance ratio 0.85 > 0.7",
                "position decay ratio 0.90 >= 0.75",
                "mean acceptance length deviation 0.10 <= 0.2",
            ),
        ) == replace(judge(BEST, steady), criteria=())

    def test_healthy(self) -> None:
        """All healthy criteria hold, and are the reasons."""
        assert Quality(
            HEALTHY,
            (
                "mean acceptance length 1.80 >= 1.5",
                "acceptance ratio 0.65 >= 0.6",
                "position 0 acceptance ratio 0.95 > 0.9",
                "last position acceptance ratio 0.30 > 0.2",
            ),
        ) == replace(judge(SOUND), criteria=())

    def test_fair(self) -> None:
        """Neither poor nor healthy; the reasons are what it misses of healthy."""
        measures = replace(SOUND, acceptance_ratio=0.55, position_acceptance_ratio=(0.8, 0.5, 0.3))

        assert Quality(
            FAIR,
            (
                "acceptance ratio 0.55, healthy needs >= 0.6",
                "position 0 acceptance ratio 0.80, healthy needs > 0.9",
            ),
        ) == replace(judge(measures), criteria=())

    def test_all_that_is_poor_is_said(self) -> None:
        """Every poor criterion that holds is a reason."""
        measures = derive("5m", increase(1000, [200, 50, 10]))

        assert judge(measures).reasons == (
            "mean acceptance length 1.26 < 1.3",
            "acceptance ratio 0.09 < 0.4",
            "position 0 acceptance ratio 0.20 < 0.7",
            "position decay ratio 0.22 < 0.5",
        )

    def test_the_levels(self) -> None:
        """The levels by the names under which they are exported."""
        assert [str(level) for level in QualityLevel] == ["poor", "fair", "healthy", "optimal"]


class TestBoundaries:
    """Where each comparison of the published rubric turns."""

    @pytest.mark.parametrize(
        ("change", "level"),
        [
            ({"mean_acceptance_length": 1.2999}, POOR),
            ({"mean_acceptance_length": 1.3}, FAIR),
            ({"acceptance_ratio": 0.3999}, POOR),
            ({"acceptance_ratio": 0.40}, FAIR),
            ({"position_acceptance_ratio": (0.6999, 0.5, 0.3)}, POOR),
            ({"position_acceptance_ratio": (0.70, 0.5, 0.3)}, FAIR),
            ({"position_decay_ratio": 0.4999}, POOR),
            ({"position_decay_ratio": 0.50}, HEALTHY),
            ({"mean_acceptance_length": 1.4999}, FAIR),
            ({"mean_acceptance_length": 1.5}, HEALTHY),
            ({"acceptance_ratio": 0.5999}, FAIR),
            ({"acceptance_ratio": 0.60}, HEALTHY),
            ({"position_acceptance_ratio": (0.90, 0.5, 0.3)}, FAIR),
            ({"position_acceptance_ratio": (0.9001, 0.5, 0.3)}, HEALTHY),
            ({"position_acceptance_ratio": (0.95, 0.5, 0.20)}, FAIR),
            ({"position_acceptance_ratio": (0.95, 0.5, 0.2001)}, HEALTHY),
        ],
    )
    def test_from_healthy(self, change: dict[str, Any], level: QualityLevel) -> None:
        """Poor is below, healthy from a length and a ratio on, and above for positions."""
        assert level is judge(replace(SOUND, **change)).level

    @pytest.mark.parametrize(
        ("change", "level"),
        [
            ({"mean_acceptance_length": 2.0}, HEALTHY),
            ({"mean_acceptance_length": 2.0001}, OPTIMAL),
            ({"acceptance_ratio": 0.70}, HEALTHY),
            ({"acceptance_ratio": 0.7001}, OPTIMAL),
            ({"position_decay_ratio": 0.7499}, HEALTHY),
            ({"position_decay_ratio": 0.75}, OPTIMAL),
        ],
    )
    def test_from_optimal(self, change: dict[str, Any], level: QualityLevel) -> None:
        """Optimal is above a length and a ratio, and from a smooth decline on."""
        assert level is judge(replace(BEST, **change)).level

    @pytest.mark.parametrize(
        ("other", "level"),
        [(3.0, OPTIMAL), (3.125, OPTIMAL), (2.875, OPTIMAL), (3.126, HEALTHY), (2.874, HEALTHY)],
    )
    def test_steady(self, other: float, level: QualityLevel) -> None:
        """Optimal is steady: another window may differ by the threshold, either way, and no more."""
        here = replace(BEST, mean_acceptance_length=3.0)
        there = replace(BEST, window="30s", span_seconds=30.0, mean_acceptance_length=other)
        thresholds = Thresholds(optimal_mean_acceptance_length_deviation=0.125)

        assert level is judge(here, there, thresholds=thresholds).level

    @pytest.mark.parametrize(("drafts", "level"), [(99, OPTIMAL), (100, HEALTHY)])
    def test_steadiness_needs_drafts(self, drafts: float, level: QualityLevel) -> None:
        """A window with too few drafts says nothing about steadiness."""
        there = replace(BEST, window="30s", span_seconds=30.0, mean_acceptance_length=2.0, drafts=drafts)

        assert level is judge(BEST, there).level

    def test_steadiness_needs_another_span(self) -> None:
        """Shortly after the start all windows hold the same samples: that they agree proves nothing."""
        same = replace(BEST, window="30s")
        found = criterion(judge(BEST, same), OPTIMAL, "mean_acceptance_length_deviation")

        assert (found.value, found.met) == (None, None)
        assert judge(BEST, same).level is OPTIMAL
        assert not any("deviation" in reason for reason in judge(BEST, same).reasons)

    def test_the_least_steady_window_counts(self) -> None:
        """Of several windows the one that differs most decides."""
        others = [
            replace(BEST, span_seconds=30.0 + i, mean_acceptance_length=length)
            for i, length in enumerate((3.5, 3.0, 3.6))
        ]

        assert criterion(judge(BEST, *others), OPTIMAL, "mean_acceptance_length_deviation").value == 0.5

    def test_the_thresholds_are_the_operators(self) -> None:
        """A changed threshold moves the level, and stands in the reasons."""
        quality = judge(SOUND, thresholds=Thresholds().with_values({"healthy_acceptance_ratio": 0.66}))

        assert (quality.level, quality.reasons) == (
            FAIR,
            ("acceptance ratio 0.65, healthy needs >= 0.66",),
        )


class TestShortDrafts:
    """Where drafts are shorter than K, deep positions are understated."""

    SHORT = replace(SOUND, mean_draft_length=2.0)
    NOTE = "drafts hold 2.0 of 3 tokens on average, so deep positions are understated"

    @pytest.mark.parametrize(
        ("level", "measure", "change"),
        [
            (POOR, "position_decay_ratio", {"position_decay_ratio": 0.3}),
            (HEALTHY, "last_position_acceptance_ratio", {"position_acceptance_ratio": (0.95, 0.5, 0.1)}),
            (OPTIMAL, "position_decay_ratio", {"position_decay_ratio": 0.6}),
        ],
    )
    def test_a_bad_deep_position_is_not_judged(
        self, level: QualityLevel, measure: str, change: dict[str, Any]
    ) -> None:
        """An unfavourable value may be the drafts' fault: it is left out, with the reason."""
        found = criterion(judge(replace(self.SHORT, **change)), level, measure)

        assert (found.met, found.note) == (None, self.NOTE)

    @pytest.mark.parametrize(
        ("level", "measure", "met"),
        [
            (POOR, "position_decay_ratio", False),
            (HEALTHY, "last_position_acceptance_ratio", True),
            (OPTIMAL, "position_decay_ratio", True),
        ],
    )
    def test_a_good_deep_position_is_believed(self, level: QualityLevel, measure: str, met: bool) -> None:
        """An understated value that passes would pass all the more."""
        found = criterion(judge(replace(BEST, mean_draft_length=2.0)), level, measure)

        assert (met, "") == (found.met, found.note)

    def test_a_steep_decline_is_not_poor(self) -> None:
        """A decline that short drafts make does not make the engine poor."""
        measures = replace(self.SHORT, position_decay_ratio=0.3, position_acceptance_ratio=(0.95, 0.3, 0.1))

        assert (HEALTHY, f"last position acceptance ratio not judged: {self.NOTE}") == (
            judge(measures).level,
            judge(measures).reasons[-1],
        )

    def test_the_totals_are_judged_all_the_same(self) -> None:
        """Length, ratio and position 0 do not depend on how long drafts are."""
        assert POOR is judge(replace(self.SHORT, acceptance_ratio=0.3)).level
        assert POOR is judge(replace(self.SHORT, position_acceptance_ratio=(0.6, 0.5, 0.3))).level

    @pytest.mark.parametrize(("length", "level"), [(2.85, POOR), (2.84, HEALTHY)])
    def test_how_short(self, length: float, level: QualityLevel) -> None:
        """Drafts of 95 % of K are taken for full ones."""
        assert level is judge(replace(SOUND, mean_draft_length=length, position_decay_ratio=0.4)).level


class TestMissingValues:
    def test_no_positions(self) -> None:
        """Without positions, length and ratio decide."""
        measures = replace(BEST, position_acceptance_ratio=(), position_decay_ratio=None)

        assert OPTIMAL is judge(measures).level

    def test_a_single_position(self) -> None:
        """K=1 has no decline; its only position is the first and the last."""
        measures = derive("5m", increase(1000, [950]))

        assert (
            judge(measures).level,
            criterion(judge(measures), POOR, "position_decay_ratio").met,
        ) == (HEALTHY, None)

    def test_a_missing_value_says_so(self) -> None:
        """A criterion without a value is shown as not judged."""
        found = criterion(judge(BEST), OPTIMAL, "mean_acceptance_length_deviation")

        assert (
            str(found) == "mean acceptance length deviation not judged: there is no such value in the window"
        )


class TestCriteria:
    def test_the_whole_rubric(self) -> None:
        """Every line of the published rubric is applied and kept, whatever the level."""
        quality = judge(SOUND)

        assert [(c.level, c.measure, c.comparison, c.threshold) for c in quality.criteria] == [
            (POOR, "mean_acceptance_length", "<", 1.3),
            (POOR, "acceptance_ratio", "<", 0.40),
            (POOR, "position_0_acceptance_ratio", "<", 0.70),
            (POOR, "position_decay_ratio", "<", 0.50),
            (HEALTHY, "mean_acceptance_length", ">=", 1.5),
            (HEALTHY, "acceptance_ratio", ">=", 0.60),
            (HEALTHY, "position_0_acceptance_ratio", ">", 0.90),
            (HEALTHY, "last_position_acceptance_ratio", ">", 0.20),
            (OPTIMAL, "mean_acceptance_length", ">", 2.0),
            (OPTIMAL, "acceptance_ratio", ">", 0.70),
            (OPTIMAL, "position_decay_ratio", ">=", 0.75),
            (OPTIMAL, "mean_acceptance_length_deviation", "<=", 0.2),
        ]

    @pytest.mark.parametrize(
        ("level", "value", "comparison", "text"),
        [
            (POOR, 0.35, "<", "acceptance ratio 0.35 < 0.4"),
            (POOR, 0.45, "<", "acceptance ratio 0.45, poor needs < 0.4"),
            (POOR, 0.4, "<", "acceptance ratio 0.40, poor needs < 0.4"),
            (HEALTHY, 0.45, ">", "acceptance ratio 0.45 > 0.4"),
            (HEALTHY, 0.35, ">", "acceptance ratio 0.35, healthy needs > 0.4"),
            (HEALTHY, 0.4, ">", "acceptance ratio 0.40, healthy needs > 0.4"),
            (HEALTHY, 0.4, ">=", "acceptance ratio 0.40 >= 0.4"),
            (HEALTHY, 0.35, ">=", "acceptance ratio 0.35, healthy needs >= 0.4"),
            (OPTIMAL, 0.4, "<=", "acceptance ratio 0.40 <= 0.4"),
            (OPTIMAL, 0.45, "<=", "acceptance ratio 0.45, optimal needs <= 0.4"),
            (HEALTHY, 0.396, ">=", "acceptance ratio 0.396, healthy needs >= 0.4"),
            (HEALTHY, 0.3996, ">=", "acceptance ratio 0.3996, healthy needs >= 0.4"),
            (HEALTHY, 0.4004, ">", "acceptance ratio 0.4004 > 0.4"),
            (POOR, 0.39999996, "<", "acceptance ratio 0.39999996 < 0.4"),
        ],
    )
    def test_text(self, level: QualityLevel, value: float, comparison: str, text: str) -> None:
        """A criterion is told as it turned out, with the digits that tell the value from the threshold."""
        met = {"<": value < 0.4, "<=": value <= 0.4, ">": value > 0.4, ">=": value >= 0.4}[comparison]

        assert text == str(Criterion(level, "acceptance_ratio", value, comparison, 0.4, met))

    @given(st.floats(-5, 5), st.integers(2, 8))
    def test_what_is_shown_bears_out_the_level(self, factor: float, digits: int) -> None:
        """A value just beside its threshold is never shown as if it lay on the other side, or on it."""
        ratio = round(0.6 + factor * 10**-digits, 8)
        quality = judge(replace(SOUND, acceptance_ratio=min(max(ratio, 0.41), 0.99)))
        found = criterion(quality, HEALTHY, "acceptance_ratio")
        shown = re.match(r"acceptance ratio ([\d.]+)( >= 0\.6|, healthy needs >= 0\.6)$", str(found))

        assert shown is not None
        assert found.met is (float(shown[1]) >= 0.6) is shown[2].startswith(" ")

    @given(drafts_of(4, least=1))
    def test_any_drafts_have_a_level_with_reasons(self, drafts: list[Draft]) -> None:
        """Whatever was drafted, there is one level, and something is said for it."""
        measures = derive("5m", delta(Sample(0, Counters(0, 0, 0, (), 0)), Sample(10, count(drafts, 4))))
        quality = judge(measures)

        assert quality.level in QualityLevel
        assert quality.reasons != ()
