"""PromQL: the expressions that panels share.

Ratios are never averaged: numerator and denominator are summed separately and divided at the end. Tables use what
the exporter derived over its own window, as its judgement does; lines use rates over Grafana's rate interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixin import CLUSTER, JOB

from .variables import MODELS, TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Labels that identify an engine; any of them may be absent.
IDENTITY = f"{CLUSTER}, namespace, job, instance, pod, target, model_name, engine"
#: Labels that identify an exporter.
PLACE = f"{CLUSTER}, namespace, job, instance, pod"
#: Labels that identify a model with all its replicas.
MODEL = f"{CLUSTER}, namespace, model_name"
#: A model in a legend; absent labels leave nothing.
CLUSTER_LEGEND = f"{{{{{CLUSTER}}}}}"
MODEL_LEGEND = f"{CLUSTER_LEGEND} {{{{namespace}}}} {{{{model_name}}}}"

INTERVAL = "$__rate_interval"
#: Selects the exporters among all scrape targets.
KNOWN = f"on ({PLACE}) last_over_time(vllm_specdec_build_info{{{TARGETS}}}[1d])"
#: Whether each scraped exporter answers: those seen within a day, or with the job name that the rules expect.
EXPORTERS = (
    f'(max by ({PLACE}) (up{{{TARGETS}}}) and {KNOWN} or max by ({PLACE}) (up{{{TARGETS},job=~"{JOB}"}}))'
)
#: Always fires where the rules are loaded: tells "no alert" from "no rules".
WATCHDOG = 'ALERTS{alertname="VLLMSpecDecodeWatchdog",alertstate="firing"}'


#: Engines that answered at some of these times within an hour: to read all samples of the hour at each point of a
#: line would take a hundred times as many.
_INFO = f"vllm_specdec_info{{{MODELS}}}"
SEEN = f"({_INFO} or {' or '.join(f'{_INFO} offset {ago}' for ago in ('5m', '15m', '30m', '1h'))})"
#: vLLM's own counters: what is known of a model that no exporter watches.
_OF_VLLM = {
    "drafts": "«vllm»spec_decode_num_drafts_total",
    "draft_tokens": "«vllm»spec_decode_num_draft_tokens_total",
    "accepted_tokens": "«vllm»spec_decode_num_accepted_tokens_total",
    "generation_tokens": "«vllm»generation_tokens_total",
}


def or_own_series(expr: str, *own: str, label: str = "model_name") -> str:
    """Return an expression of the exporter's series by model, and of a server's own where it has no result.

    By the name of the model alone: the exporter and the server may be scraped with different labels.
    """
    return "".join([expr, *(f"\nor on ({label}) ({one})" for one in own)])


def total(inner: str, by: str = "", operator: str = "sum") -> str:
    """Return the sum of an expression, of everything or by labels."""
    return f"{operator} by ({by}) ({inner})" if by else f"{operator}({inner})"


def metric(series: str, select: str = MODELS, **matchers: str) -> str:
    """Return one of the exporter's series."""
    own = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return f"vllm_specdec_{series}{{{select}{own}}}"


def windowed(series: str, **matchers: str) -> str:
    """Return one of the exporter's gauges over the chosen window."""
    return metric(series, window="$window", **matchers)


#: Drafts and generated tokens per second of each engine, which ratios and speedups are weighted with.
DRAFTS = windowed("drafts_per_second")
GENERATED = windowed("generation_tokens_per_second")


def rate(name: str, by: str = "") -> str:
    """Return the rate of one of the exporter's counters, summed."""
    return summed_rate(f"vllm_specdec_{name}_total", by=by)


def summed_rate(
    series: str, select: str = MODELS, by: str = "", *, over: str = INTERVAL, **matchers: str
) -> str:
    """Return the rate of any counter, summed."""
    own = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return total(f"rate({series}{{{select}{own}}}[{over}])", by)


