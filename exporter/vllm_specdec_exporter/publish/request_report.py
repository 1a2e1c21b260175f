"""The report of `requests`, and of `check` on single requests: text for a terminal.

Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from ..economics.choice import Choice
from ..economics.cost import CostProfile
from ..per_request.acceptance import choice_at, every_k, position_acceptances
from ..per_request.observation import RecordState
from ..per_request.summary import (
    GroupWindow,
    ModelRequests,
    RequestsResult,
    RequestsVerdict,
    TapResult,
    TenantResult,
    WorstRequest,
    requests_verdict,
)
from . import terminal, wording
from .numbers import count, counts, percent

_T = TypeVar("_T")
#: Column of the texts beside the labels of sources: the longest one, and the indent.
_SOURCE_COLUMN = 12
_STYLES = {
    RequestsVerdict.GAINING: terminal.GREEN,
    RequestsVerdict.BREAK_EVEN: terminal.YELLOW,
    RequestsVerdict.UNKNOWN: terminal.YELLOW,
}
#: Groups of a model, those with most requests: a screen has about 40 lines.
_MAX_GROUPS = 20
#: Columns of texts, by their heads: left-aligned.
_TEXTS = ("temp", "type", "outcome", "worst requests", "tenant", "model")
#: Least difference of two acceptance ratios that gets a sentence: half a point.
_BIASED = 0.005


class Costs(Struct, frozen=True):
    """The cost profile of a model, and the batch sizes for which to estimate the
    speedup of every K.
    """

    profile: CostProfile
    batches: tuple[float, ...]


class TenantRatios(Struct, frozen=True):
    """The requests of a tenant since the exporter started."""

    tenant: str
    model_name: str
    requests: int  # requests for which something was drafted
    acceptance_ratio: float | None  # accepted over drafted tokens; none if none drafted
    losing_ratio: float | None  # share of the requests that lose; none without requests


def render(
    requests: RequestsResult,
    paint: terminal.Paint,
    costs: Mapping[str, Costs] | None = None,
) -> Iterator[str]:
    """Yield the lines of the report, wrapped at 100 columns; without `costs`, no
    speedups of other K.
    """
    yield from _records(requests)
    for model in requests.models:
        yield from _verdict(model, paint)
    for model in requests.models:
        yield ""
        yield from _model(model, paint, (costs or {}).get(model.model_name))
    if requests.tenants:
        yield ""
        tenants = map(tenant_ratios, requests.tenants)
        yield from _table(_TENANT_COLUMNS, tenants, shorten="model")


def _records(requests: RequestsResult) -> Iterator[str]:
    """Yield the observations by record, what helps without records, and the tap."""
    records: Counter[str] = Counter()
    for item in requests.observations:
        records[item.record] += item.requests
    listed = ", ".join(
        f"{count(number)} {name.replace('_', ' ')}"
        for name, number in records.items()
        if number
    )
    yield from _source("records", listed or "no request was observed")
    recorded = records.total() - records[RecordState.NONE]
    if records.total() and not recorded:
        advice = (
            f"{wording.NO_RECORD}. {wording.START_VLLM} {wording.DETAILED_RECORDS}."
        )
        yield from terminal.paragraph(advice, _SOURCE_COLUMN)
    elif records[RecordState.SUMMARY] and not records[RecordState.DETAILED]:
        advice = (
            "Positions, and what another K would give, need detailed records: start "
            f"vLLM with {wording.DETAILED_RECORDS}."
        )
        yield from terminal.paragraph(advice, _SOURCE_COLUMN)
    if requests.push_rejected_total:
        rejected = count(requests.push_rejected_total)
        yield f"  rejected  {rejected} pushed observations that could not be used"
    if requests.tap is not None:
        yield from _source("tap", _tap(requests.tap))


def _source(label: str, text: str) -> list[str]:
    return terminal.paragraph(text, _SOURCE_COLUMN, f"  {label:<{_SOURCE_COLUMN - 2}}")


def _tap(tap: TapResult) -> str:
    counted = (
        f"{count(tap.connections)} connections open, "
        f"{count(tap.requests_total)} requests passed on"
    )
    parts = [f"{tap.address} before {tap.upstream}: {counted}"]
    if any(tap.unobserved_total.values()):
        parts.append(f"not observed: {counts(tap.unobserved_total)}")
    if any(tap.upstream_errors_total.values()):
        parts.append(f"failed: {counts(tap.upstream_errors_total)}")
    return "; ".join(parts)


def _verdict(model: ModelRequests, paint: terminal.Paint) -> Iterator[str]:
    verdict = requests_verdict(model)
    requests = count(model.window_requests)
    if verdict is not RequestsVerdict.UNKNOWN:
        gaining = terminal.percent(model.gaining_requests_ratio)
        losing = terminal.percent(model.losing_requests_ratio)
        accepted = terminal.percent(model.acceptance_ratio)
        reason = (
            f"{gaining} of {requests} requests gain and {losing} lose, while "
            f"{accepted} of all drafted tokens are accepted"
        )
    elif model.window_requests:
        reason = f"{requests} requests are too few to be judged one by one"
    else:
        reason = "no request can be judged"
    head = verdict.upper()
    lines = terminal.paragraph(f"{head}  {_name(model)}: {reason}", 4, "  ")
    yield from terminal.emphasised(
        lines, head, paint, _STYLES.get(verdict, terminal.RED)
    )


def _name(model: ModelRequests) -> str:
    return terminal.printable(model.model_name) or wording.UNNAMED_MODEL


def _model(
    model: ModelRequests, paint: terminal.Paint, costs: Costs | None
) -> Iterator[str]:
    name = _name(model)
    drafted = f"{count(model.window_requests)} requests with something drafted"
    if model.window:
        drafted += f" in the last {model.window}"
    title = terminal.paragraph(f"{name} ({drafted})", 4, "  ")
    yield from terminal.emphasised(title, name, paint, terminal.BOLD)
    yield ""
    if model.window_requests:
        yield from _numbers(model, costs)
    for finding in model.findings:
        yield from terminal.finding_lines(
            finding, f"    {finding.severity}: ", 6, paint
        )
    if not model.findings:
        yield "    nothing to report"


def _numbers(model: ModelRequests, costs: Costs | None) -> Iterator[str]:
    together = terminal.percent(model.acceptance_ratio)
    accepted = (
        f"{percentiles(model.acceptance_quantiles)} by request; {together} of all "
        "drafted tokens together"
    )
    yield from terminal.paragraph(accepted, 14, "    accepted  ")
    yield from terminal.paragraph(_outcomes(model), 14, "    outcomes  ")
    yield ""
    yield from _groups(model.groups)
    yield ""
    if model.position_acceptance_ratio:
        yield from _positions(model)
        yield ""
        yield from _every_k(model, costs)
        yield ""
    if model.worst:
        yield from _table(_WORST_COLUMNS, model.worst, shorten="type")
        yield ""


def percentiles(quantiles: Mapping[str, float]) -> str:
    """Return acceptance ratios by quantile as ``P10 31.2%, P50 58.0%``."""
    return ", ".join(
        f"P{100 * float(quantile):g} {percent(ratio)}"
        for quantile, ratio in quantiles.items()
    )


def _outcomes(model: ModelRequests) -> str:
    gaining = model.gaining_requests_ratio or 0.0
    losing = model.losing_requests_ratio or 0.0
    break_even = max(0.0, 1 - gaining - losing)
    outcomes = (
        f"{percent(gaining)} gain, {percent(break_even)} are near break-even, "
        f"{percent(losing)} lose"
    )
    if not losing or model.losing_tokens_ratio is None:
        return outcomes
    tokens = percent(model.losing_tokens_ratio)
    return f"{outcomes} (with {tokens} of the generated tokens)"


def _outcome(group: GroupWindow) -> str:
    if not group.judged:
        return "too few"
    return (group.outcome or terminal.DASH).replace("_", "-")


#: Columns of the groups: the head, and the value of a group.
_GROUP_COLUMNS: Mapping[str, Callable[[GroupWindow], str]] = {
    "temp": lambda group: group.temperature,
    "type": lambda group: group.request_type,
    "requests": lambda group: count(group.requests),
    "share": lambda group: terminal.whole_percent(group.requests_ratio),
    "accepted": lambda group: terminal.percent(group.acceptance_ratio),
    "P10": lambda group: terminal.whole_percent(group.p10),
    "P50": lambda group: terminal.whole_percent(group.p50),
    "outcome": _outcome,
    "losing": lambda group: terminal.whole_percent(group.losing_requests_ratio),
    "rejected": lambda group: terminal.whole_percent(group.rejected_ratio),
    "speedup": lambda group: terminal.factor(group.estimated_speedup),
}
#: Columns of the worst requests, likewise.
_WORST_COLUMNS: Mapping[str, Callable[[WorstRequest], str]] = {
    "accepted": lambda request: percent(request.acceptance_ratio),
    "drafts": lambda request: count(request.drafts),
    "temp": lambda request: request.temperature,
    "type": lambda request: request.request_type,
    "worst requests": lambda request: request.request_id or terminal.DASH,
}
#: Columns of the tenants.
_TENANT_COLUMNS: Mapping[str, Callable[[TenantRatios], str]] = {
    "tenant": lambda tenant: tenant.tenant,
    "model": lambda tenant: tenant.model_name,
    "requests": lambda tenant: count(tenant.requests),
    "accepted": lambda tenant: terminal.percent(tenant.acceptance_ratio),
    "losing": lambda tenant: terminal.whole_percent(tenant.losing_ratio),
}


def _groups(groups: Sequence[GroupWindow]) -> Iterator[str]:
    columns = dict(_GROUP_COLUMNS)
    # Without a known batch, as of recorded requests, there are none.
    if all(group.estimated_speedup is None for group in groups):
        del columns["speedup"]
    yield from _table(columns, groups[:_MAX_GROUPS], shorten="type")
    left_out = groups[_MAX_GROUPS:]
    if left_out:
        requests = count(sum(group.requests for group in left_out))
        yield f"    and {len(left_out)} groups more with {requests} requests"


def _table(
    columns: Mapping[str, Callable[[_T], str]], items: Iterable[_T], *, shorten: str
) -> Iterator[str]:
    """Return a table with a row for each item; `columns` has the value by head."""
    rows = []
    for item in items:
        cells = [value_of(item) for value_of in columns.values()]
        rows.append(cells)
    return terminal.table(list(columns), rows, left=_TEXTS, shorten=shorten)


def _positions(model: ModelRequests) -> Iterator[str]:
    positions = position_acceptances(model)
    rows = []
    biases = []
    for index, position in enumerate(positions):
        where_drafted = percent(position.where_drafted)
        rows.append([str(index), where_drafted, percent(position.of_all_drafts)])
        biases.append(position.where_drafted - position.of_all_drafts)
    yield from terminal.table(
        ("position", "accepted where drafted", "of all drafts"), rows
    )
    # The worst one is named: all others are of the same kind.
    greatest = max(biases)
    if greatest > _BIASED:
        warning = (
            "Drafts vary in length. Counted over all drafts, as on /metrics, "
            f"position {biases.index(greatest)} looks {100 * greatest:.1f} points "
            "worse than it is."
        )
        yield from terminal.paragraph(warning, 4)


def _every_k(model: ModelRequests, costs: Costs | None) -> Iterator[str]:
    options = every_k(model)
    choices: dict[float, Choice | None] = {}
    heads = ["K", "drafted", "accepted", "tokens a draft, at least"]
    if costs is not None:
        for batch in costs.batches:
            choices[batch] = choice_at(model, costs.profile, batch)
            heads.append(f"speedup at {batch:g}")
    rows = []
    for option in options:
        k = option.num_speculative_tokens
        row = [
            str(k),
            terminal.length(option.draft_length),
            terminal.length(option.acceptance_length - 1),
            terminal.length(option.acceptance_length),
        ]
        speedups = [choice.option(k).speedup for choice in choices.values() if choice]
        rows.append([*row, *map(terminal.factor, speedups)])
    yield from terminal.table(heads, rows)
    if costs is not None:
        fastest = (
            f"fastest by the cost profile {costs.profile.name}, by requests in the "
            f"batch: {_fastest(len(options), choices)}"
        )
        yield from terminal.paragraph(fastest, 6, "    ")


def _fastest(present: int, choices: Mapping[float, Choice | None]) -> str:
    """Return the fastest K with the batch sizes at which it is that."""
    batches: dict[str, list[str]] = {}
    for batch, choice in choices.items():
        if choice is None:
            continue
        best = choice.best.num_speculative_tokens
        answer = f"K={best}" if best else "no speculation"
        # To stay at the present K needs no certainty.
        if best != present and not choice.surely_better(best, present):
            answer += " (not surely)"
        batches.setdefault(answer, []).append(f"{batch:g}")
    return "; ".join(f"{answer} at {', '.join(at)}" for answer, at in batches.items())


def tenant_ratios(tenant: TenantResult) -> TenantRatios:
    """Return a tenant's requests in ratios."""
    requests = sum(tenant.outcomes.values())
    acceptance_ratio = None
    if tenant.draft_tokens:
        acceptance_ratio = tenant.accepted_tokens / tenant.draft_tokens
    losing_ratio = None
    if requests:
        losing_ratio = tenant.outcomes.get("loses", 0) / requests
    return TenantRatios(
        tenant=tenant.tenant,
        model_name=tenant.model_name,
        requests=requests,
        acceptance_ratio=acceptance_ratio,
        losing_ratio=losing_ratio,
    )
