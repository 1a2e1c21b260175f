"""Whether something has become worse: ratios of a run beside the committed ones. Pure.

Only ratios of things that were measured within one run are compared, so the machine
matters little; lower is better. Each has a tolerance of its own, by how much it differs
from run to run when nothing has changed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """What became of a ratio."""

    AS_EXPECTED = "as expected"
    IMPROVED = "better"
    REGRESSION = "REGRESSION"
    MISSING = "MISSING"
    UNKNOWN = "UNKNOWN"
    NOT_JUDGED = "not judged"

    @property
    def fails(self) -> bool:
        """Whether a run must not pass with it."""
        return self in (Status.REGRESSION, Status.MISSING, Status.UNKNOWN)


@dataclass(frozen=True)
class Expectation:
    """What a ratio is expected to be."""

    what: str  # over what
    value: float  # the ratio
    tolerance: float  # relative; beyond it the ratio has changed

    def status(self, measured: float) -> Status:
        """Tell what became of it; what is no number is worse than any."""
        change = measured / self.value - 1
        # Not `>`: a ratio that is not a number compares as false, and must fail.
        if not change <= self.tolerance:
            return Status.REGRESSION
        if change < -self.tolerance:
            return Status.IMPROVED
        return Status.AS_EXPECTED


@dataclass(frozen=True)
class Comparison:
    """A ratio beside what it is expected to be; one of both may be lacking."""

    name: str
    status: Status
    measured: float | None = None
    expected: Expectation | None = None


def parse(document: Mapping[str, Mapping[str, Any]]) -> dict[str, Expectation]:
    """Return the expectations of a document.

    Raises:
        ValueError: a value or a tolerance that nothing can be compared with.
    """
    expectations = {name: Expectation(**row) for name, row in document.items()}
    for name, expectation in expectations.items():
        if not (expectation.value > 0 and 0 < expectation.tolerance < 1):
            raise ValueError(
                f"{name}: a value above 0 and a tolerance between 0 and 1 are expected"
            )
    return expectations


def compare(
    ratios: Mapping[str, float | None],
    expected: Mapping[str, Expectation],
    measured: Iterable[str],
) -> list[Comparison]:
    """Compare ratios with what is expected of the sections that were measured.

    Their names are ``section.ratio``. One that the run cannot tell is ``None``; one of
    a `measured` section that is not there is missing.
    """
    sections = set(measured)
    rows = []
    # With --only the ratios of other sections are not missing.
    due = {name for name in expected if name.partition(".")[0] in sections}
    for name in sorted(due.union(ratios)):
        expectation = expected.get(name)
        ratio = ratios.get(name)
        if expectation is None:
            status = Status.UNKNOWN
        elif ratio is not None:
            status = expectation.status(ratio)
        elif name in ratios:
            status = Status.NOT_JUDGED
        else:
            status = Status.MISSING
        rows.append(Comparison(name, status, ratio, expectation))
    return rows


def shown(rows: Iterable[Comparison]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a table: what, found, expected, tolerance, status."""
    for row in rows:
        title = f"`{row.name}`"
        measured = ""
        expected = ""
        tolerance = ""
        status = str(row.status)
        if row.expected is not None:
            title = f"{title}: {row.expected.what}"
            expected = f"{row.expected.value:.4g}"
            tolerance = f"{row.expected.tolerance:.0%}"
        if row.measured is not None:
            measured = f"{row.measured:.4g}"
        if row.status.fails:
            status = f"**{status}**"
        yield title, measured, expected, tolerance, status
