"""One response of a server, of any engine: which one it is, and what it holds."""

import re
from collections import defaultdict
from collections.abc import Iterable

from ..exposition.recurring import RecurringText
from ..exposition.text import MalformedExposition, SampleLine, Selection, pieces
from .dialect import Dialect, Unrecognized, identify
from .latencies import read_latencies
from .normal_form import Arrangement, arrange, normalise
from .reading import EngineKey, Reading
from .tables import DIALECTS, ENGINES


class ReadingEmptiesError(Unrecognized):
    """The response is a queue that each request empties, so that no further one may be
    sent.
    """


#: Why responses without a known series are refused, by a pattern of what they have.
_REFUSED = {
    "(?m)^vllm_specdec_build_info": (
        "the metrics of an exporter, not of a server: give the server's address"
    )
}
_names: set[str] = set()
_histograms: set[str] = set()
for _dialect in DIALECTS:
    _names |= _dialect.names()
    _histograms |= _dialect.histogram_fields.keys()
for _engine in ENGINES:
    _REFUSED |= _engine.refused
_SELECTION = Selection(_names)
#: Histograms quadruple the lines to parse, so they are read only on demand.
_WITH_LATENCIES = Selection(_names | _histograms)
_EMPTIED = " ".join(filter(None, (engine.emptied_by_reading for engine in ENGINES)))


class Reader:
    """Reads the responses of one server, one after the other.

    What their names and labels say is kept from one to the next, as long as only values
    change.
    """

    def __init__(self) -> None:
        self._text = RecurringText()
        self._arrangement: Arrangement | None = None

    def read(
        self,
        body: bytes,
        content_type: str = "",
        *,
        latencies: bool = False,
        process: str = "",
    ) -> Reading:
        """Parse the next response, as `read` does."""
        _check_format(body, content_type.lower())
        lines = self._text.read(_selection(latencies=latencies), body)
        if self._arrangement is None or not self._text.recurs:
            self._arrangement = None
            self._arrangement = _arrangement(body, lines)
        return _normalised(self._arrangement, lines, process, latencies=latencies)


def read(
    body: bytes, content_type: str = "", *, latencies: bool = False, process: str = ""
) -> Reading:
    """Parse one response of a server in any dialect.

    Args:
        body: the body of the response.
        content_type: its Content-Type; OpenMetrics must end with ``# EOF``, otherwise
            it was truncated.
        latencies: whether to read the latency histograms as well.
        process: what tells this process of the server from others, if the response has
            it.

    Raises MalformedExposition for anything but an exposition, and Unrecognized for one
    without a series of a supported server or with series of several kinds, its subclass
    ReadingEmptiesError for a queue that reading empties.
    """
    _check_format(body, content_type.lower())
    lines = tuple(_selection(latencies=latencies).lines(body))
    arrangement = _arrangement(body, lines)
    return _normalised(arrangement, lines, process, latencies=latencies)


def _selection(*, latencies: bool) -> Selection:
    if latencies:
        return _WITH_LATENCIES
    return _SELECTION


def _arrangement(body: bytes, lines: tuple[SampleLine, ...]) -> Arrangement:
    if not lines:
        _refuse(body)
    return arrange(_only_dialect(lines), lines)


def _normalised(
    arrangement: Arrangement,
    lines: tuple[SampleLine, ...],
    process: str,
    *,
    latencies: bool,
) -> Reading:
    reading = normalise(arrangement, lines, process)
    if latencies:
        return read_latencies(arrangement.dialect, lines, reading)
    return reading


def _check_format(body: bytes, content_type: str) -> None:
    start = body[:256].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html")):
        raise MalformedExposition("an HTML page instead of metrics")
    if "json" in content_type and start.startswith(b"["):
        raise ReadingEmptiesError(_EMPTIED)
    # Only of the end: a copy of a response that is all blank would have its size.
    if "openmetrics" in content_type and not body[-256:].rstrip().endswith(b"# EOF"):
        raise MalformedExposition(
            "an OpenMetrics text without # EOF at the end: it was truncated"
        )


def _refuse(body: bytes) -> None:
    """Raise Unrecognized if it is known what a response without known series is."""
    for pattern, why in _REFUSED.items():
        compiled = re.compile(pattern.encode())
        if any(compiled.search(piece) for piece in pieces(body)):
            raise Unrecognized(why)


def _only_dialect(lines: tuple[SampleLine, ...]) -> Dialect:
    """Return the dialect of a response; Unrecognized without one, or if servers of
    several are in it.
    """
    names = {line.name for line in lines}
    possible = [dialect for dialect in DIALECTS if dialect.may_be(names)]
    recognised = _recognised(possible, names)
    if not recognised:
        raise Unrecognized(
            "no series of a known server; is this the /metrics of a supported server, "
            "and does the server run without --disable-log-stats?"
        )
    dialect = recognised[0]
    servers = {dialect.name}
    for candidate in recognised:
        # Dialects with the same prefixes are versions of one engine: the first counts.
        if candidate.prefixes != dialect.prefixes:
            servers.add(candidate.name)
    if len(servers) == 1 and len(possible) > 1:
        # Versions of one engine may also be beside each other, behind a gateway.
        for names_of_engine in _names_by_engine(dialect, lines).values():
            for version in _recognised(possible, names_of_engine)[:1]:
                servers.add(version.name)
    if len(servers) > 1:
        raise Unrecognized(
            f"several servers in one response ({', '.join(sorted(servers))}): poll "
            "each of them itself"
        )
    return dialect


def _recognised(dialects: Iterable[Dialect], names: set[str]) -> list[Dialect]:
    return [dialect for dialect in dialects if dialect.recognises(names)]


def _names_by_engine(
    dialect: Dialect, lines: Iterable[SampleLine]
) -> dict[EngineKey, set[str]]:
    parts = dialect.parts_in(lines)
    names: defaultdict[EngineKey, set[str]] = defaultdict(set)
    for line in lines:
        key, _ = identify(line.labels, parts)
        names[key].add(line.name)
    return names
