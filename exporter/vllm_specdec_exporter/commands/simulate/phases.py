"""The phases of scenarios: their kinds, their parameters, and the conditions that
follow from them.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from ...config.options import ConfigError
from ...config.yaml_text import read_yaml
from .speculation import Amount, Conditions, DraftDistribution, Probability, Traffic


class ScenarioError(ConfigError):
    """A scenario or phase is not valid.

    The message is one line with the reason and what is allowed.
    """


#: One probability, or one for each position.
Acceptance = Probability | Annotated[tuple[Probability, ...], Meta(min_length=1)]

#: Most draft tokens of a step; the deepest drafts in use have some 30.
MAX_K = 64
_Seconds = Annotated[float, Meta(gt=0)] | None
# Positions for which acceptance is computed; later ones have the value of the last. No
# typical K is larger.
_POSITIONS = 16
_DATA = files(__package__) / "data"
# Length of a ramp in a phase without end.
_RAMP_SECONDS = 120.0


class PhaseParameters(Traffic, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of every phase, with those of its traffic.

    With K = 4, the defaults accept the tokens at the four positions in 92, 78, 61 and
    43 % of the drafts.

    Attributes:
        acceptance: chance that the first draft token is accepted, or a list with the
            chance at each position given acceptance of all positions before it
        position_decay: factor by which that chance falls from position to position (not
            with a list)
        draft_probability: chance that a request has a draft in a step
        draft_length_weights: relative frequency of drafts of 1, 2, 3, ... tokens;
            default: all K
    """

    acceptance: Acceptance = 0.92
    position_decay: Probability = 0.92
    draft_probability: Probability = 1.0
    draft_length_weights: tuple[Amount, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse weights of which none is above 0; ValueError."""
        weights = self.draft_length_weights
        if weights is not None and not sum(weights) > 0:
            raise ValueError(
                "draft_length_weights must have at least one value above 0"
            )


class DecayParameters(
    PhaseParameters, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The parameters of a phase in which acceptance changes.

    Attributes:
        end_acceptance: acceptance at the end, in the form of acceptance
    """

    end_acceptance: Acceptance = 0.35


class RestartParameters(
    PhaseParameters, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The parameters of a phase that begins with a restart.

    Attributes:
        downtime_seconds: how long the server is down
    """

    downtime_seconds: Amount = 8.0


class KChangeParameters(
    RestartParameters, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The parameters of a phase with another K.

    Attributes:
        num_speculative_tokens: new K; 0: the initial K
    """

    num_speculative_tokens: Annotated[int, Meta(ge=0, le=MAX_K)] = 2


class PhaseKind(Struct, frozen=True):
    """A kind of phase."""

    name: str  # name in scenarios and in the HTTP API
    help: str  # description
    #: That differ from those of its parameters.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parameters: type[PhaseParameters] = PhaseParameters  # what can be set
    restarts: bool = False  # whether the server restarts at the start of the phase
    speculates: bool = True  # whether the server speculates


class Phase(Struct, frozen=True):
    """One phase of a scenario, of a length in simulated seconds; None without end."""

    kind: PhaseKind
    parameters: PhaseParameters
    seconds: float | None

    @property
    def downtime_seconds(self) -> float:
        """How long the server is down if it restarts at the start of the phase."""
        if isinstance(self.parameters, RestartParameters):
            return self.parameters.downtime_seconds
        return 3.0

    def conditions(self, elapsed: float) -> Conditions:
        """Return the conditions of the engines some seconds after the phase began."""
        parameters = self.parameters
        drafts = DraftDistribution(
            acceptance=self._acceptance(elapsed),
            draft_probability=parameters.draft_probability,
            length_weights=parameters.draft_length_weights or (),
        )
        return Conditions(drafts, traffic=parameters)

    def _acceptance(self, elapsed: float) -> tuple[float, ...]:
        parameters = self.parameters
        begin = _by_position(parameters.acceptance, parameters.position_decay)
        if not isinstance(parameters, DecayParameters):
            return begin
        end = _by_position(parameters.end_acceptance, parameters.position_decay)
        progress = min(1.0, elapsed / (self.seconds or _RAMP_SECONDS))
        acceptance = []
        for position in range(max(len(begin), len(end))):
            first = _at(begin, position)
            acceptance.append(first + progress * (_at(end, position) - first))
        return tuple(acceptance)


def read_data(name: str) -> dict[str, Any]:
    """Return a data file of this package: phases or scenarios by name."""
    document: dict[str, Any] = read_yaml((_DATA / name).read_bytes())
    return document


def make_phase(
    name: object, parameters: Mapping[str, object] | None = None, seconds: object = None
) -> Phase:
    """Return a phase of a kind in `PHASES`, of a length in seconds or without end, or
    raise ScenarioError.
    """
    if not isinstance(name, str) or name not in PHASES:
        raise ScenarioError(
            f"unknown phase {name!r}; the phases are {', '.join(PHASES)}"
        )
    try:
        length: float | None = msgspec.convert(seconds, _Seconds)
    except msgspec.ValidationError as error:
        raise ScenarioError(
            f"seconds must be a number above 0, not {seconds!r}"
        ) from error
    kind = PHASES[name]
    values = {**kind.defaults, **(parameters or {})}
    try:
        return Phase(kind, msgspec.convert(values, kind.parameters), length)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"phase {name}: {error}") from error


def _at(values: tuple[float, ...], index: int) -> float:
    return values[min(index, len(values) - 1)]


def _by_position(
    acceptance: float | tuple[float, ...], decay: float
) -> tuple[float, ...]:
    """Return the probability at each position from a list, or from the first one and
    its decay.
    """
    if isinstance(acceptance, tuple):
        if len(acceptance) > 1:
            return acceptance
        acceptance = acceptance[0]
    return tuple(acceptance * decay**position for position in range(_POSITIONS))


#: Parameters by the key `parameters` of a kind, empty for those of every phase.
_PARAMETERS = {
    "": PhaseParameters,
    "decay": DecayParameters,
    "restart": RestartParameters,
    "k_change": KChangeParameters,
}
#: Every kind of phase by name.
PHASES: Mapping[str, PhaseKind] = {
    name: PhaseKind(
        name, **{**kind, "parameters": _PARAMETERS[kind.get("parameters", "")]}
    )
    for name, kind in read_data("phases.yaml").items()
}
