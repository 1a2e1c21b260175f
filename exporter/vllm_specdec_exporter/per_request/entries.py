"""Entries of files: a line each, an item of a JSON array each, or a stream of events each. Gzip is undone."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from .recorded import EVENT_LINE, EntryError, EntryReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .classification import Classification
    from .observation import Observation

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
        msg = f"damaged behind line {number}: {error}"
        raise OSError(msg) from error


def entries(found: Iterable[Line]) -> Iterator[Entry]:
    """Yield what is to be read as one: lines, streams of events, or what is in a document of JSON."""
    rest = iter(found)
    first = next(rest, None)
    if first is None:
        return
    if first.text is not None and first.text[:1] in (b"[", b"{") and not _is_object(first.text):
        held, size = [first], len(first.text)
        for line in rest:
            held.append(line)
            size += len(line.text or b"")
            if line.text is None or size > MAX_DOCUMENT:
                break
        else:
            items = _items(b"\n".join(line.text or b"" for line in held))
            if items is not None:
                yield from items
                return
        rest = chain(held[1:], rest)
        first = held[0]
    yield from _by_line(chain((first,), rest))


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _items(document: bytes) -> list[Entry] | None:
    """Return the items of an array, or the one object; ``None`` where it is neither."""
    try:
        items = msgspec.json.decode(document, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [Entry("the document", document)] if _is_object(document) else None
    return [Entry(f"item {number}", bytes(item)) for number, item in enumerate(items, 1)]


def _by_line(found: Iterable[Line]) -> Iterator[Entry]:
    events: list[bytes] = []
    begin = 0
    for number, text in found:
        if text is not None and EVENT_LINE.match(text):
            begin = begin if events else number
            events.append(text)
            if text.startswith(b"data:") and text.removeprefix(b"data:").strip() == _DONE:
                yield Entry(f"line {begin}", _joined(events))
                events = []
        else:
            if events:
                yield Entry(f"line {begin}", _joined(events))
                events = []
            yield Entry(f"line {number}", text)
    if events:
        yield Entry(f"line {begin}", _joined(events))


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
                    msg = "too long a line"
                    raise EntryError(msg)
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
