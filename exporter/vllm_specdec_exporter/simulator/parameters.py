"""Named parameters of phases: what is allowed, and one clear line about what is not."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ParameterValue = float | int | str | tuple[float, ...] | None


class ScenarioError(ValueError):
    """A scenario or phase is not valid; the message says what is wrong and what is allowed."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a phase.

    Attributes:
        kind: `probability` (0 to 1), `count` (whole number), `seconds`, `tokens` (a mean
            length), `weights` (a list of relative frequencies), `probabilities` (one
            probability, or a list with one per position) or `choice`.
        default: Value if the phase does not say; None means that the server's setting holds.
        help: What it does, with its unit.
        minimum: Smallest value of a number.
        maximum: Largest value of a count.
        choices: The values of a choice.
    """

    kind: str
    default: ParameterValue
    help: str
    minimum: float = 0.0
    maximum: float = 1_000_000.0
    choices: tuple[str, ...] = ()

    def parse(self, name: str, value: object) -> ParameterValue:
        """Check a value given by a user and return it in its proper type."""
        if self.kind == "choice":
            if value in self.choices:
                return str(value)
            raise ScenarioError(f"{name} must be one of {', '.join(self.choices)}, not {value!r}")
        if self.kind in ("weights", "probabilities") and isinstance(value, list | tuple):
            return self._parse_list(name, value)
        if self.kind == "count":
            return self._parse_count(name, value)
        if self.kind == "weights":
            raise ScenarioError(f"{name} must be a list of numbers, not {value!r}")
        return self._parse_number(name, value)

    def _parse_count(self, name: str, value: object) -> int:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if is_integer and self.minimum <= int(str(value)) <= self.maximum:
            return int(str(value))
        raise ScenarioError(
            f"{name} must be a whole number from {self.minimum:.0f} to {self.maximum:.0f}, not {value!r}"
        )

    def _parse_list(self, name: str, values: list[object] | tuple[object, ...]) -> ParameterValue:
        numbers = tuple(self._parse_number(f"each value of {name}", value) for value in values)
        if not numbers:
            raise ScenarioError(f"{name} must not be an empty list")
        if self.kind == "weights" and sum(numbers) <= 0.0:
            raise ScenarioError(f"{name} must have at least one value above 0")
        return numbers

    def _parse_number(self, name: str, value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind in ("probability", "probabilities"):
            if not is_number or not 0.0 <= float(str(value)) <= 1.0:
                raise ScenarioError(f"{name} must be a number from 0 to 1, not {value!r}")
        elif not is_number or not self.minimum <= float(str(value)) < math.inf:
            raise ScenarioError(f"{name} must be a number of at least {self.minimum:g}, not {value!r}")
        return float(str(value))


@dataclass(frozen=True)
class ParameterSet:
    """The values of a phase's parameters, complete with defaults."""

    values: Mapping[str, ParameterValue]

    def number(self, name: str) -> float:
        """Return a parameter that is a number."""
        value = self.values[name]
        if not isinstance(value, int | float):
            raise TypeError(f"{name} is not a number")
        return float(value)

    def count(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        return int(self.number(name))

    def optional_number(self, name: str) -> float | None:
        """Return a parameter that is a number, or None if it is not set."""
        return None if self.values.get(name) is None else self.number(name)

    def text(self, name: str) -> str:
        """Return a parameter that is a choice."""
        return str(self.values[name])

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a parameter that is a list; one number counts as a list of one."""
        value = self.values[name]
        if isinstance(value, tuple):
            return value
        return () if value is None else (self.number(name),)


def parse_parameters(
    owner: str, allowed: Mapping[str, Parameter], given: Mapping[str, object]
) -> ParameterSet:
    """Check the parameters given for a phase and complete them with defaults.

    Args:
        owner: The phase, for messages.
        allowed: Its parameters.
        given: What the user wrote.

    Raises:
        ScenarioError: A parameter is unknown or its value is not allowed.
    """
    values = {name: parameter.default for name, parameter in allowed.items()}
    for name, value in given.items():
        if name not in allowed:
            raise ScenarioError(f"{owner} has no parameter {name!r}; it has {', '.join(sorted(allowed))}")
        try:
            values[name] = allowed[name].parse(name, value)
        except ScenarioError as error:
            raise ScenarioError(f"{owner}: {error}") from None
    return ParameterSet(MappingProxyType(values))
