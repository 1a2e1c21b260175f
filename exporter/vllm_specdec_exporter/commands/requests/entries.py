"""Entries of files: a document of JSON each, an item of an array each, or a stream of events each.

Documents are on a line each, or written out on many, one behind the other. Gzip is undone.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from .recorded import EVENT_LINE, EntryError, EntryReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...requests.grouping import Classification
    from ...requests.observation import Observation

#: Bytes that a line may have; with detailed records, the answer to a long request has about one.
MAX_LINE = 64 * 1024 * 1024
#: Bytes that a document of several lines may have.
MAX_DOCUMENT = 512 * 1024 * 1024

#: Places that are named of all entries that fail alike.
_MOST_PLACES = 3
#: Reasons that are told apart.
_MOST_REASONS = 20

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_OTHER = "other reasons"

_JSON = json.JSONDecoder()
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SPACE = re.compile(r"[ \t\r\n]*")


class Line(NamedTuple):
    """A line with its number, from 1 up; ``None`` stands for one that is too long."""

    number: int
    text: bytes | None


class Entry(NamedTuple):
    """What is to be read as one, and where it stands; ``None`` as in `Line`."""

    place: str
    body: bytes | None


def lines(file: BinaryIO) -> Iterator[Line]:
    """Yield the lines of a file that are not blank.

    Args:
        file: with a `peek`, as all that are opened with a buffer have.

    Raises:
        OSError: it cannot be read, or not to its end.
    """
    if file.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:  # type: ignore[attr-defined]
        file = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
    number = 0
    try:
        while text := file.readline(MAX_LINE + 1):
            number += 1
            if len(text) > MAX_LINE:
                while text and not text.endswith(b"\n"):
                    text = file.readline(MAX_LINE)
                yield Line(number, None)
                continue
            text = (text.removeprefix(_BOM) if number == 1 else text).strip()
            if text:
                yield Line(number, text)
    except (EOFError, zlib.error) as error:
        raise OSError(f"damaged behind line {number}: {error}") from error


def entries(found: Iterable[Line]) -> Iterator[Entry]:
    """Yield what is to be read as one: documents of JSON, items of arrays, streams of events, or lines."""
    events: list[bytes] = []
    begin = ""
    for place, text in _documents(found):
        if text is not None and EVENT_LINE.match(text):
            begin = begin if events else place
            events.append(text)
            if text.startswith(b"data:") and text.removeprefix(b"data:").strip() == _DONE:
                yield Entry(begin, _joined(events))
                events = []
        else:
            if events:
                yield Entry(begin, _joined(events))
                events = []
            yield Entry(place, text)
    if events:
        yield Entry(begin, _joined(events))


def _documents(found: Iterable[Line]) -> Iterator[Entry]:
    """Yield lines, but of documents on several lines, several on one line, and arrays what they hold.

    A document ends where its brackets do. Where they never do, or hold no documents, its lines stand for
    themselves: most likely one of them is cut off, and the others are fine.
    """
    held: list[Line] = []
    depth = size = 0
    for line in found:
        if not held and not _opens(line.text):
            yield _alone(line)
            continue
        held.append(line)
        depth, size = depth + _depth(line.text or b""), size + len(line.text or b"")
        if depth <= 0 or line.text is None or size > MAX_DOCUMENT:
            yield from _within(held) if depth <= 0 and line.text is not None else map(_alone, held)
            held, depth, size = [], 0, 0
    yield from map(_alone, held)


def _alone(line: Line) -> Entry:
    return Entry(f"line {line.number}", line.text)


def _opens(text: bytes | None) -> bool:
    """Tell whether more than one object may begin here, or less."""
    return text is not None and text[:1] in (b"[", b"{") and not _is_object(text)


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _depth(text: bytes) -> int:
    """Return how many more brackets a line opens than it closes; no text of JSON goes on behind a line."""
    bare = _TEXT.sub(b"", text)
    return sum(map(bare.count, (b"{", b"["))) - sum(map(bare.count, (b"}", b"]")))


def _within(held: Sequence[Line]) -> Iterator[Entry]:
    """Yield the documents that lines hold together, of arrays the items; the lines where they hold none."""
    whole = b"\n".join(line.text or b"" for line in held)
    begins = list(accumulate((len(line.text or b"") + 1 for line in held), initial=0))
    found: list[Entry] = []
    try:
        for at, body in _apart(whole):
            number = held[bisect_right(begins, at) - 1].number
            if body.startswith(b"["):
                where = "" if number == 1 else f"line {number}, "
                items = msgspec.json.decode(body, type=list[msgspec.Raw])
                found += (Entry(f"{where}item {place}", bytes(item)) for place, item in enumerate(items, 1))
            else:
                found.append(Entry(f"line {number}", body))
    except (ValueError, RecursionError):
        return map(_alone, held)
    return iter(found)


def _apart(whole: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the documents that stand one behind the other, each with its place in bytes.

    Raises:
        ValueError: something else stands there.
        RecursionError: too deep a document.
    """
    try:
        msgspec.json.decode(whole, type=msgspec.Raw)  # which takes a tenth of the time
    except ValueError:
        text, at = whole.decode("latin-1"), 0  # a character for each byte: brackets are where they are
        while at < len(text):
            _, end = _JSON.raw_decode(text, at)
            yield at, whole[at:end]
            space = _SPACE.match(text, end)
            at = space.end() if space else end
    else:
        yield 0, whole


def _joined(events: list[bytes]) -> bytes:
    """Return a stream again, each event with its empty line: a `data` line is one in these APIs."""
    return b"".join(line + (b"\n\n" if line.startswith(b"data:") else b"\n") for line in events)


@dataclass(slots=True)
class Unusable:
    """Entries that could not be used, all for one reason.

    Attributes:
        count: how many.
        places: where the first of them stand.
    """

    count: int = 0
    places: list[str] = field(default_factory=list)


class Recording:
    """Reads files of recorded requests, and takes down what could not be used.

    Args:
        classification: how requests are classified.

    Attributes:
        entries: how many there were.
        unusable: those that could not be used, or not wholly, by reason.
    """

    def __init__(self, classification: Classification) -> None:
        self._reader = EntryReader(classification)
        self.entries: Counter[str] = Counter()
        self.unusable: dict[str, Unusable] = {}

    def read(self, name: str, found: Iterable[Line]) -> Iterator[tuple[str, Observation]]:
        """Yield what is to be observed of a file, each with its place.

        Args:
            name: what to call the file in front of a place; empty for the only one.
            found: its lines.
        """
        for entry in entries(found):
            self.entries[name] += 1
            place = f"{name}, {entry.place}" if name else entry.place
            try:
                if entry.body is None:
                    raise EntryError("too long a line")
                observations = self._reader.read(entry.body)
            except EntryError as error:
                self._note(str(error), place)
                observations = error.observations
            for observation in observations:
                yield place, observation

    def end(self) -> None:
        """Take down what never came: answers to the requests of batches."""
        if self._reader.unanswered:
            found = self.unusable.setdefault("a request of a batch without its answer", Unusable())
            found.count += self._reader.unanswered

    def _note(self, reason: str, place: str) -> None:
        if reason not in self.unusable and len(self.unusable) >= _MOST_REASONS:
            reason = _OTHER
        found = self.unusable.setdefault(reason, Unusable())
        found.count += 1
        if len(found.places) < _MOST_PLACES:
            found.places.append(place)
