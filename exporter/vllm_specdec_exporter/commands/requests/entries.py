"""The entries of a file: JSON documents, the items of JSON arrays, and event streams.

Documents follow each other, on one line each or on several. Gzipped files are decompressed.
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

#: Maximum size of a line in bytes.
MAX_LINE = 64 * 1024 * 1024
#: Maximum size of a document of several lines in bytes.
MAX_DOCUMENT = 512 * 1024 * 1024

#: Places that are listed for each reason.
_MOST_PLACES = 3
#: Maximum number of reasons; further ones are counted together.
_MOST_REASONS = 20

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_OTHER = "other reasons"

_JSON = json.JSONDecoder()
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SPACE = re.compile(r"[ \t\r\n]*")


class FileLine(NamedTuple):
    """A line and its number, from 1; ``None`` for a line that is too long."""

    number: int
    text: bytes | None


class FileEntry(NamedTuple):
    """An entry and its place in the file; ``None`` for a line that is too long."""

    place: str
    body: bytes | None


def lines(file: BinaryIO) -> Iterator[FileLine]:
    """Yield the lines of a buffered file that are not blank; OSError if it cannot be read to its end."""
    if file.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:  # type: ignore[attr-defined]
        file = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
    number = 0
    try:
        while text := file.readline(MAX_LINE + 1):
            number += 1
            if len(text) > MAX_LINE:
                while text and not text.endswith(b"\n"):
                    text = file.readline(MAX_LINE)
                yield FileLine(number, None)
                continue
            text = (text.removeprefix(_BOM) if number == 1 else text).strip()
            if text:
                yield FileLine(number, text)
    except (EOFError, zlib.error) as error:
        raise OSError(f"damaged behind line {number}: {error}") from error


def entries(found: Iterable[FileLine]) -> Iterator[FileEntry]:
    """Yield JSON documents, items of arrays, event streams, or else lines."""
    events: list[bytes] = []
    begin = ""
    for place, text in _documents(found):
        if text is not None and EVENT_LINE.match(text):
            begin = begin if events else place
            events.append(text)
            if text.startswith(b"data:") and text.removeprefix(b"data:").strip() == _DONE:
                yield FileEntry(begin, _join(events))
                events = []
        else:
            if events:
                yield FileEntry(begin, _join(events))
                events = []
            yield FileEntry(place, text)
    if events:
        yield FileEntry(begin, _join(events))


def _documents(found: Iterable[FileLine]) -> Iterator[FileEntry]:
    """Yield lines; for documents on several lines, several on one line, and arrays, yield their documents.

    A document ends with its last closing bracket. If brackets never close, or do not contain documents, each
    line is an entry: most likely one of them is truncated.
    """
    held: list[FileLine] = []
    depth = size = 0
    for line in found:
        if not held and not _may_continue(line.text):
            yield _line_entry(line)
            continue
        held.append(line)
        depth, size = depth + _depth(line.text or b""), size + len(line.text or b"")
        if depth <= 0 or line.text is None or size > MAX_DOCUMENT:
            yield from _documents_in(held) if depth <= 0 and line.text is not None else map(_line_entry, held)
            held, depth, size = [], 0, 0
    yield from map(_line_entry, held)


def _line_entry(line: FileLine) -> FileEntry:
    return FileEntry(f"line {line.number}", line.text)


def _may_continue(text: bytes | None) -> bool:
    """Return whether a line begins with a bracket but is not one JSON object."""
    return text is not None and text[:1] in (b"[", b"{") and not _is_object(text)


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _depth(text: bytes) -> int:
    """Return the opening minus the closing brackets of a line; JSON strings never span lines."""
    bare = _TEXT.sub(b"", text)
    return sum(map(bare.count, (b"{", b"["))) - sum(map(bare.count, (b"}", b"]")))


def _documents_in(held: Sequence[FileLine]) -> Iterator[FileEntry]:
    """Yield the documents in joined lines, and the items of arrays; the lines if they are no documents."""
    whole = b"\n".join(line.text or b"" for line in held)
    begins = list(accumulate((len(line.text or b"") + 1 for line in held), initial=0))
    found: list[FileEntry] = []
    try:
        for at, body in _split(whole):
            number = held[bisect_right(begins, at) - 1].number
            if body.startswith(b"["):
                where = "" if number == 1 else f"line {number}, "
                items = msgspec.json.decode(body, type=list[msgspec.Raw])
                found += (
                    FileEntry(f"{where}item {place}", bytes(item)) for place, item in enumerate(items, 1)
                )
            else:
                found.append(FileEntry(f"line {number}", body))
    except (ValueError, RecursionError):
        return map(_line_entry, held)
    return iter(found)


def _split(whole: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield concatenated documents, each with its offset in bytes.

    ValueError if there is something else, RecursionError if a document is nested too deeply.
    """
    try:
        msgspec.json.decode(whole, type=msgspec.Raw)  # ten times faster for a single document
    except ValueError:
        text, at = whole.decode("latin-1"), 0  # one character per byte keeps offsets
        while at < len(text):
            _, end = _JSON.raw_decode(text, at)
            yield at, whole[at:end]
            space = _SPACE.match(text, end)
            at = space.end() if space else end
    else:
        yield 0, whole


def _join(events: list[bytes]) -> bytes:
    """Return the event stream of lines, with the empty lines between events: each `data` line is one."""
    return b"".join(line + (b"\n\n" if line.startswith(b"data:") else b"\n") for line in events)


@dataclass(slots=True)
class UnusedEntries:
    """How many entries could not be used for one reason, and the places of the first ones."""

    count: int = 0
    places: list[str] = field(default_factory=list)


class Recording:
    """Reads files of recorded requests, and counts the entries that could not be used."""

    def __init__(self, classification: Classification) -> None:
        self._reader = EntryReader(classification)
        self.entries: Counter[str] = Counter()  # their number by file
        self.unused: dict[str, UnusedEntries] = {}  # those not used, or not completely, by reason

    def read(self, name: str, found: Iterable[FileLine]) -> Iterator[tuple[str, Observation]]:
        """Yield the observations of a file, each with its place; `name` is empty for the only file."""
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
        """Count the batch requests without an answer."""
        if self._reader.unanswered:
            found = self.unused.setdefault("a request of a batch without its answer", UnusedEntries())
            found.count += self._reader.unanswered

    def _note(self, reason: str, place: str) -> None:
        if reason not in self.unused and len(self.unused) >= _MOST_REASONS:
            reason = _OTHER
        found = self.unused.setdefault(reason, UnusedEntries())
        found.count += 1
        if len(found.places) < _MOST_PLACES:
            found.places.append(place)
