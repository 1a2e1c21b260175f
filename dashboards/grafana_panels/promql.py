"""PromQL: the expressions that panels share.

Ratios are never averaged: numerator and denominator are summed apart, and divided at the end. Tiles and
tables use what the exporter derived over its own window, as it judges; lines use rates over what Grafana
finds right for the zoom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .variables import ENGINE, TARGET

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What an engine is known by; absent labels are no matter.
IDENTITY = "cluster, namespace, job, instance, pod, target, model_name, engine"
#: What an exporter is known by.
PLACE = "cluster, namespace, job, instance, pod"
#: One model, whatever its replicas.
MODEL = "cluster, namespace, model_name"
#: How a model is called in a legend; absent labels leave nothing.
MODEL_LEGEND = "{{cluster}} {{namespace}} {{model_name}}"

INTERVAL = "$__rate_interval"

#: What tells the exporters among all that Prometheus scrapes: All jobs would be the jobs of others, too.
KNOWN = f"on ({PLACE}) last_over_time(vllm_specdec_build_info{{{TARGET}}}[1d])"


def total(inner: str, by: str = "", operator: str = "sum") -> str:
    """Return the sum of an expression, of everything or by labels."""
    return f"{operator} by ({by}) ({inner})" if by else f"{operator}({inner})"


def gauge(series: str, select: str = ENGINE, **matchers: str) -> str:
    """Return one of the exporter's series."""
    own = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return f"vllm_specdec_{series}{{{select}{own}}}"


def windowed(series: str, select: str = ENGINE, **matchers: str) -> str:
    """Return one of the exporter's gauges over the chosen window."""
    return gauge(series, select, window="$window", **matchers)


def rate(name: str, by: str = "", select: str = ENGINE) -> str:
    """Return the rate of one of the exporter's counters, summed."""
    return total(f"rate({gauge(name + '_total', select)}[{INTERVAL}])", by)


def exporters() -> str:
    """Return whether Prometheus reaches each exporter: those known today, or of the name that the rules expect."""
    # One of each place, however many ports of it are scraped.
    named = f'up{{{TARGET},job=~"(.+/)?vllm-specdec-exporter"}}'
    return f"(max by ({PLACE}) (up{{{TARGET}}}) and {KNOWN} or max by ({PLACE}) ({named}))"


def threshold(name: str, select: str = TARGET) -> str:
    """Return a threshold in force; the lowest, where exporters disagree."""
    return f"min({gauge('threshold', select, name=name)})"


def threshold_of(name: str, by: str) -> str:
    """Return a threshold in force for each model or engine: that of the exporter which watches it."""
    own = f"max by ({PLACE}) ({gauge('threshold', TARGET, name=name)})"
    return f"min by ({by}) ({own} * on ({PLACE}) group_right () {gauge('info')})"


def per_request(select: str = ENGINE, keep: str = "", *, now: bool = False) -> str:
    """Return the tokens a second of each request in the batches: what a user feels, with drafts or without.

    Both over the same time: requests come and go faster than they are looked at.
    """
    over = "5m" if now else INTERVAL
    running = f"avg_over_time({gauge('requests_running', select)}[{over}])"
    tokens = f"rate({gauge('generation_tokens_total', select)}[{over}])"
    return f"{total(tokens + keep)} / ({total(running + keep)} > 0)"


def counted(series: str, select: str, by: str = "", *, over: str = INTERVAL, **matchers: str) -> str:
    """Return the rate of any counter, summed."""
    own = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return total(f"rate({series}{{{select}{own}}}[{over}])", by)


def quantile(
    histogram: str, select: str, share: float, by: str = "", *, over: str = INTERVAL, above: float = 0
) -> str:
    """Return a quantile of any histogram, if it is above a bound; without observations there is none, not NaN."""
    labels = f"le, {by}" if by else "le"
    found = f"histogram_quantile({share:g}, {counted(histogram + '_bucket', select, labels, over=over)})"
    return f"{found} > {above:g}" if above else f"{found} >= 0"


