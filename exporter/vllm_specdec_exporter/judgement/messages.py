"""Messages: the sentences of judgement, each a name and values. Their texts:
`messages.toml`.

Judgement decides by codes and numbers, and names a message for each decision; no other
module of this room contains a sentence.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from ..config.tables import read_table


class Message(str):
    """A sentence, and the name and values that it was made from.

    It is a `str`, so that publishers, and programs that read a snapshot, need not know
    this type.
    """

    __slots__ = ("name", "values")

    name: str  # its table and key in `messages.toml`, such as ``activity.idle``
    values: Mapping[str, object]  # by the names that stand in braces in the text

    def __new__(
        cls, text: str, name: str = "", values: Mapping[str, object] | None = None
    ) -> Self:
        """Return the sentence `text`; without name and values, one of no entry."""
        # They have defaults because copies are made from the text alone.
        sentence = super().__new__(cls, text)
        sentence.name = name
        sentence.values = values or {}
        return sentence


def message(name: str, own: str = "", /, **values: object) -> Message:
    """Return the message of this name with these values; KeyError if it or one of them
    is missing.

    `own` is the text that an engine has instead of that for all engines, if any.
    """
    return Message((own or _TEXTS[name]).format_map(values), name, values)


def name_of(text: str) -> str:
    """Return the name of a message; empty for a text that was none, or was read from
    JSON.
    """
    return getattr(text, "name", "")


def encode_message(value: object) -> str:
    """Return a message as the plain text that msgspec encodes: its hook for types that
    it does not know, TypeError for any other.
    """
    if isinstance(value, Message):
        return str(value)
    raise TypeError(f"objects of type {type(value).__name__} have no JSON")


def _texts(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the text of every entry of a table and those in it."""
    for key, entry in table.items():
        if isinstance(entry, str):
            yield prefix + key, entry
        else:
            yield from _texts(entry, f"{prefix}{key}.")


_TEXTS = dict(_texts(read_table(__file__, "messages.toml")))
