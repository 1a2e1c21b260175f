"""Single requests as the status page shows them: values that the result does not have
itself.

The words are in the templates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...per_request.acceptance import (
    PositionAcceptance,
    SmallerK,
    every_k,
    position_acceptances,
)
from ...per_request.observation import RecordState
from ...per_request.summary import (
    ModelRequests,
    ObservationCount,
    RequestsResult,
    RequestsVerdict,
    TapResult,
    is_problem,
    requests_verdict,
)
from ..request_report import TenantRatios, percentiles, tenant_ratios


@dataclass(frozen=True, slots=True)
class ModelView:
    """The requests of a model with their place on the page."""

    result: ModelRequests
    anchor: str  # prefix of the identifiers of its elements

    @property
    def verdict(self) -> RequestsVerdict:
        """Whether its requests gain or lose."""
        return requests_verdict(self.result)

    @property
    def p10(self) -> float | None:
        """The acceptance ratio that nine in ten requests exceed."""
        return self.result.acceptance_quantiles.get("0.1")

    @property
    def other_percentiles(self) -> str:
        """The other percentiles of the acceptance ratio; empty if there are none."""
        quantiles = dict(self.result.acceptance_quantiles)
        quantiles.pop("0.1", None)
        return percentiles(quantiles)

    @property
    def positions(self) -> Sequence[PositionAcceptance]:
        """The acceptance of each position; empty without detailed records."""
        return position_acceptances(self.result)

    @property
    def options(self) -> Sequence[SmallerK]:
        """What a smaller K would have given; empty without detailed records."""
        return every_k(self.result)


@dataclass(frozen=True, slots=True)
class RequestsView:
    """All single requests."""

    result: RequestsResult

    @property
    def tap(self) -> TapResult | None:
        """The tap, if configured."""
        return self.result.tap

    @property
    def push_rejected_total(self) -> int:
        """Observations in pushes that were invalid."""
        return self.result.push_rejected_total

    @property
    def observations(self) -> Sequence[ObservationCount]:
        """The observed requests by source and record."""
        return [item for item in self.result.observations if item.requests]

    @property
    def observed(self) -> int:
        """The number of observed requests."""
        return sum(item.requests for item in self.observations)

    @property
    def recorded(self) -> int:
        """The number of observed requests with a record of speculation."""
        return sum(
            item.requests
            for item in self.observations
            if item.record != RecordState.NONE
        )

    @property
    def _models(self) -> Sequence[ModelView]:
        return [
            ModelView(model, f"requests-{index}")
            for index, model in enumerate(self.result.models)
        ]

    @property
    def models(self) -> Sequence[ModelView]:
        """The models with requests in their window."""
        return [model for model in self._models if model.result.window_requests]

    @property
    def problems(self) -> Sequence[ModelView]:
        """The models whose requests have a problem."""
        return [model for model in self._models if is_problem((model.result,))]

    @property
    def tenants(self) -> Sequence[TenantRatios]:
        """The requests of each tenant."""
        return [tenant_ratios(tenant) for tenant in self.result.tenants]
