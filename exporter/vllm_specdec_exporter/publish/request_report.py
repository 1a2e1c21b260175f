"""The report of `requests`, and of `check` on single requests: text for a terminal.

Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    requests_verdict,
)
from . import wording as w
from .numbers import count, counts, percent

_STYLES = {
    RequestsVerdict.GAINING: w.GREEN,
    RequestsVerdict.BREAK_EVEN: w.YELLOW,
    RequestsVerdict.UNKNOWN: w.YELLOW,
}
#: Groups of a model, those with most requests: a screen has about 40 lines.
_MAX_GROUPS = 20
_BIASED = 0.005  # least difference of two acceptance ratios that gets a sentence
#: The flag with which vLLM records speculation in its responses.
FLAG = "--per-request-spec-decode-metrics detailed"


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost profile of a model, and the batch sizes for which to estimate the
    speedup of every K.
    """

    profile: CostProfile
    batches: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TenantRatios:
    """The requests of a tenant since the exporter started."""

    tenant: str
    model_name: str
    requests: int  # requests for which something was drafted
    acceptance_ratio: float | None  # accepted over drafted tokens; none if none drafted
    losing_ratio: float | None  # share of the requests that lose; none without requests


def render(
    requests: RequestsResult, paint: w.Paint, costs: Mapping[str, Costs] | None = None
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
        yield from _tenants(requests.tenants)


def _records(requests: RequestsResult) -> Iterator[str]:
    """Yield the number of observations by record, what to do if there are no records,
    and the tap.
    """
    records: Counter[str] = Counter()
    for item in requests.observations:
        records[item.record] += item.requests
    words = ", ".join(
        f"{count(number)} {name.replace('_', ' ')}"
        for name, number in records.items()
        if number
    )
    yield from w.paragraph(words or "no request was observed", 12, "  records   ")
    recorded = records.total() - records[RecordState.NONE]
    if records.total() and not recorded:
        yield from w.paragraph(
            (
                "No response has a record of speculation. Start vLLM (0.29 or newer) "
                f"with {FLAG}."
            ),
            12,
        )
    elif records[RecordState.SUMMARY] and not records[RecordState.DETAILED]:
        words = (
            "Positions, and what another K would give, need detailed records: start "
            f"vLLM with {FLAG}."
        )
        yield from w.paragraph(words, 12)
    if requests.push_rejected_total:
        yield (
            f"  rejected  {count(requests.push_rejected_total)} pushed observations "
            "that could not be used"
        )
    if requests.tap is not None:
        yield from w.paragraph(_tap(requests.tap), 12, "  tap       ")


def _tap(tap: TapResult) -> str:
    words = (
        f"{tap.address} before {tap.upstream}: {count(tap.connections)} connections "
        "open, "
    )
    words += f"{count(tap.requests_total)} requests passed on"
    for label, reasons in (
        ("not observed", tap.unobserved_total),
        ("failed", tap.upstream_errors_total),
    ):
        words += f"; {label}: {counts(reasons)}" if any(reasons.values()) else ""
    return words


def _verdict(model: ModelRequests, paint: w.Paint) -> Iterator[str]:
    verdict = requests_verdict(model)
    if verdict is RequestsVerdict.UNKNOWN and not model.window_requests:
        words = "no request can be judged"
    elif verdict is RequestsVerdict.UNKNOWN:
        words = (
            f"{count(model.window_requests)} requests are too few to be judged one by "
            "one"
        )
    else:
        words = (
            f"{w.shown(model.gaining_requests_ratio, w.PERCENT)} of "
            f"{count(model.window_requests)} requests "
            f"gain and {w.shown(model.losing_requests_ratio, w.PERCENT)} lose, while "
            f"{w.shown(model.acceptance_ratio, w.PERCENT)} of all drafted tokens are "
            "accepted"
        )
    head = verdict.upper()
    lines = w.paragraph(f"{head}  {_name(model)}: {words}", 4, "  ")
    yield from w.emphasised(lines, head, paint, _STYLES.get(verdict, w.RED))


def _name(model: ModelRequests) -> str:
    return w.printable(model.model_name) or "unnamed model"


def _model(model: ModelRequests, paint: w.Paint, costs: Costs | None) -> Iterator[str]:
    window = f" in the last {model.window}" if model.window else ""
    facts = f"{count(model.window_requests)} requests with something drafted{window}"
    yield from w.emphasised(
        w.paragraph(f"{_name(model)} ({facts})", 4, "  "), _name(model), paint, w.BOLD
    )
    yield ""
    if model.window_requests:
        yield from _numbers(model, costs)
    for finding in model.findings:
        yield from w.finding_lines(finding, f"    {finding.severity}: ", 6, paint)
    if not model.findings:
        yield "    nothing to report"


def _numbers(model: ModelRequests, costs: Costs | None) -> Iterator[str]:
    yield from w.paragraph(_quantiles(model), 14, "    accepted  ")
    yield from w.paragraph(_outcomes(model), 14, "    outcomes  ")
    yield ""
    yield from _groups(model.groups)
    yield ""
    if model.position_acceptance_ratio:
        yield from _positions(model)
        yield ""
        yield from _every_k(model, costs)
        yield ""
    if model.worst:
        yield from _worst(model)
        yield ""


def _quantiles(model: ModelRequests) -> str:
    by_request = percentiles(model.acceptance_quantiles)
    together = w.shown(model.acceptance_ratio, w.PERCENT)
    return f"{by_request} by request; {together} of all drafted tokens together"


def percentiles(quantiles: Mapping[str, float]) -> str:
    """Return acceptance ratios by quantile as ``P10 31.2%, P50 58.0%``."""
    return ", ".join(
        f"P{100 * float(quantile):g} {percent(ratio)}"
        for quantile, ratio in quantiles.items()
    )


def _outcomes(model: ModelRequests) -> str:
    gaining = model.gaining_requests_ratio or 0.0
    losing = model.losing_requests_ratio or 0.0
    words = (
        f"{percent(gaining)} gain, {percent(max(0.0, 1 - gaining - losing))} are near "
        "break-even, "
    )
    words += f"{percent(losing)} lose"
    if losing and model.losing_tokens_ratio is not None:
        words += f" (with {percent(model.losing_tokens_ratio)} of the generated tokens)"
    return words


def _groups(groups: Sequence[GroupWindow]) -> Iterator[str]:
    speedups = any(group.estimated_speedup is not None for group in groups)
    heads = [
        "temp",
        "type",
        "requests",
        "share",
        "accepted",
        "P10",
        "P50",
        "outcome",
        "losing",
        "rejected",
    ]
    heads += ["speedup"] if speedups else []
    rows = []
    for group in groups[:_MAX_GROUPS]:
        if group.judged:
            outcome = (group.outcome or w.DASH).replace("_", "-")
        else:
            outcome = "too few"
        row = [group.temperature, group.request_type, count(group.requests)]
        row += [
            w.shown(group.requests_ratio, w.WHOLE_PERCENT),
            w.shown(group.acceptance_ratio, w.PERCENT),
        ]
        row += [
            w.shown(group.p10, w.WHOLE_PERCENT),
            w.shown(group.p50, w.WHOLE_PERCENT),
            outcome,
        ]
        row += [
            w.shown(group.losing_requests_ratio, w.WHOLE_PERCENT),
            w.shown(group.rejected_ratio, w.WHOLE_PERCENT),
        ]
        row += [w.shown(group.estimated_speedup, w.FACTOR)] if speedups else []
        rows.append(row)
    yield from w.table(heads, rows, left=("temp", "type", "outcome"), shorten="type")
    rest = groups[_MAX_GROUPS:]
    if rest:
        yield (
            f"    and {len(rest)} groups more with "
            f"{count(sum(group.requests for group in rest))} requests"
        )


def _positions(model: ModelRequests) -> Iterator[str]:
    every = position_acceptances(model)
    rows = [
        [str(at), percent(p.where_drafted), percent(p.of_all_drafts)]
        for at, p in enumerate(every)
    ]
    yield from w.table(("position", "accepted where drafted", "of all drafts"), rows)
    differences = [
        position.where_drafted - position.of_all_drafts for position in every
    ]
    if max(differences) > _BIASED:
        place = differences.index(max(differences))
        words = (
            "Drafts vary in length. Counted over all drafts, as on /metrics, "
            f"position {place} "
            f"looks {100 * differences[place]:.1f} points worse than it is."
        )
        yield from w.paragraph(words, 4)


def _every_k(model: ModelRequests, costs: Costs | None) -> Iterator[str]:
    options = every_k(model)
    batches = costs.batches if costs else ()
    if costs:
        choices = [choice_at(model, costs.profile, batch) for batch in batches]
    else:
        choices = []
    heads = ["K", "drafted", "accepted", "tokens a draft, at least"]
    heads += [f"speedup at {batch:g}" for batch in batches]
    rows = []
    for option in options:
        k = option.num_speculative_tokens
        accepted = option.acceptance_length
        lengths = (
            w.LENGTH.format(value)
            for value in (option.draft_length, accepted - 1, accepted)
        )
        speedups = (
            w.shown(choice.option(k).speedup, w.FACTOR) for choice in choices if choice
        )
        rows.append([str(k), *lengths, *speedups])
    yield from w.table(heads, rows)
    if costs is not None:
        yield from _best(len(options), dict(zip(batches, choices, strict=True)), costs)


def _best(
    present: int, choices: Mapping[float, Choice | None], costs: Costs
) -> Iterator[str]:
    at: dict[str, list[str]] = {}
    for batch, choice in choices.items():
        if choice is None:
            continue
        best = choice.best.num_speculative_tokens
        sure = best == present or choice.surely_better(best, present)
        words = (f"K={best}" if best else "no speculation") + (
            "" if sure else " (not surely)"
        )
        at.setdefault(words, []).append(f"{batch:g}")
    answers = "; ".join(
        f"{words} at {', '.join(batches)}" for words, batches in at.items()
    )
    yield from w.paragraph(
        (
            f"fastest by the cost profile {costs.profile.name}, by requests in the "
            f"batch: {answers}"
        ),
        6,
        "    ",
    )


def _worst(model: ModelRequests) -> Iterator[str]:
    heads = ("accepted", "drafts", "temp", "type", "worst requests")
    rows = []
    for request in model.worst:
        row = [percent(request.acceptance_ratio), count(request.drafts)]
        rows.append(
            [
                *row,
                request.temperature,
                request.request_type,
                request.request_id or w.DASH,
            ]
        )
    yield from w.table(
        heads, rows, left=("temp", "type", "worst requests"), shorten="type"
    )


def _tenants(tenants: Iterable[TenantResult]) -> Iterator[str]:
    rows = []
    for tenant in tenants:
        ratios = tenant_ratios(tenant)
        rows.append(
            [
                ratios.tenant,
                ratios.model_name,
                count(ratios.requests),
                w.shown(ratios.acceptance_ratio, w.PERCENT),
                w.shown(ratios.losing_ratio, w.WHOLE_PERCENT),
            ]
        )
    heads = ("tenant", "model", "requests", "accepted", "losing")
    yield from w.table(heads, rows, left=("tenant", "model"), shorten="model")


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
