"""Quality: how good is the acceptance, by the published rubric?

Every level has criteria. The level is `poor` if any poor criterion holds; else
`optimal` if all healthy and optimal ones hold; else `healthy` if all healthy ones hold;
else `fair`.

A criterion whose measure is understated is not judged, with a note: the decline over
positions and the last position are understated if drafts are shorter than K, because
the ratios divide by all drafts. An understated value that passes still counts.
"""

import operator
from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from ..config.thresholds import Thresholds
from ..measures.measures import Measures


class QualityLevel(StrEnum):
    """The levels of the rubric."""

    POOR = "poor"
    FAIR = "fair"
    HEALTHY = "healthy"
    OPTIMAL = "optimal"


class Criterion(Struct, frozen=True):
    """One line of the rubric, applied.

    Attributes:
        level: the level that it belongs to.
        measure: what is compared.
        value: the measured value, ``None`` where there is none.
        comparison: ``<``, ``<=``, ``>`` or ``>=``.
        threshold: what it is compared with.
        met: whether it holds; ``None`` where it could not be judged.
        note: why it could not be judged.
    """

    level: QualityLevel
    measure: str
    value: float | None
    comparison: str
    threshold: float
    met: bool | None
    note: str = ""

    def __str__(self) -> str:
        words = self.measure.replace("_", " ")
        if self.met is None:
            return f"{words} not judged: {self.note}"
        if self.met:
            return f"{words} {self._shown()} {self.comparison} {self.threshold:g}"
        return (
            f"{words} {self._shown()}, {self.level} needs {self.comparison} "
            f"{self.threshold:g}"
        )

    def _shown(self) -> str:
        """Return the value with enough digits to differ from the threshold."""
        value = self.value or 0.0
        compare = _COMPARE[self.comparison]
        digits = (
            n
            for n in range(2, 9)
            if compare(float(f"{value:.{n}f}"), self.threshold) is self.met
        )
        return f"{value:.{next(digits, 9)}f}"


class Quality(Struct, frozen=True):
    """The level of an engine's acceptance.

    Attributes:
        level: ``None`` unless the engine is active.
        reasons: the criteria that decided the level, in words.
        criteria: the whole rubric, applied.
    """

    level: QualityLevel | None = None
    reasons: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = ()


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: Measures that must be known for `healthy` and `optimal`.
_NEEDED = frozenset({"mean_acceptance_length", "acceptance_ratio"})


def judge_quality(
    measures: Measures, others: Sequence[Measures], thresholds: Thresholds
) -> Quality:
    """Judge the acceptance within a window with enough drafts; the `others` show
    whether it is steady.
    """
    criteria = tuple(_criteria(measures, others, thresholds))

    if measures.mean_acceptance_length is None and measures.acceptance_ratio is None:
        return Quality(
            None, ("neither acceptance length nor ratio is known",), criteria
        )

    def holds(level: QualityLevel) -> bool:
        """Return whether all criteria of a level hold; of the measures, length and
        ratio must be known.
        """
        return all(
            c.met or (c.met is None and c.measure not in _NEEDED)
            for c in criteria
            if c.level is level
        )

    if any(c.met for c in criteria if c.level is QualityLevel.POOR):
        level = QualityLevel.POOR
    elif holds(QualityLevel.HEALTHY) and holds(QualityLevel.OPTIMAL):
        level = QualityLevel.OPTIMAL
    elif holds(QualityLevel.HEALTHY):
        level = QualityLevel.HEALTHY
    else:
        level = QualityLevel.FAIR
    return Quality(level, _reasons(level, criteria), criteria)


