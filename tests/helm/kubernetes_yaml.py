"""YAML as Kubernetes and Helm read it.

PyYAML differs where a forgotten quote does harm: it reads `1e3` as text and
`2026-01-01` as a date, and lets a key stand twice.
"""

import re
from typing import Any

import yaml

_FLOAT = re.compile(
    r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.nan$"
)
_INTEGER = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+)$")
_PREFIX = "tag:yaml.org,2002:"


class _Loader(yaml.CSafeLoader):
    """PyYAML's loader with go-yaml's idea of numbers, and no dates; no key may stand
    twice.
    """

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in keys:
                raise ValueError(f"the key {name!r} stands twice{key.start_mark}")
            keys.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
for _first, _resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items():
    _Loader.yaml_implicit_resolvers[_first] = [
        (tag, pattern)
        for tag, pattern in _resolvers
        if tag.removeprefix(_PREFIX) not in {"timestamp", "float", "int", "value"}
    ]
_Loader.add_implicit_resolver(f"{_PREFIX}int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_PREFIX}float", _FLOAT, list("-+0123456789."))


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a YAML stream; empty documents are none."""
    objects = [obj for obj in yaml.load_all(text, _Loader) if obj is not None]
    assert all(isinstance(obj, dict) for obj in objects), objects
    return objects
