"""The report on single requests as text for a terminal. Pure.

Lines are wrapped at 100 columns. What came from outside cannot steer the terminal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..judgement.findings import Severity
from ..requests.judgement import choice_at, every_k, positions
from ..requests.observation import RecordState
from ..requests.result import RequestsVerdict, requests_verdict
from .markup import count, percent
from .wording import printable
from .wording import wrap as wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..economics.choice import Choice
    from ..economics.cost import CostProfile
    from ..judgement.findings import Finding
    from ..requests.result import GroupWindow, ModelRequests, RequestsResult, TapResult

    #: Emphasises a text in a style.
    Paint = Callable[[str, str], str]

_BOLD, _RED, _YELLOW, _GREEN = "1", "31", "33", "32"
_STYLES = {
    RequestsVerdict.GAINING: _GREEN,
    RequestsVerdict.BREAK_EVEN: _YELLOW,
    RequestsVerdict.UNKNOWN: _YELLOW,
}
_WIDTH = 100
_NONE = "–"
#: Groups that are shown, those with most requests; how much of the name of a type at the least.
_MOST_GROUPS, _LEAST_TYPE = 20, 8
#: Difference of two acceptances that is worth a sentence.
_BIASED = 0.005

#: What to start vLLM with.
FLAG = "--per-request-spec-decode-metrics detailed"


@dataclass(frozen=True, slots=True)
class Costs:
    """What steps are taken to cost, to tell what every K would gain.

    Attributes:
        profile: of the model.
        batches: the numbers of requests in the batch to tell it for.
    """

    profile: CostProfile
    batches: tuple[float, ...]


def render(requests: RequestsResult, paint: Paint, costs: Mapping[str, Costs] | None = None) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        requests: what is known.
        paint: emphasises.
        costs: what steps cost, by model; without it the speedup of other K is not told.
    """
    yield from _records(requests)
    for finding in requests.findings:
        yield from _finding(finding, f"  {finding.severity:<10}", 12, paint)
    for found in requests.models:
        yield from _verdict(found, paint)
    for found in requests.models:
        yield ""
        yield from _model(found, paint, (costs or {}).get(found.model_name))
    if requests.tenants:
        yield ""
        yield from _tenants(requests)


def _records(requests: RequestsResult) -> Iterator[str]:
    """Yield what answers told of speculation, and what to do where they told nothing."""
    found: Counter[str] = Counter()
    for item in requests.observations:
        found[item.record] += item.requests
    told = ", ".join(f"{count(number)} {name.replace('_', ' ')}" for name, number in found.items() if number)
    yield from _wrap(told or "no request was observed", "  records   ", 12)
    recorded = found.total() - found[RecordState.NONE]
    if found.total() and not recorded:
        yield from _wrap(f"No answer tells of speculation. Start vLLM (0.29 or newer) with {FLAG}.", "", 12)
    elif found[RecordState.SUMMARY] and not found[RecordState.DETAILED]:
        words = f"Positions, and what another K would give, need detailed records: start vLLM with {FLAG}."
        yield from _wrap(words, "", 12)
    if requests.push_rejected_total:
        yield f"  rejected  {count(requests.push_rejected_total)} pushed observations that could not be used"
    if requests.tap is not None:
        yield from _wrap(tap_words(requests.tap), "  tap       ", 12)


def tap_words(tap: TapResult) -> str:
    """Return the state of the tap in words."""
    words = f"{tap.address} before {tap.upstream}: {count(tap.connections)} connections open, "
    words += f"{count(tap.requests_total)} requests passed on"
    for told, counts in (("not looked at", tap.unobserved_total), ("failed", tap.upstream_errors_total)):
        reasons = ", ".join(f"{reason} {count(number)}" for reason, number in counts.items() if number)
        words += f"; {told}: {reasons}" if reasons else ""
    return words


def _verdict(found: ModelRequests, paint: Paint) -> Iterator[str]:
    word = requests_verdict(found)
    first, *rest = _wrap(f"{word.upper()}  {_name(found)}: {_told(found)}", "  ", 4)
    yield first.replace(word.upper(), paint(word.upper(), _STYLES.get(word, _RED)), 1)
    yield from rest


