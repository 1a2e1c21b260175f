"""Series that every process of an engine prints alike: one of them is read."""

from collections.abc import Sequence

from ..exposition.text import Labels, SampleLine
from .dialect import LOAD, Dialect

_Series = tuple[str, Labels]  # the name, and the labels without those of ranks


def of_first_rank(dialect: Dialect, lines: Sequence[SampleLine]) -> Sequence[int]:
    """Return the indices of `lines`, with one of each set of series that differ only in
    their ranks: the lowest.

    Of a gauge by priority, the series without one is the total, so the others are left
    out. Of a counter it is one more class of requests.
    """
    if not dialect.ranks:
        return range(len(lines))
    lowest: dict[_Series, tuple[tuple[int, ...], int]] = {}
    totals: set[_Series] = set()
    duplicates: list[int] = []
    for index, line in enumerate(lines):
        by_name = dict(line.labels)
        rank = tuple(_number(by_name.pop(name, "")) for name in dialect.ranks)
        series = (line.name, tuple(by_name.items()))
        if series not in lowest or rank < lowest[series][0]:
            lowest[series] = rank, index
        elif rank == lowest[series][0]:
            duplicates.append(index)  # refused where all series of a response are read
        if by_name.get("priority") == "" and _is_gauge(dialect, line):
            totals.add(_without_priority(series))
    kept = []
    for series, (_, index) in lowest.items():
        is_total = ("priority", "") in series[1]
        if is_total or _without_priority(series) not in totals:
            kept.append(index)
    return kept + duplicates


def _number(rank: str) -> int:
    if rank.isascii() and rank.isdecimal():
        return int(rank)
    return 0


def _is_gauge(dialect: Dialect, line: SampleLine) -> bool:
    return line.name in dialect.fields and dialect.fields[line.name][0] in LOAD


def _without_priority(series: _Series) -> _Series:
    name, labels = series
    return name, tuple(pair for pair in labels if pair[0] != "priority")
