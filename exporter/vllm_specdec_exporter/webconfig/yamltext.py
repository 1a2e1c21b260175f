"""YAML whose scalars stay texts: ``0123`` is a user's name, not the number 83. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from ..yaml_file import WholeTexts, reason
from .fields import WebConfigError

if TYPE_CHECKING:
    from collections.abc import Hashable


#: Words for nothing, where they are not in quotes.
_NULLS = frozenset({"~", "null", "Null", "NULL"})


class _Loader(WholeTexts, yaml.BaseLoader):
    """Knows no types, and takes no key twice. A null is the same as nothing written, an empty text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    msg = f"not YAML: {key.value!r} is given twice"
                    raise WebConfigError(msg)
                seen.add(key.value)
            _blank(value)  # not the key: somebody may be called so
        return super().construct_mapping(node, deep)

    def construct_document(self, node: Any) -> Any:
        _blank(node)
        return super().construct_document(node)


def _blank(node: Any) -> None:
    if isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULLS:
        node.value = ""


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
    except (yaml.YAMLError, RecursionError) as error:
        msg = f"not YAML: {reason(error)}"
        raise WebConfigError(msg) from None  # its context would quote the text