class Flow:
    """Ratios of what is counted: of sums, over rates (`rate`) or over the exporter's window (`per_second`)."""

    def __init__(self, by: str = "", select: str = ENGINE, *, now: bool = False, keep: str = "") -> None:
        self._by, self._select, self._now, self._keep = by, select, now, keep

    def of(self, name: str) -> str:
        """Return a flow in units per second; `keep` is what a single engine must match."""
        flow = (
            windowed(f"{name}_per_second", self._select)
            if self._now
            else f"rate({gauge(name + '_total', self._select)}[{INTERVAL}])"
        )
        return total(flow + self._keep, self._by)

    def acceptance(self) -> str:
        """Return accepted over draft tokens."""
        return f"{self.of('accepted_tokens')} / ({self.of('draft_tokens')} > 0)"

    def length(self) -> str:
        """Return the mean acceptance length."""
        return f"1 + {self.of('accepted_tokens')} / ({self.of('drafts')} > 0)"

    def draft_length(self) -> str:
        """Return draft tokens per draft."""
        return f"{self.of('draft_tokens')} / ({self.of('drafts')} > 0)"

    def coverage(self) -> str:
        """Return the share of the output that came out of drafts."""
        emitted = f"({self.of('accepted_tokens')} + {self.of('drafts')})"
        return f"clamp_max({emitted} / ({self.of('generation_tokens')} > 0), 1)"

    def waste(self) -> str:
        """Return the share of the verified tokens that was thrown away."""
        drafted, accepted = self.of("draft_tokens"), self.of("accepted_tokens")
        return f"clamp_min({drafted} - {accepted}, 0) / (({drafted} + {self.of('drafts')}) > 0)"


def speedup(by: str = "", select: str = ENGINE, keep: str = "") -> str:
    """Return the speedup of any number of engines: all their tokens over the plain time that they took."""
    generated, own = windowed("generation_tokens_per_second", select), gauge("speedup", select)
    made = total(f"({generated} and ignoring (window, basis) {own}){keep}", by)
    spent = total(f"({generated} / ignoring (window, basis) {own}){keep}", by)
    return f"{made} / ({spent} > 0)"


def weighted(value: str, weight: str, by: str = "", own: str = "") -> str:
    """Return the mean of a windowed ratio of engines, weighted with its denominator: a ratio of sums.

    Args:
        value: the ratio, one series for each engine and each value of its own label.
        weight: what it divides by, one series for each engine.
        by: labels to keep.
        own: the label that only the ratio has.
    """
    match = f" ignoring ({own}) group_left ()" if own else ""
    parts = total(f"{value} *{match} {weight}", by)
    whole = total(f"0 * {value} +{match} {weight}", by)
    return f"{parts} / ({whole} > 0)"


def common(of: str, each: str) -> str:
    """Return a condition on a bar: that all engines have it which have the first one.

    Engines with a smaller K have nothing farther out, and bars of different engines are not comparable.
    """
    return f" unless on () (count({of}) < count({each}))"


def single(value: str) -> str:
    """Return how often the value is there that all have, or the word that there are several."""
    each = f'count_values("k", {value})'
    several = f'label_replace(count({each}) > 1, "k", "several", "", "")'
    return f"({each} unless on () (count({each}) > 1)) or on () {several}"


def decline() -> str:
    """Return the geometric mean of the conditional ratios behind position 0."""
    behind = ENGINE + ',position!="0"'
    accepted = rate("accepted_tokens_per_position", "position", behind)
    return f"exp(avg(ln({accepted} / ({rate('drafts_reaching_position', 'position', behind)} > 0))))"


def harmonic(value: str, weight: str, by: str = "", own: str = "") -> str:
    """Return a quotient of sums from quotients whose numerators are known: all of them over all they divide by.

    Args:
        value: the quotient, one series for each engine and each value of its own label.
        weight: its numerator, one series for each engine.
        by: labels to keep.
        own: the label that only the quotient has, which then has no window.
    """
    match = f"ignoring ({own}, window) group_left ()" if own else ""
    made = total(f"0 * {value} + {match} {weight}", by)
    spent = total(f"1 / ({value} > 0) * {match} {weight}", by)
    return f"{made} / ({spent} > 0)"