def _reasons(level: QualityLevel, criteria: tuple[Criterion, ...]) -> tuple[str, ...]:
    """Return the criteria that decided the level; for `fair`, the criteria of `healthy`
    that fail.
    """
    if level is QualityLevel.FAIR:
        decisive = [
            c for c in criteria if c.level is QualityLevel.HEALTHY and c.met is not True
        ]
    elif level is QualityLevel.POOR:
        decisive = [c for c in criteria if c.level is level and c.met]
    else:
        decisive = [c for c in criteria if c.level is level and c.value is not None]
    return tuple(str(c) for c in decisive)


def _criteria(
    measures: Measures, others: Sequence[Measures], thresholds: Thresholds
) -> list[Criterion]:
    length = measures.mean_acceptance_length
    ratio = measures.acceptance_ratio
    positions = measures.position_acceptance_ratio
    decay = measures.position_decay_ratio
    first = positions[0] if positions else None
    last = positions[-1] if positions else None
    deviation = _deviation(measures, others, thresholds)
    k = len(positions)
    if measures.drafts_vary:
        varying = (
            f"drafts hold {measures.mean_draft_length:.1f} of {k} tokens on average, "
            "so deep positions are understated"
        )
    else:
        varying = ""
    poor = QualityLevel.POOR
    healthy = QualityLevel.HEALTHY
    optimal = QualityLevel.OPTIMAL
    t = thresholds
    length_name = "mean_acceptance_length"
    ratio_name = "acceptance_ratio"
    first_name = "position_0_acceptance_ratio"
    last_name = "last_position_acceptance_ratio"
    decay_name = "position_decay_ratio"
    deviation_name = "mean_acceptance_length_deviation"
    # level, measure, value, comparison, threshold, why the value might mislead
    rubric: list[tuple[QualityLevel, str, float | None, str, float, str]] = [
        (poor, length_name, length, "<", t.poor_mean_acceptance_length, ""),
        (poor, ratio_name, ratio, "<", t.poor_acceptance_ratio, ""),
        (poor, first_name, first, "<", t.poor_position_0_acceptance_ratio, ""),
        (poor, decay_name, decay, "<", t.poor_position_decay_ratio, varying),
        (healthy, length_name, length, ">=", t.healthy_mean_acceptance_length, ""),
        (healthy, ratio_name, ratio, ">=", t.healthy_acceptance_ratio, ""),
        (healthy, first_name, first, ">", t.healthy_position_0_acceptance_ratio, ""),
        (
            healthy,
            last_name,
            last,
            ">",
            t.healthy_last_position_acceptance_ratio,
            varying,
        ),
        (optimal, length_name, length, ">", t.optimal_mean_acceptance_length, ""),
        (optimal, ratio_name, ratio, ">", t.optimal_acceptance_ratio, ""),
        (optimal, decay_name, decay, ">=", t.optimal_position_decay_ratio, varying),
        (
            optimal,
            deviation_name,
            deviation,
            "<=",
            t.optimal_mean_acceptance_length_deviation,
            "",
        ),
    ]
    return [_apply(*row) for row in rubric]


def _apply(
    level: QualityLevel,
    measure: str,
    value: float | None,
    comparison: str,
    threshold: float,
    mistrust: str,
) -> Criterion:
    met = None
    note = "there is no such value in the window"
    if value is not None:
        met = _COMPARE[comparison](value, threshold)
        note = ""
        if mistrust and met is (level is QualityLevel.POOR):  # unfavourable
            met = None
            note = mistrust
    return Criterion(level, measure, value, comparison, threshold, met, note)


def _deviation(
    measures: Measures, others: Sequence[Measures], thresholds: Thresholds
) -> float | None:
    """Return the largest difference of the acceptance length between this window and
    another.

    Windows with the same samples, as shortly after the start, are left out.
    """
    here = measures.mean_acceptance_length
    lengths = [
        other.mean_acceptance_length
        for other in others
        if other.mean_acceptance_length is not None
        and (other.drafts or 0) >= thresholds.minimum_drafts
        and other.span_seconds != measures.span_seconds
    ]
    if here is None or not lengths:
        return None
    return max(abs(length - here) for length in lengths)
