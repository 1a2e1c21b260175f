"""Copies of frozen values, whatever they are made with."""

import dataclasses
from typing import Any

from msgspec import structs


def replace(value: Any, /, **changes: Any) -> Any:
    """Return a copy of a dataclass or a Struct with these fields changed."""
    if isinstance(value, structs.Struct):
        return structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)