def _told(found: ModelRequests) -> str:
    if requests_verdict(found) is RequestsVerdict.UNKNOWN:
        return f"{count(found.window_requests)} requests are too few to be judged one by one"
    return (
        f"{_percent(found.gaining_requests_ratio)} of {count(found.window_requests)} requests gain and "
        f"{_percent(found.losing_requests_ratio)} lose, while {_percent(found.acceptance_ratio)} of all "
        "drafted tokens are accepted"
    )


def _name(found: ModelRequests) -> str:
    return printable(found.model_name) or "unnamed model"


def _model(found: ModelRequests, paint: Paint, costs: Costs | None) -> Iterator[str]:
    window = f" in the last {found.window}" if found.window else ""
    facts = f"{count(found.window_requests)} requests with something drafted{window}"
    first, *rest = _wrap(f"{_name(found)} ({facts})", "  ", 4)
    yield first.replace(_name(found), paint(_name(found), _BOLD), 1)
    yield from rest
    yield ""
    if found.window_requests:
        yield from _numbers(found, costs)
    for finding in found.findings:
        yield from _finding(finding, f"    {finding.severity}: ", 6, paint)
    if not found.findings:
        yield "    nothing to report"


def _finding(finding: Finding, begin: str, hang: int, paint: Paint) -> Iterator[str]:
    first, *rest = _wrap(finding.text, begin, hang)
    yield paint(first, _RED if finding.severity is Severity.PROBLEM else _YELLOW)
    yield from rest
    yield from _wrap(finding.action, "", hang)


def _numbers(found: ModelRequests, costs: Costs | None) -> Iterator[str]:
    yield from _wrap(_quantiles(found), "    accepted  ", 14)
    yield from _wrap(_outcomes(found), "    outcomes  ", 14)
    yield ""
    yield from _groups(found.groups)
    yield ""
    if found.position_acceptance_ratio:
        yield from _positions(found)
        yield ""
        yield from _every_k(found, costs)
        yield ""
    if found.worst:
        yield from _worst(found)
        yield ""


def _quantiles(found: ModelRequests) -> str:
    by_request = ", ".join(
        f"P{100 * float(quantile):g} {percent(ratio)}"
        for quantile, ratio in found.acceptance_quantiles.items()
    )
    return f"{by_request} by request; {_percent(found.acceptance_ratio)} of all drafted tokens together"


def _outcomes(found: ModelRequests) -> str:
    gaining, losing = found.gaining_requests_ratio or 0.0, found.losing_requests_ratio or 0.0
    words = f"{percent(gaining)} gain, {percent(max(0.0, 1 - gaining - losing))} are near break-even, "
    words += f"{percent(losing)} lose"
    if losing and found.losing_tokens_ratio is not None:
        words += f" (with {percent(found.losing_tokens_ratio)} of the generated tokens)"
    return words


def _groups(groups: Sequence[GroupWindow]) -> Iterator[str]:
    speedups = any(group.estimated_speedup is not None for group in groups)
    heads = ["temp", "type", "requests", "share", "accepted", "P10", "P50", "outcome", "losing", "rejected"]
    heads += ["speedup"] if speedups else []
    rows = []
    for group in groups[:_MOST_GROUPS]:
        outcome = (group.outcome or _NONE).replace("_", "-") if group.judged else "too few"
        row = [group.temperature, group.request_type, count(group.requests), f"{group.requests_ratio:.0%}"]
        row += [_percent(group.acceptance_ratio), _whole(group.p10), _whole(group.p50), outcome]
        row += [_whole(group.losing_requests_ratio), _whole(group.rejected_ratio)]
        row += [_times(group.estimated_speedup)] if speedups else []
        rows.append(row)
    yield from _table(heads, rows, left=("temp", "type", "outcome"), shorten="type")
    left = groups[_MOST_GROUPS:]
    if left:
        yield f"    and {len(left)} groups more with {count(sum(group.requests for group in left))} requests"


