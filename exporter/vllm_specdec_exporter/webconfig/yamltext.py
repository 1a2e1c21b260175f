"""YAML whose scalars stay texts: ``0123`` is a user's name, not the number 83. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from .fields import WebConfigError

if TYPE_CHECKING:
    from collections.abc import Hashable


class _Loader(yaml.BaseLoader):
    """Knows no types, and takes no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(problem=f"{twice!r} is given twice")
        return super().construct_mapping(node, deep)


def read(text: bytes) -> object:
    """Return the document of a YAML text: mappings, lists and texts; `None` for an empty one.

    Raises:
        WebConfigError: not YAML, or a key twice.
    """
    try:
        # A loader without types: nothing is constructed but what this module's docstring says.
        return yaml.load(text.decode("utf-8"), Loader=_Loader)  # noqa: S506
    except UnicodeDecodeError as error:
        msg = "not YAML: not UTF-8"
        raise WebConfigError(msg) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        msg = f"not YAML: {' '.join(str(error).split())}"
        raise WebConfigError(msg) from error
