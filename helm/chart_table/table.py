"""The table of the chart's values, as values.yaml has it: paths, defaults, descriptions
and schemas.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import yaml

Schema = Mapping[str, Any]


_SECTION = "# ---- "
#: What a default says by itself: Kubernetes takes lists and maps as they are.
_BY_TYPE: dict[type, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    str: {"type": "string"},
    list: {"type": "array", "items": {"type": "object"}},
    dict: {"type": "object"},
}


@dataclass(frozen=True, slots=True)
class Value:
    """One value.

    Attributes:
        path: where it stands, its levels separated by dots.
        default: what holds unless it is set.
        about: what it does: the comment above it.
    """

    path: str
    default: Any
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """Values that belong together.

    Attributes:
        title: its heading.
        about: what they are for.
        values: in the order of values.yaml.
    """

    title: str
    about: str
    values: tuple[Value, ...]


def read(text: str) -> list[Section]:
    """Return the sections of values.yaml, each of which begins with a line `# ----
    TITLE`.

    A map in braces is one value, any other map a level of values.

    Raises:
        ValueError: a value has no description.
    """
    lines = text.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(_SECTION)]
    # Nodes keep the numbers of their lines, by which their comments are found.
    root = yaml.compose(text)
    if isinstance(root, yaml.MappingNode):
        values = list(_values(root, lines, ()))
    else:
        values = []
    sections = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        about = _comment(
            lines, next(n for n in range(start + 1, end) if not lines[n]), start + 1
        )
        within = tuple(value for line, value in values if start < line < end)
        sections.append(Section(lines[start].removeprefix(_SECTION), about, within))
    return sections


def _values(
    node: yaml.MappingNode, lines: Sequence[str], levels: Sequence[str]
) -> Iterator[tuple[int, Value]]:
    """Yield each value with the number of its line."""
    for key, inner in node.value:
        path = (*levels, key.value)
        if isinstance(inner, yaml.MappingNode) and not inner.flow_style:
            yield from _values(inner, lines, path)
            continue
        line = key.start_mark.line
        about = _comment(lines, line)
        if not about:
            msg = f"values.yaml: {'.'.join(path)} has no comment above it"
            raise ValueError(msg)
        loader = yaml.SafeLoader("")
        yield line, Value(".".join(path), loader.construct_document(inner), about)


def _comment(lines: Sequence[str], end: int, first: int = 0) -> str:
    """Return the comment right above a line."""
    start = end
    while start > first and lines[start - 1].lstrip().startswith("# "):
        start -= 1
    return " ".join(line.strip().removeprefix("# ") for line in lines[start:end])


def schema_of(value: Value, special: Mapping[str, Schema]) -> Schema:
    """Return the schema of a value: that of a switch, else the first one whose pattern
    fits, else by type.
    """
    fitting = (
        schema
        for pattern, schema in special.items()
        if fnmatchcase(value.path, pattern)
    )
    by_type = _BY_TYPE[type(value.default)]
    if isinstance(value.default, bool):
        return by_type
    return next(fitting, by_type)


def hints(template: str) -> dict[str, str]:
    """Return the names of other charts with what to do instead, as the template `hints`
    has them.
    """
    (table,) = re.findall(
        r'define "vllm-specdec-exporter\.hints" -\}\}\n(.*?)\{\{- end',
        template,
        re.DOTALL,
    )
    names: dict[str, str] = yaml.safe_load(table)
    return names
