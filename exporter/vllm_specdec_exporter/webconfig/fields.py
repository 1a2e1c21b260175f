"""Fields: values of the document's sections, or an error that names the place and what is allowed. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

#: As YAML 1.1 has them.
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class WebConfigError(ValueError):
    """A web configuration that cannot be used. The message is one line that names what to fix."""


def mapping(
    value: object,
    where: str,
    known: Collection[str] | None,
    inline: Mapping[str, str] | None = None,
) -> Mapping[str, object]:
    """Return a section, empty where it is left out.

    Args:
        value: what the document has there.
        where: its place, for errors.
        known: the settings it may have; ``None`` for any.
        inline: settings of the format that are not read here, and which to use instead.

    Raises:
        WebConfigError: no section, or something in it that is no setting.
    """
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        msg = f"{where}: settings are expected, one `name: value` a line"
        raise WebConfigError(msg)
    prefix = "" if where == "the file" else f"{where}."
    for name in value:
        shown = f"{prefix}{name if str(name).isprintable() else quote(str(name))}"
        if inline and name in inline:
            msg = (
                f"{shown}: not read from within the file; put it into a file, and name that as {inline[name]}"
            )
            raise WebConfigError(msg)
        if not prefix and name == "rate_limit":
            msg = f"{shown}: not supported; an answer here costs little and never waits for vLLM"
            raise WebConfigError(msg)
        if known is not None and name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            msg = f"{shown}: no such setting; {hint}"
            raise WebConfigError(msg)
    return cast("Mapping[str, object]", value)


def text_of(section: Mapping[str, object], where: str, key: str = "") -> str:
    """Return the text at a place, empty where it is left out. `key` is the place's last part."""
    value = section.get(key or where.rpartition(".")[2])
    if value is None:
        return ""
    if not isinstance(value, str):
        msg = f"{where}: one text is expected"
        raise WebConfigError(msg)
    return value


def list_of(section: Mapping[str, object], where: str) -> list[str]:
    """Return the texts at a place, none where it is left out."""
    value = section.get(where.rpartition(".")[2])
    if value is None or value == "":
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        msg = f"{where}: a list of texts is expected"
        raise WebConfigError(msg)
    return value


def boolean_of(section: Mapping[str, object], where: str, *, default: bool) -> bool:
    """Return what is true or false at a place."""
    text = text_of(section, where)
    if not text:
        return default
    if text.lower() not in _BOOLEANS:
        raise not_allowed(where, text, ("true", "false"))
    return _BOOLEANS[text.lower()]


def path_of(section: Mapping[str, object], key: str, folder: str) -> str:
    """Return the path at a place, relative ones from `folder` on; empty where it is left out."""
    text = text_of(section, key)
    return str(Path(folder, text)) if text else ""


def not_allowed(where: str, text: str, allowed: Iterable[str]) -> WebConfigError:
    """Return the error for a text that is none of those allowed."""
    return WebConfigError(f"{where}: {quote(text)}: allowed: {', '.join(allowed)}")


def quote(text: str) -> str:
    """Return a text as errors show it."""
    return json.dumps(text)
