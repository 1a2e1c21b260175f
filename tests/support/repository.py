"""The repository that the tests belong to: its root, and its files as text and data."""

import json
from pathlib import Path
from typing import Any

import yaml

#: A mapping of YAML or JSON, such as an object of Kubernetes or values of the chart.
Json = dict[str, Any]
ROOT = Path(__file__).parents[2]


def text_of(path: str | Path) -> str:
    """Return the text of a file; the path is absolute, or from the root."""
    return (ROOT / path).read_text("utf-8")


def data_of(path: str | Path) -> Any:
    """Return what a file of YAML or JSON holds; the path as for `text_of`."""
    if str(path).endswith(".json"):
        return json.loads(text_of(path))
    return yaml.load(text_of(path), yaml.CSafeLoader)