def threshold(name: str, models: str = "") -> str:
    """Return a threshold in force by model: that of the exporter which watches it, the lowest if several do.

    Args:
        name: of the threshold.
        models: 1 for each exporter and model; by default for all engines.
    """
    own = f"max by ({PLACE}) ({metric('threshold', TARGETS, threshold=name)})"
    return f"min by ({MODEL}) ({own} * on ({PLACE}) group_right () {models or metric('info')})"


def agreed(thresholds: str) -> str:
    """Return a threshold of several models as one series without labels, or if they differ, that of each."""
    return f"min({thresholds}) == max({thresholds})\nor on () {thresholds}"


def quantile(
    histogram: str,
    share: float,
    select: str = MODELS,
    by: str = "",
    *,
    over: str = INTERVAL,
    above: float = 0,
) -> str:
    """Return a quantile of any histogram, if it is above a bound; without observations it is absent, not NaN."""
    labels = f"le, {by}" if by else "le"
    estimate = (
        f"histogram_quantile({share:g}, {summed_rate(histogram + '_bucket', select, labels, over=over)})"
    )
    return f"{estimate} > {above:g}" if above else f"{estimate} >= 0"


class Flow:
    """Ratios of counters: of sums, over rates, or over the exporter's window (`now`).

    Of models, those that no exporter watches too: from the server's own counters, `now` over five minutes.
    """

    def __init__(self, by: str = "", *, now: bool = False) -> None:
        self._by, self._now = by, now

    def of(self, name: str) -> str:
        """Return a counter's increase per second."""
        return self._filled("{0}", name)

    def acceptance(self) -> str:
        """Return accepted over draft tokens."""
        of_sglang = f"clamp_max({self._of_sglang('accepted')} / ({self._of_sglang('drafted')} > 0), 1)"
        return self._filled("{0} / ({1} > 0)", "accepted_tokens", "draft_tokens", of_sglang=of_sglang)

    def length(self) -> str:
        """Return the mean acceptance length."""
        of_sglang = f"1 + {self._of_sglang('accepted')} / ({self._of_sglang('drafts')} > 0)"
        return self._filled("1 + {0} / ({1} > 0)", "accepted_tokens", "drafts", of_sglang=of_sglang)

    def draft_length(self) -> str:
        """Return draft tokens per draft."""
        return self._filled("{0} / ({1} > 0)", "draft_tokens", "drafts")

    def coverage(self) -> str:
        """Return the share of the output that came out of drafts."""
        names = ("accepted_tokens", "drafts", "generation_tokens")
        return self._filled("clamp_max(({0} + {1}) / ({2} > 0), 1)", *names)

    def rejected(self) -> str:
        """Return draft tokens that were not accepted, per second."""
        return self._filled("clamp_min({0} - {1}, 0)", "draft_tokens", "accepted_tokens")

    def waste(self) -> str:
        """Return the share of the verified tokens that was rejected."""
        names = ("draft_tokens", "accepted_tokens", "drafts")
        return self._filled("clamp_min({0} - {1}, 0) / (({0} + {2}) > 0)", *names)

    @property
    def _over(self) -> str:
        return "5m" if self._now else INTERVAL

    def _filled(self, ratio: str, *names: str, of_sglang: str = "") -> str:
        """Return a ratio of counters."""
        of_exporter = [
            total(windowed(f"{name}_per_second"), self._by) if self._now else rate(name, self._by)
            for name in names
        ]
        expr = ratio.format(*of_exporter)
        if self._by == IDENTITY:
            return expr
        of_vllm = (summed_rate(_OF_VLLM[name], by=self._by, over=self._over) for name in names)
        return or_own_series(expr, ratio.format(*of_vllm), *filter(None, [of_sglang]))

    def _of_sglang(self, what: str) -> str:
        """Return drafts, or accepted or drafted tokens, per second, by SGLang's own series.

        They are computed as by the exporter. Drafted tokens are unknown while drafts are trees, or K differs
        between servers or within the time.
        """
        drafts, generated, requests = (
            summed_rate(f"sglang:{name}_total", by=self._by, over=self._over)
            for name in ("spec_verify_calls", "generation_tokens", "num_requests")
        )
        if what == "accepted":
            return f"({generated} - {requests} - {drafts})"
        if what == "drafts":
            return drafts
        steps, tokens = (
            f"sglang:spec_num_{name}{{{MODELS}}}[{self._over}]" for name in ("steps", "draft_tokens")
        )
        k = f"min_over_time({steps}) == max_over_time({tokens}) - 1"
        return f"({drafts} * ({total(k, self._by, 'min')} == {total(k, self._by, 'max')}))"


