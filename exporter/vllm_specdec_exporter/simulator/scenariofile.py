"""A scenario as a YAML file, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..yaml_file import YAMLFileError, read_yaml
from .parameters import ScenarioError
from .scenario import parse_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from .scenario import Scenario

_MAX_FILE_BYTES = 1_000_000


def load_scenario(path: Path) -> Scenario:
    """Read a scenario from a YAML file.

    Raises:
        ScenarioError: The file cannot be read, or is not a valid scenario; one line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: larger than {_MAX_FILE_BYTES} bytes")
        document = read_yaml(text)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from None
    except YAMLFileError as error:
        raise ScenarioError(f"{path}: not valid YAML: {error}") from None
    try:
        return parse_scenario(document, path.stem)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