def _positions(found: ModelRequests) -> Iterator[str]:
    every = positions(found)
    rows = [
        [
            str(place),
            percent(p.where_drafted),
            percent(p.of_all_drafts),
            f"{round(100 * p.bias, 1) + 0.0:.1f} points",
        ]
        for place, p in enumerate(every)
    ]
    yield from _table(("position", "accepted where drafted", "of all drafts", "bias"), rows)
    worst = min(every, key=lambda position: position.bias)
    if worst.bias < -_BIASED:
        place = every.index(worst)
        words = (
            f"Drafts vary in length. Counted over all drafts, as on /metrics, position {place} looks "
            f"{-100 * worst.bias:.1f} points worse than it is."
        )
        yield from _wrap(words, "    ", 4)


def _every_k(found: ModelRequests, costs: Costs | None) -> Iterator[str]:
    options = every_k(found)
    batches = costs.batches if costs else ()
    choices = [choice_at(found, costs.profile, batch) for batch in batches] if costs else []
    heads = ["K", "drafted", "accepted", "tokens a draft"]
    heads += [f"speedup at {batch:g}" for batch in batches]
    rows = [
        [
            str(option.num_speculative_tokens),
            f"{option.draft_length:.2f}",
            f"{option.acceptance_length - 1:.2f}",
            f"{option.acceptance_length:.2f}",
            *(_times(c.option(option.num_speculative_tokens).speedup) for c in choices if c),
        ]
        for option in options
    ]
    yield from _table(heads, rows)
    if costs is None:
        return
    yield from _best(len(options), dict(zip(batches, choices, strict=True)), costs)


def _best(present: int, choices: Mapping[float, Choice | None], costs: Costs) -> Iterator[str]:
    """Yield which K is the fastest, for each of the batches; those with the same answer together."""
    told: dict[str, list[str]] = {}
    for batch, choice in choices.items():
        if choice is None:
            continue
        best = choice.best.num_speculative_tokens
        sure = best == present or choice.surely_better(best, present)
        words = (f"K={best}" if best else "no speculation") + ("" if sure else " (not surely)")
        told.setdefault(words, []).append(f"{batch:g}")
    answers = ", ".join(f"{words} at {_listed(at)}" for words, at in told.items())
    name = printable(costs.profile.name)
    yield from _wrap(f"fastest by the cost profile {name}, by requests in the batch: {answers}", "    ", 6)


def _worst(found: ModelRequests) -> Iterator[str]:
    heads = ("accepted", "drafts", "temp", "type", "worst requests")
    rows = [
        [
            percent(request.acceptance_ratio),
            count(request.drafts),
            request.temperature,
            request.request_type,
            request.request_id or _NONE,
        ]
        for request in found.worst
    ]
    yield from _table(heads, rows, left=("temp", "type", "worst requests"), shorten="type")


def _tenants(requests: RequestsResult) -> Iterator[str]:
    rows = []
    for tenant in requests.tenants:
        total = sum(tenant.outcomes.values())
        losing = tenant.outcomes.get("loses", 0) / total if total else None
        ratio = tenant.accepted_tokens / tenant.draft_tokens if tenant.draft_tokens else None
        rows.append([tenant.tenant, tenant.model_name, count(total), _percent(ratio), _whole(losing)])
    heads = ("tenant", "model", "requests", "accepted", "losing")
    yield from _table(heads, rows, left=("tenant", "model"), shorten="model")


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = (), shorten: str = ""
) -> Iterator[str]:
    """Yield a table; numbers to the right, the columns in `left` to the left, `shorten` where it must be."""
    lines = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    if shorten:
        place = heads.index(shorten)
        room = _WIDTH - 4 - 2 * (len(heads) - 1) - sum(widths) + widths[place]
        widths[place] = min(widths[place], max(_LEAST_TYPE, room))
        for line in lines:
            line[place] = _cut(line[place], widths[place])
    for line in lines:
        cells = (
            f"{cell:<{width}}" if head in left else f"{cell:>{width}}"
            for head, cell, width in zip(heads, line, widths, strict=True)
        )
        yield f"    {'  '.join(cells)}".rstrip()


def _cut(text: str, width: int) -> str:
    """Return a text without its middle where it is too long: names often differ at their ends."""
    if len(text) <= width:
        return text
    end = width // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _wrap(text: str, indent: str, hang: int) -> list[str]:
    return wrapped(printable(text), indent or " " * hang, hang, _WIDTH)


def _percent(value: float | None) -> str:
    return _NONE if value is None else percent(value)


def _whole(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0%}"


def _times(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}x"