def speedup(by: str = "") -> str:
    """Return the speedup of any number of engines: all their tokens over the plain time that they took."""
    own = metric("speedup")
    made = total(f"{GENERATED} and ignoring (window, basis) {own}", by)
    spent = total(f"{GENERATED} / ignoring (window, basis) {own}", by)
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


def harmonic(value: str, weight: str, by: str = "", own: str = "") -> str:
    """Return a ratio of sums from ratios whose numerators are known: their sum over that of the denominators.

    Args:
        value: the ratio, one series for each engine and each value of its own label.
        weight: its numerator, one series for each engine.
        by: labels to keep.
        own: the label that only the ratio has, which then has no window.
    """
    match = f"ignoring ({own}, window) group_left ()" if own else ""
    made = total(f"0 * {value} + {match} {weight}", by)
    spent = total(f"1 / ({value} > 0) * {match} {weight}", by)
    return f"{made} / ({spent} > 0)"


#: Break-even by model: what a draft must emit to be worth its cost.
BREAK_EVEN = weighted(windowed("break_even_acceptance_length"), DRAFTS, MODEL)


def survival(over: str = INTERVAL) -> str:
    """Return the share of drafts accepted at each position, of the engines that draft so far."""
    accepted = f"rate({metric('accepted_tokens_per_position_total')}[{over}])"
    drafts = f"rate({metric('drafts_total')}[{over}])"
    reached = f"0 * {accepted} + ignoring (position) group_left () {drafts}"
    of_exporter = f"{total(accepted, 'position')} / ({total(reached, 'position')} > 0)"
    own = summed_rate("«vllm»spec_decode_num_accepted_tokens_per_pos_total", by="position", over=over)
    drafts = summed_rate(_OF_VLLM["drafts"], over=over)
    return or_own_series(of_exporter, f"{own} / on () group_left () ({drafts} > 0)", label="")


def conditional() -> str:
    """Return the share of the drafts that reached each position in which it was accepted too."""
    accepted, reaching = (
        rate(name, "position") for name in ("accepted_tokens_per_position", "drafts_reaching_position")
    )
    return f"{accepted} / ({reaching} > 0)"


def accepted_buckets() -> str:
    """Return the cumulative buckets of accepted tokens per draft, as shares of the drafts.

    An engine with a smaller K has no bucket for what it never drafts; all its drafts belong there. The last
    bucket holds all drafts, so +Inf would add an empty row, or a wrong one where K changes.
    """
    finite = MODELS + ',le!="+Inf"'
    bucket = f"increase({metric('accepted_tokens_per_draft_bucket', finite)}[{INTERVAL}])"
    count = f"increase({metric('accepted_tokens_per_draft_count')}[{INTERVAL}])"
    within = f"sum by (le) (0 * {bucket} + ignoring (le) group_left () {count})"
    drafts = f"sum by (le) ({bucket}) - {within} + on () group_left () sum({count})"
    return f"({drafts}) / on () group_left () (sum({count}) > 0)"


def coded(series: str, label: str, codes: Mapping[str, int]) -> str:
    """Return the codes of a one-hot gauge: one value for each series that is 1.

    Args:
        series: of the gauge.
        label: the one that names its states.
        codes: the numbers of the states.
    """
    return " or ".join(f"{code} * ({metric(series, **{label: state})} == 1)" for state, code in codes.items())


def renamed(expr: str, label: str, words: Mapping[str, str]) -> str:
    """Return an expression with words for people in place of a label's values."""
    for code, word in words.items():
        if code != word:
            expr = f'label_replace({expr}, "{label}", "{word}", "{label}", "{code}")'
    return expr
