"""Single requests as the status page shows them: values that the result does not have
itself.

The words are in the templates.
"""

from collections.abc import Sequence

from msgspec import Struct

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


class ModelView(Struct, frozen=True):
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


class RequestsView(Struct, frozen=True):
    """All single requests."""

    tap: TapResult | None
    push_rejected_total: int  # observations in pushes that were invalid
    observations: Sequence[ObservationCount]  # by source and record, above 0
    observed: int  # requests
    recorded: int  # requests with a record of speculation
    models: Sequence[ModelView]  # those with requests in their window
    problems: Sequence[ModelView]  # those whose requests have a problem
    tenants: Sequence[TenantRatios]


def requests_view(result: RequestsResult) -> RequestsView:
    """Return single requests as the page shows them."""
    observations = []
    observed = 0
    recorded = 0
    for item in result.observations:
        if not item.requests:
            continue
        observations.append(item)
        observed += item.requests
        if item.record != RecordState.NONE:
            recorded += item.requests
    # Anchors count all models, so that links hold while some have no requests.
    models = []
    problems = []
    for index, model in enumerate(result.models):
        view = ModelView(model, anchor=f"requests-{index}")
        if model.window_requests:
            models.append(view)
        if is_problem((model,)):
            problems.append(view)
    return RequestsView(
        tap=result.tap,
        push_rejected_total=result.push_rejected_total,
        observations=observations,
        observed=observed,
        recorded=recorded,
        models=models,
        problems=problems,
        tenants=list(map(tenant_ratios, result.tenants)),
    )