def survival(position: int | None = None, *, over: str = INTERVAL) -> str:
    """Return the share of drafts accepted at each position or at one, of the engines that draft so far."""
    own, by = ({}, "position") if position is None else ({"position": str(position)}, "")
    accepted = f"rate({gauge('accepted_tokens_per_position_total', **own)}[{over}])"
    drafts = f"rate({gauge('drafts_total')}[{over}])"
    reached = f"0 * {accepted} + ignoring (position) group_left () {drafts}"
    return f"{total(accepted, by)} / ({total(reached, by)} > 0)"


def to_the_end() -> str:
    """Return the share of drafts accepted at the last position, whatever that is for each engine."""
    accepted = f"rate({gauge('accepted_tokens_per_position_total')}[{INTERVAL}])"
    return f"sum(min without (position) ({accepted})) / ({rate('drafts')} > 0)"


def conditional() -> str:
    """Return the share of the drafts that got as far as each position in which it was accepted too."""
    accepted, reaching = (
        rate("accepted_tokens_per_position", "position"),
        rate("drafts_reaching_position", "position"),
    )
    return f"{accepted} / ({reaching} > 0)"


def accepted_further() -> str:
    """Return the share of all drafts in which each position was accepted, so in which more tokens were."""
    accepted = rate("accepted_tokens_per_position", "position")
    return f"{accepted} / ignoring (position) group_left () ({rate('drafts')} > 0)"


def accepted_quantile(quantile: float) -> str:
    """Return a quantile of accepted tokens per draft: a whole number, exactly.

    The least number that so many drafts do not exceed is the number of positions that more than the others
    accept. `histogram_quantile` would make up fractions.
    """
    return f"sum({accepted_further()} > bool {1 - quantile:g})"


def accepted_buckets() -> str:
    """Return the cumulative buckets of accepted tokens per draft, as shares of the drafts.

    An engine with a smaller K has no bucket for what it never drafts; all its drafts belong there. The last
    bucket holds all drafts, so +Inf would add an empty row, or a wrong one where K changes.
    """
    finite = ENGINE + ',le!="+Inf"'
    bucket = f"increase({gauge('accepted_tokens_per_draft_bucket', finite)}[{INTERVAL}])"
    count = f"increase({gauge('accepted_tokens_per_draft_count')}[{INTERVAL}])"
    counted = f"sum by (le) (0 * {bucket} + ignoring (le) group_left () {count})"
    drafts = f"sum by (le) ({bucket}) - {counted} + on () group_left () sum({count})"
    return f"({drafts}) / on () group_left () (sum({count}) > 0)"


def share_of_engines(states: str, label: str) -> str:
    """Return the share of engines in each state of a one-hot gauge; states without any are left out."""
    return f"count by ({label}) ({states} == 1) / ignoring ({label}) group_left () count({states} == 1)"


def share(states: str, weight: str, label: str) -> str:
    """Return how much of a weight falls to each state of a one-hot gauge; states without any are left out."""
    parts = f"sum by ({label}) (({states} == 1) * ignoring ({label}, window) group_left () {weight})"
    return f"{parts} / ignoring ({label}) group_left () (sum({weight}) > 0)"


def renamed(expr: str, label: str, words: Mapping[str, str]) -> str:
    """Return an expression whose label has words for people in the place of codes."""
    for code, word in words.items():
        if code != word:
            expr = f'label_replace({expr}, "{label}", "{word}", "{label}", "{code}")'
    return expr


def shares(found: str, label: str, words: Mapping[str, str]) -> str:
    """Return the states with their shares, the greatest first, by their words."""
    return f"sort_desc({renamed(found, label, words)})"


def most(shares: str, label: str, words: Mapping[str, str]) -> str:
    """Return the state with the greatest share, by its word."""
    return renamed(f"topk(1, {shares})", label, words)
