"""Quality: the published rubric, its boundaries, and the reasons that are given."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.builders import increase
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.explanation import explain_quality
from vllm_specdec_exporter.judgement.quality import (
    Criterion,
    Quality,
    QualityLevel,
    judge_quality,
)
from vllm_specdec_exporter.measures.measures import Measures, derive

POOR, FAIR, HEALTHY, OPTIMAL = QualityLevel
RUBRIC: Any = yaml.safe_load(Path(__file__).with_name("rubric.yml").read_text("utf-8"))

#: Exactly healthy: it meets every healthy criterion, and misses optimal by its
#: acceptance length.
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
BEST = replace(
    SOUND,
    acceptance_ratio=0.85,
    mean_acceptance_length=3.5,
    position_acceptance_ratio=(0.95, 0.85, 0.75),
    position_decay_ratio=0.9,
)


def judge(
    measures: Measures, *others: Measures, thresholds: Thresholds | None = None
) -> Quality:
    limits = thresholds or Thresholds()
    quality = judge_quality(measures, others, limits)
    return replace(quality, reasons=explain_quality(quality, measures, limits))


def criterion(quality: Quality, level: QualityLevel, measure: str) -> Criterion:
    (only,) = (c for c in quality.criteria if (c.level, c.measure) == (level, measure))
    return only


def test_a_level_has_its_reasons() -> None:
    """Poor: every poor criterion that holds; fair: what it misses of healthy; the
    others: all that hold.
    """
    steady = replace(BEST, window="30s", span_seconds=30.0, mean_acceptance_length=3.4)
    by_level = {
        POOR: judge(derive("5m", increase(1000, [200, 50, 10]))),
        FAIR: judge(
            replace(
                SOUND, acceptance_ratio=0.55, position_acceptance_ratio=(0.8, 0.5, 0.3)
            )
        ),
        HEALTHY: judge(SOUND),
        OPTIMAL: judge(BEST, steady),
    }
    assert {
        level: list(quality.reasons) for level, quality in by_level.items()
    } == RUBRIC["reasons"]
    assert [quality.level for quality in by_level.values()] == list(RUBRIC["reasons"])


class TestBoundaries:
    """Where each comparison of the published rubric turns."""

    @pytest.mark.parametrize(("base", "change", "level"), RUBRIC["levels"])
    def test_levels(self, base: str, change: dict[str, Any], level: str) -> None:
        changed = {
            name: tuple(v) if isinstance(v, list) else v for name, v in change.items()
        }
        assert (
            judge(replace({"sound": SOUND, "best": BEST}[base], **changed)).level
            == level
        )

    @pytest.mark.parametrize(
        ("known", "level", "unknown"),
        [
            ({}, None, ["mean acceptance length", "acceptance ratio"]),
            ({"mean_acceptance_length": 5.0}, None, ["acceptance ratio"]),
            ({"mean_acceptance_length": 1.1}, POOR, None),
            ({"acceptance_ratio": 0.99}, None, ["mean acceptance length"]),
            ({"acceptance_ratio": 0.3}, POOR, None),
        ],
        ids=["nothing", "long", "short", "high", "low"],
    )
    def test_what_is_not_known_is_not_fair(
        self, known: dict[str, float], level: str | None, unknown: list[str] | None
    ) -> None:
        """Of trees, drafted tokens and so the ratio are unknown: only poor is sure."""
        quality = judge(replace(Measures("5m", 300, 1000), **known))

        assert quality.level == level
        missing = [
            values_of(reason)["measure"]
            for reason in quality.reasons
            if name_of(reason) == "quality.not_judged"
        ]
        assert (missing or None) == unknown

    def test_another_window_may_differ_by_the_threshold_either_way(self) -> None:
        """Optimal is steady.

        The window that differs most decides; one with too few drafts says nothing.
        """
        here = replace(BEST, mean_acceptance_length=3.0)
        thresholds = Thresholds(optimal_mean_acceptance_length_deviation=0.125)
        levels = {
            3.0: OPTIMAL,
            3.125: OPTIMAL,
            2.875: OPTIMAL,
            3.126: HEALTHY,
            2.874: HEALTHY,
        }
        there = {
            length: replace(here, span_seconds=30.0, mean_acceptance_length=length)
            for length in levels
        }

        judged = {
            length: judge(here, window, thresholds=thresholds).level
            for length, window in there.items()
        }
        assert judged == levels
        deviation = criterion(
            judge(here, *there.values()), OPTIMAL, "mean_acceptance_length_deviation"
        )
        assert deviation.value == pytest.approx(0.126)
        few, enough = (replace(there[2.874], drafts=drafts) for drafts in (99, 100))
        levels_by_drafts = [
            judge(here, window, thresholds=thresholds).level for window in (few, enough)
        ]
        assert levels_by_drafts == [OPTIMAL, HEALTHY]

    def test_windows_that_hold_the_same_samples_prove_no_steadiness(self) -> None:
        """As shortly after the start."""
        quality = judge(BEST, replace(BEST, window="30s"))
        missing = criterion(quality, OPTIMAL, "mean_acceptance_length_deviation")

        assert (missing.value, missing.met, quality.level) == (None, None, OPTIMAL)
        assert name_of(missing.reason) == "quality.not_judged"
        assert name_of(missing.note) == "quality.no_value"
        measures = [values_of(reason)["measure"] for reason in quality.reasons]
        assert "mean acceptance length deviation" not in measures

    def test_a_changed_threshold_moves_the_level_and_stands_in_the_reasons(
        self,
    ) -> None:
        quality = judge(
            SOUND,
            thresholds=Thresholds().with_values({"healthy_acceptance_ratio": 0.66}),
        )

        assert quality.level is FAIR
        (reason,) = quality.reasons
        assert name_of(reason) == "quality.missed"
        assert values_of(reason) == {
            "measure": "acceptance ratio",
            "value": "0.65",
            "level": HEALTHY,
            "comparison": ">=",
            "threshold": 0.66,
        }

    def test_k_1_has_no_decline_and_its_only_position_is_the_first_and_the_last(
        self,
    ) -> None:
        quality = judge(derive("5m", increase(1000, [950])))

        assert quality.level == HEALTHY
        assert criterion(quality, POOR, "position_decay_ratio").met is None


@pytest.mark.parametrize(
    ("level", "measure", "change", "met_at_best"),
    [
        (POOR, "position_decay_ratio", {"position_decay_ratio": 0.3}, False),
        (
            HEALTHY,
            "last_position_acceptance_ratio",
            {"position_acceptance_ratio": (0.95, 0.5, 0.1)},
            True,
        ),
        (OPTIMAL, "position_decay_ratio", {"position_decay_ratio": 0.6}, True),
    ],
)
def test_a_bad_deep_position_is_not_judged_and_a_good_one_is_believed(
    level: QualityLevel, measure: str, change: dict[str, Any], met_at_best: bool
) -> None:
    """It may be the drafts' fault; an understated value that passes would pass all the
    more.
    """
    bad, good = (
        criterion(judge(replace(base, mean_draft_length=2.0)), level, measure)
        for base in (replace(SOUND, **change), BEST)
    )

    assert (bad.met, name_of(bad.note)) == (None, "quality.drafts_vary")
    assert values_of(bad.note) == {"drafted": 2.0, "k": 3}
    assert (good.met, good.note) == (met_at_best, "")


@given(st.floats(-5, 5), st.integers(2, 8))
def test_what_is_shown_bears_out_the_level(factor: float, digits: int) -> None:
    """A value just beside its threshold is never shown as if it lay on the other side,
    or on it.
    """
    ratio = round(0.6 + factor * 10**-digits, 8)
    quality = judge(replace(SOUND, acceptance_ratio=min(max(ratio, 0.41), 0.99)))
    acceptance = criterion(quality, HEALTHY, "acceptance_ratio")
    shown = float(str(values_of(acceptance.reason)["value"]))

    assert acceptance.met is (shown >= 0.6)
    assert acceptance.met is (name_of(acceptance.reason) == "quality.met")
