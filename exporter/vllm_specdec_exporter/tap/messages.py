"""What the parsers tell of a connection's messages, handed on to its observer.

The names of the methods are those that `httptools` calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .observer import Observer


class _Head:
    """Collects a head."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._headers: dict[str, str] = {}

    def on_message_begin(self) -> None:
        """Begin anew."""
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")


class Requests(_Head):
    """Tells the observer of requests."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._path = b""

    def on_message_begin(self) -> None:
        """Begin anew."""
        super().on_message_begin()
        self._path = b""

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._path += url

    def on_headers_complete(self) -> None:
        """Take note of the end of the head."""
        parser = self._observer._requests
        method, upgrades = parser.get_method().decode("latin-1"), parser.should_upgrade()
        self._observer.request_begins(method, self._path.decode("latin-1"), self._headers, upgrades=upgrades)

    def on_body(self, data: bytes) -> None:
        """Take bytes of the body."""
        self._observer.request_data(data)

    def on_message_complete(self) -> None:
        """Take note of the end."""
        self._observer.request_ends()


class Answers(_Head):
    """Tells the observer of answers."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._status = 0

    def on_status(self, _reason: bytes) -> None:
        """Pass over what the status is called."""

    def on_headers_complete(self) -> None:
        """Take note of the end of the head."""
        parser = self._observer._answers
        self._status = parser.get_status_code() if parser is not None else 0
        self._observer.answer_begins(self._status, self._headers)

    def on_body(self, data: bytes) -> None:
        """Take bytes of the body."""
        self._observer.answer_data(data)

    def on_message_complete(self) -> None:
        """Take note of the end."""
        self._observer.answer_ends(self._status)
