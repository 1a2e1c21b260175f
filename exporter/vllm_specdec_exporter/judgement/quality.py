"""Quality: how good is the acceptance, by the published rubric?

Every level has criteria. The level is `poor` if any poor criterion holds; else
`optimal` if all healthy and optimal ones hold; else `healthy` if all healthy ones hold;
else `fair`. Where acceptance length or ratio is not known, as the ratio of trees, only
`poor` can be told.

A criterion whose measure is understated is not judged, with a note: the decline over
positions and the last position are understated if drafts are shorter than K, because
the ratios divide by all drafts. An understated value that passes still counts.
"""

import operator
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from ..config.thresholds import Thresholds
from ..measures.measures import Measures
from .messages import Message, message


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

    @property
    def lacks_value(self) -> bool:
        """Whether a level above `poor` needs its value, and there is none."""
        return self.value is None and self.measure in _NEEDED

    @property
    def reason(self) -> Message:
        """The criterion and whether it holds, as a reason for a level."""
        measure = self.measure.replace("_", " ")
        if self.met is None:
            return message("quality.not_judged", measure=measure, note=self.note)
        return message(
            "quality.met" if self.met else "quality.missed",
            measure=measure,
            value=self._shown(),
            level=self.level,
            comparison=self.comparison,
            threshold=self.threshold,
        )

    def _shown(self) -> str:
        """Return the value with enough digits to differ from the threshold."""
        compare = _COMPARE[self.comparison]
        for digits in range(2, 9):
            shown = f"{self.value or 0.0:.{digits}f}"
            if compare(float(shown), self.threshold) is self.met:
                return shown
        return f"{self.value or 0.0:.9f}"


class Quality(Struct, frozen=True):
    """The level of an engine's acceptance.

    Attributes:
        level: ``None`` unless the engine is active, and where it is not known.
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

#: Measures that must be known for a level above `poor`.
_NEEDED = frozenset({"mean_acceptance_length", "acceptance_ratio"})


class _Line(NamedTuple):
    """A line of the rubric: how a measure compares with the threshold of a level."""

    level: QualityLevel
    measure: str
    comparison: str
    threshold: str  # its name


def _line(level: QualityLevel, measure: str, comparison: str) -> _Line:
    return _Line(level, measure, comparison, f"{level}_{measure}")


_RUBRIC = (
    _line(QualityLevel.POOR, "mean_acceptance_length", "<"),
    _line(QualityLevel.POOR, "acceptance_ratio", "<"),
    _line(QualityLevel.POOR, "position_0_acceptance_ratio", "<"),
    _line(QualityLevel.POOR, "position_decay_ratio", "<"),
    _line(QualityLevel.HEALTHY, "mean_acceptance_length", ">="),
    _line(QualityLevel.HEALTHY, "acceptance_ratio", ">="),
    _line(QualityLevel.HEALTHY, "position_0_acceptance_ratio", ">"),
    _line(QualityLevel.HEALTHY, "last_position_acceptance_ratio", ">"),
    _line(QualityLevel.OPTIMAL, "mean_acceptance_length", ">"),
    _line(QualityLevel.OPTIMAL, "acceptance_ratio", ">"),
    _line(QualityLevel.OPTIMAL, "position_decay_ratio", ">="),
    _line(QualityLevel.OPTIMAL, "mean_acceptance_length_deviation", "<="),
)
#: Measures that are understated if drafts are shorter than K.
_UNDERSTATED = frozenset({"position_decay_ratio", "last_position_acceptance_ratio"})


def judge_quality(
    measures: Measures, other_windows: Sequence[Measures], thresholds: Thresholds
) -> Quality:
    """Judge the acceptance within a window, without the reasons; `other_windows` show
    whether it is steady.

    There is no level with fewer drafts than the minimum, as of a slow engine: it has no
    interval that would say how little they prove.
    """
    criteria = _apply_rubric(measures, other_windows, thresholds)
    if (measures.drafts or 0.0) < thresholds.minimum_drafts:
        return Quality(criteria=criteria)
    level = _level(criteria)
    if level is not QualityLevel.POOR and any(c.lacks_value for c in criteria):
        return Quality(criteria=criteria)
    return Quality(level, criteria=criteria)


def decisive(level: QualityLevel, criteria: Sequence[Criterion]) -> list[Criterion]:
    """Return the criteria that decided the level; for `fair`, the criteria of `healthy`
    that fail.
    """
    if level is QualityLevel.FAIR:
        healthy = QualityLevel.HEALTHY
        return [c for c in criteria if c.level is healthy and c.met is not True]
    if level is QualityLevel.POOR:
        return [c for c in criteria if c.level is level and c.met]
    return [c for c in criteria if c.level is level and c.value is not None]


def _level(criteria: Sequence[Criterion]) -> QualityLevel:
    if any(c.met for c in criteria if c.level is QualityLevel.POOR):
        return QualityLevel.POOR
    if not _holds(QualityLevel.HEALTHY, criteria):
        return QualityLevel.FAIR
    if _holds(QualityLevel.OPTIMAL, criteria):
        return QualityLevel.OPTIMAL
    return QualityLevel.HEALTHY


def _holds(level: QualityLevel, criteria: Sequence[Criterion]) -> bool:
    """Return whether all criteria of a level hold that can be judged."""
    return all(c.met is not False for c in criteria if c.level is level)


def _apply_rubric(
    measures: Measures, other_windows: Sequence[Measures], thresholds: Thresholds
) -> tuple[Criterion, ...]:
    positions = measures.position_acceptance_ratio
    values = {
        "mean_acceptance_length": measures.mean_acceptance_length,
        "acceptance_ratio": measures.acceptance_ratio,
        "position_0_acceptance_ratio": positions[0] if positions else None,
        "last_position_acceptance_ratio": positions[-1] if positions else None,
        "position_decay_ratio": measures.position_decay_ratio,
        "mean_acceptance_length_deviation": _deviation(
            measures, other_windows, thresholds
        ),
    }
    understated = _UNDERSTATED if measures.drafts_vary else frozenset()
    criteria = []
    for line in _RUBRIC:
        value = values[line.measure]
        threshold = getattr(thresholds, line.threshold)
        met = None
        note = ""
        if value is None:
            note = message("quality.no_value")
        else:
            met = _COMPARE[line.comparison](value, threshold)
            # An understated value that passes would pass all the more.
            unfavourable = met is (line.level is QualityLevel.POOR)
            if unfavourable and line.measure in understated:
                met = None
                note = message(
                    "quality.drafts_vary",
                    drafted=measures.mean_draft_length,
                    k=len(positions),
                )
        criteria.append(
            Criterion(
                level=line.level,
                measure=line.measure,
                value=value,
                comparison=line.comparison,
                threshold=threshold,
                met=met,
                note=note,
            )
        )
    return tuple(criteria)


def _deviation(
    measures: Measures, other_windows: Sequence[Measures], thresholds: Thresholds
) -> float | None:
    """Return the largest difference of the acceptance length between this window and
    another.

    Windows with the same samples, as shortly after the start, are left out.
    """
    length = measures.mean_acceptance_length
    if length is None:
        return None
    deviations = [
        abs(window.mean_acceptance_length - length)
        for window in other_windows
        if window.mean_acceptance_length is not None
        and (window.drafts or 0) >= thresholds.minimum_drafts
        and window.span_seconds != measures.span_seconds
    ]
    return max(deviations, default=None)
