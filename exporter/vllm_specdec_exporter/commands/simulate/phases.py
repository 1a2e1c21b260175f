"""The phases of scenarios: their kinds, their parameters, and the conditions that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .speculation import Conditions, DraftModel, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

ParameterValue = float | int | str | tuple[float, ...] | None


class ScenarioError(ValueError):
    """A scenario or phase is not valid. The message is one line with the reason and what is allowed."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a phase."""

    #: `probability` (0 to 1), `count` (whole number), `seconds`, `tokens` (a mean length), `weights`
    #: (relative frequencies), `probabilities` (one, or one per position) or `choice`.
    kind: str
    default: ParameterValue  # the value if none is given; None for that of the server
    help: str  # its meaning, with its unit
    minimum: float = 0.0  # smallest value of a number
    maximum: float = 1_000_000.0  # largest value of a count
    choices: tuple[str, ...] = ()  # the values of a choice

    def parse(self, name: str, value: object) -> ParameterValue:
        """Return the value given by a user in its type; raises ScenarioError."""
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
        if isinstance(value, int) and not isinstance(value, bool) and self.minimum <= value <= self.maximum:
            return value
        limits = f"from {self.minimum:.0f} to {self.maximum:.0f}"
        raise ScenarioError(f"{name} must be a whole number {limits}, not {value!r}")

    def _parse_list(self, name: str, values: list[object] | tuple[object, ...]) -> ParameterValue:
        numbers = tuple(self._parse_number(f"each value of {name}", value) for value in values)
        if not numbers:
            raise ScenarioError(f"{name} must not be an empty list")
        if self.kind == "weights" and sum(numbers) <= 0.0:
            raise ScenarioError(f"{name} must have at least one value above 0")
        return numbers

    def _parse_number(self, name: str, value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found = float(str(value)) if is_number else math.nan  # by its text: a huge integer is infinite
        if self.kind in ("probability", "probabilities"):
            fits, allowed = 0.0 <= found <= 1.0, "from 0 to 1"
        else:
            fits, allowed = self.minimum <= found < math.inf, f"of at least {self.minimum:g}"
        if not fits:
            raise ScenarioError(f"{name} must be a number {allowed}, not {value!r}")
        return found


# With K = 4, the tokens at the four positions are accepted in 92, 78, 61 and 43 % of the drafts.
_ACCEPTANCE = 0.92
_POSITION_DECAY = 0.92
# Positions for which acceptance is computed; later ones have the value of the last.
_POSITIONS = 16

# Length of a ramp in a phase without end.
_RAMP_SECONDS = 120.0

_TRAFFIC = Traffic()

_COMMON: Mapping[str, Parameter] = MappingProxyType(
    {
        "acceptance": Parameter(
            "probabilities",
            _ACCEPTANCE,
            "chance that the first draft token is accepted, or a list with the chance at each "
            "position given acceptance of all positions before it",
        ),
        "position_decay": Parameter(
            "probability",
            _POSITION_DECAY,
            "factor by which that chance falls from position to position (not with a list)",
        ),
        "draft_probability": Parameter("probability", 1.0, "chance that a request has a draft in a step"),
        "draft_length_weights": Parameter(
            "weights", None, "relative frequency of drafts of 1, 2, 3, ... tokens; default: all K"
        ),
        "clients": Parameter("count", _TRAFFIC.clients, "clients per engine", maximum=10_000),
        "think_seconds": Parameter(
            "seconds", _TRAFFIC.think_seconds, "mean time between an answer and the next request"
        ),
        "prompt_tokens": Parameter(
            "tokens", _TRAFFIC.prompt_tokens, "mean prompt length in tokens", minimum=1
        ),
        "output_tokens": Parameter(
            "tokens", _TRAFFIC.output_tokens, "mean answer length in tokens", minimum=1
        ),
        "prefix_hit_ratio": Parameter(
            "probability", _TRAFFIC.prefix_hit_ratio, "mean share of a prompt in the prefix cache"
        ),
        "repetition_ratio": Parameter(
            "probability", 0.0, "share of the answers that end by repetition detection"
        ),
    }
)

_RESTART: Mapping[str, Parameter] = MappingProxyType(
    {
        "downtime_seconds": Parameter("seconds", 8.0, "how long the server is down"),
        "unavailable": Parameter(
            "choice",
            "refused",
            "response while it is down: connection refused, or HTTP status 503",
            choices=("refused", "503"),
        ),
    }
)
_K = Parameter("count", 2, "new K; 0: the initial K", maximum=64)


@dataclass(frozen=True)
class PhaseKind:
    """A kind of phase."""

    name: str  # name in scenarios and in the HTTP API
    help: str  # description
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    restarts: bool = False  # whether the server restarts at the start of the phase
    speculates: bool = True  # whether the server speculates
    ramps: bool = False  # whether acceptance changes from `acceptance` to `end_acceptance` over the phase

    def parse(self, given: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the values of all parameters, by default their defaults, or raise ScenarioError."""
        values = {name: parameter.default for name, parameter in self.parameters.items()}
        for name, value in given.items():
            if name not in values:
                known = ", ".join(sorted(values))
                raise ScenarioError(f"phase {self.name} has no parameter {name!r}; it has {known}")
            try:
                values[name] = self.parameters[name].parse(name, value)
            except ScenarioError as error:
                raise ScenarioError(f"phase {self.name}: {error}") from None
        return MappingProxyType(values)


@dataclass(frozen=True)
class Phase:
    """One phase of a scenario, of a length in simulated seconds; None without end."""

    kind: PhaseKind
    parameters: Mapping[str, Any]
    seconds: float | None

    def conditions(self, elapsed: float) -> Conditions:
        """Return the conditions of the engines some seconds after the phase began."""
        values = self.parameters
        drafts = DraftModel(
            self._acceptance(elapsed), values["draft_probability"], values["draft_length_weights"] or ()
        )
        traffic = Traffic(**{each.name: values[each.name] for each in fields(Traffic)})
        return Conditions(drafts, traffic)

    def _acceptance(self, elapsed: float) -> tuple[float, ...]:
        decay = self.parameters["position_decay"]
        acceptance = _by_position(self.parameters["acceptance"], decay)
        if not self.kind.ramps:
            return acceptance
        end = _by_position(self.parameters["end_acceptance"], decay)
        over = self.parameters["over_seconds"]
        if over is None:
            over = _RAMP_SECONDS if self.seconds is None else self.seconds
        progress = min(1.0, elapsed / over) if over else 1.0
        length = max(len(acceptance), len(end))
        return tuple(
            _at(acceptance, index) + progress * (_at(end, index) - _at(acceptance, index))
            for index in range(length)
        )


def make_phase(name: object, given: Mapping[str, object] | None = None, seconds: object = None) -> Phase:
    """Return a phase of a kind in `PHASES`, of a length in seconds or without end, or raise ScenarioError."""
    if not isinstance(name, str) or name not in PHASES:
        raise ScenarioError(f"unknown phase {name!r}; the phases are {', '.join(PHASES)}")
    length: float | None = None
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ScenarioError(f"seconds must be a number above 0, not {seconds!r}")
        length = float(seconds)
    kind = PHASES[name]
    return Phase(kind, kind.parse(given or {}), length)


def _at(values: tuple[float, ...], index: int) -> float:
    return values[min(index, len(values) - 1)]


def _by_position(acceptance: float | tuple[float, ...], decay: float) -> tuple[float, ...]:
    """Return the probability at each position from a list, or from the first one and its decay."""
    if isinstance(acceptance, tuple):
        if len(acceptance) > 1:
            return acceptance
        acceptance = acceptance[0]
    return tuple(acceptance * decay**position for position in range(_POSITIONS))


def _parameters(
    extra: Mapping[str, Parameter] | None = None, **defaults: float | tuple[float, ...]
) -> Mapping[str, Parameter]:
    """Return the common parameters with other defaults, and further parameters."""
    parameters = {
        name: replace(parameter, default=defaults.get(name, parameter.default))
        for name, parameter in _COMMON.items()
    }
    return MappingProxyType(parameters | dict(extra or {}))


_KINDS = (
    PhaseKind("healthy", "normal traffic, good acceptance", _parameters()),
    PhaseKind(
        "slow_decay",
        "acceptance falls linearly over the phase",
        _parameters(
            {
                "end_acceptance": Parameter(
                    "probabilities", 0.35, "acceptance at the end, in the form of acceptance"
                ),
                "over_seconds": Parameter(
                    "seconds",
                    None,
                    "duration of the fall; default: the whole phase, or 120 s if it has no end",
                ),
            }
        ),
        ramps=True,
    ),
    PhaseKind(
        "collapse",
        "acceptance falls at once to almost nothing",
        _parameters(acceptance=0.08, position_decay=0.5),
    ),
    PhaseKind("idle", "no new requests", _parameters(clients=0)),
    PhaseKind("bypass", "tokens without drafts", _parameters(draft_probability=0.0)),
    PhaseKind("restart", "the server restarts: all counters are reset", _parameters(_RESTART), restarts=True),
    PhaseKind(
        "k_change",
        "the server restarts with another number of speculative tokens",
        _parameters({**_RESTART, "num_speculative_tokens": _K}),
        restarts=True,
    ),
    PhaseKind(
        "saturation",
        "more requests than fit into the engine: they wait, and some are preempted",
        _parameters(clients=200, think_seconds=0.1, output_tokens=400.0),
    ),
    PhaseKind(
        "variable_drafts",
        "drafts of different lengths, and steps without drafts, as with n-gram lookup",
        _parameters(acceptance=0.88, draft_probability=0.7, draft_length_weights=(0.2, 0.2, 0.25, 0.35)),
    ),
    PhaseKind(
        "repetition",
        "repetitive answers: acceptance is abnormally high",
        _parameters(acceptance=0.995, position_decay=1.0, repetition_ratio=0.6, output_tokens=400.0),
    ),
    PhaseKind("off", "the server runs without speculation", _parameters(_RESTART), speculates=False),
)

#: Every kind of phase by name.
PHASES: Mapping[str, PhaseKind] = MappingProxyType({kind.name: kind for kind in _KINDS})
