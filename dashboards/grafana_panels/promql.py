"""PromQL: the expressions that panels share.

Ratios are never averaged: numerator and denominator are summed separately and divided
at the end. Tables use what the exporter derived over its own window, as its judgement
does; lines use rates over Grafana's rate interval.
"""

from collections.abc import Mapping

from mixin import CLUSTER, JOB

from .variables import MODELS, TARGETS

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
#: Whether each scraped exporter answers: those seen within a day, or with the job name
#: that the rules expect.
EXPORTERS = (
    f"(max by ({PLACE}) (up{{{TARGETS}}}) and {KNOWN} or max by ({PLACE}) "
    f'(up{{{TARGETS},job=~"{JOB}"}}))'
)
#: Always fires where the rules are loaded: tells "no alert" from "no rules".
WATCHDOG = 'ALERTS{alertname="VLLMSpecDecodeWatchdog",alertstate="firing"}'


def total(inner: str, by: str = "", operator: str = "sum") -> str:
    """Return the sum of an expression, of everything or by labels."""
    if by:
        return f"{operator} by ({by}) ({inner})"
    return f"{operator}({inner})"


def metric(series: str, select: str = MODELS, **matchers: str) -> str:
    """Return one of the exporter's series."""
    matching = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return f"vllm_specdec_{series}{{{select}{matching}}}"


def windowed(series: str, **matchers: str) -> str:
    """Return one of the exporter's gauges over the chosen window."""
    return metric(series, window="$window", **matchers)


_SUCCESS = metric("last_success_timestamp_seconds", TARGETS)
#: The longest time since a successful poll, of all servers: those of an exporter that
#: is down, too, as it knew them last.
OLDEST = (
    f"max(time() - ({_SUCCESS} or last_over_time({_SUCCESS}[1d]) and on ({PLACE}) "
    f"{EXPORTERS} == 0))"
)
#: Drafts and generated tokens per second of each engine, which ratios and speedups are
#: weighted with.
DRAFTS = windowed("drafts_per_second")
GENERATED = windowed("generation_tokens_per_second")


def increase(name: str, by: str = "") -> str:
    """Return the increase of one of the exporter's counters, summed."""
    return growth(f"vllm_specdec_{name}_total", by=by)


def growth(
    series: str,
    select: str = MODELS,
    by: str = "",
    *,
    over: str = INTERVAL,
    **matchers: str,
) -> str:
    """Return the increase of any counter, summed. Ratios and quantiles are of it, not
    of rates: VictoriaMetrics would weigh a pod of two minutes as one of the window.
    """
    matching = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return total(f"increase({series}{{{select}{matching}}}[{over}])", by)


def summed_rate(series: str, select: str = MODELS, by: str = "") -> str:
    """Return the rate of any counter, summed: an amount by the second."""
    return total(f"rate({series}{{{select}}}[{INTERVAL}])", by)


def recorded(name: str, **matchers: str) -> str:
    """Return a record of models."""
    return f"model:{metric(name, **matchers)}"


def or_without_rules(record: str, gauges: str) -> str:
    """Return a record without its name, or where no rules are loaded, what the
    exporter's own series say, which are not joined by `or`.
    """
    # Over time `or on ()` would let VictoriaMetrics fill a gap of one series with
    # values of another.
    return f"{recorded(record)} + 0\nor {gauges} unless on () {WATCHDOG}"


def threshold(name: str) -> str:
    """Return a threshold in force by model: that of the exporter which watches it, the
    lowest if several do.
    """
    return recorded("threshold:min", threshold=name)


def request_threshold(name: str) -> str:
    """Return the same of models that requests name, such as an alias."""
    return recorded("request_threshold:min", threshold=name)


def agreed(name: str) -> str:
    """Return a threshold of several models as one series without labels, or if they
    differ, that of each.

    Nothing is below 0, so no line is drawn there.
    """
    of_each = threshold(name)
    of_exporters = metric("threshold", TARGETS, threshold=name)
    differ = f"on () stddev({of_each}) > 0"
    return (
        f"min({of_each}) > 0 unless {differ}\n"
        f"or ({of_each} > 0 and {differ})\n"
        f"or on () (min({of_exporters}) > 0)"
    )


def quantile(
    histogram: str,
    share: float,
    select: str = MODELS,
    by: str = "",
    *,
    over: str = INTERVAL,
    above: float = 0,
) -> str:
    """Return a quantile of any histogram, if it is above a bound; without observations
    it is absent, not NaN.

    A Prometheus that converts classic histograms has them without buckets.
    """
    labels = f"le, {by}" if by else "le"
    grown = (
        growth(histogram + "_bucket", select, labels, over=over),
        growth(histogram, select, by, over=over),
    )
    estimate = " or ".join(f"histogram_quantile({share:g}, {each})" for each in grown)
    if above:
        return f"({estimate}) > {above:g}"
    return f"({estimate}) >= 0"


class Flow:
    """Ratios of counters: of sums, over increases or the exporter's window (`now`)."""

    def __init__(self, by: str = "", *, now: bool = False) -> None:
        self._by = by
        self._now = now

    def of(self, name: str) -> str:
        """Return a counter's increase, or that per second."""
        if self._now:
            return total(windowed(f"{name}_per_second"), self._by)
        return increase(name, self._by)

    def acceptance(self) -> str:
        """Return accepted over draft tokens."""
        ratio = f"{self.of('accepted_tokens')} / ({self.of('draft_tokens')} > 0)"
        return self._or_unwatched(ratio, "acceptance")

    def length(self) -> str:
        """Return the mean acceptance length."""
        ratio = f"1 + {self.of('accepted_tokens')} / ({self.of('drafts')} > 0)"
        return self._or_unwatched(ratio, "length")

    def coverage(self) -> str:
        """Return the share of the output that came out of drafts."""
        drafted = f"({self.of('accepted_tokens')} + {self.of('drafts')})"
        return f"clamp_max({drafted} / ({self.of('generation_tokens')} > 0), 1)"

    def rejected(self) -> str:
        """Return draft tokens that were not accepted, per second."""
        return f"clamp_min({self.of('draft_tokens')} - {self.of('accepted_tokens')}, 0)"

    def waste(self) -> str:
        """Return the share of the verified tokens that was rejected."""
        return (
            f"{self.rejected()} / (({self.of('draft_tokens')} + {self.of('drafts')}) > "
            "0)"
        )

    def _or_unwatched(self, own: str, ratio: str) -> str:
        """Return a ratio with that of the models which no exporter watches, as far as
        their servers tell.
        """
        unwatched = recorded("unwatched:ratio_rate5m", measure=ratio)
        if self._by == MODEL:
            return f"{own}\nor sum by ({MODEL}) ({unwatched})"
        return own


def speedup(by: str = "") -> str:
    """Return the speedup of engines, or of any number: all their tokens over the plain
    time that they took.
    """
    speedup_of_engine = metric("speedup")
    made = total(f"{GENERATED} and ignoring (window, basis) {speedup_of_engine}", by)
    spent = total(f"{GENERATED} / ignoring (window, basis) {speedup_of_engine}", by)
    return f"{made} / ({spent} > 0)"


def weighted(value: str, weight: str, by: str = "", own: str = "") -> str:
    """Return the mean of a windowed ratio of engines, weighted with its denominator: a
    ratio of sums.

    Args:
        value: the ratio, one series for each engine and each value of its own label.
        weight: what it divides by, one series for each engine.
        by: labels to keep.
        own: the label that only the ratio has.
    """
    match = f" ignoring ({own}) group_left ()" if own else ""
    parts = total(f"{value} *{match} {weight}", by)
    weights = total(f"0 * {value} +{match} {weight}", by)
    return f"{parts} / ({weights} > 0)"


def harmonic(value: str, weight: str, by: str = "") -> str:
    """Return a ratio of sums from ratios whose numerators are known: their sum over
    that of the denominators.

    Args:
        value: the ratio, one series for each engine.
        weight: its numerator, one series for each engine.
        by: labels to keep.
    """
    made = total(f"0 * {value} + {weight}", by)
    spent = total(f"1 / ({value} > 0) * {weight}", by)
    return f"{made} / ({spent} > 0)"


#: Break-even by model: what a draft must emit to be worth its cost.
BREAK_EVEN = weighted(windowed("break_even_acceptance_length"), DRAFTS, MODEL)


def survival(over: str = INTERVAL) -> str:
    """Return the share of drafts accepted at each position, of the engines that draft
    so far.
    """
    accepted = f"increase({metric('accepted_tokens_per_position_total')}[{over}])"
    drafts = f"increase({metric('drafts_total')}[{over}])"
    reached = f"0 * {accepted} + ignoring (position) group_left () {drafts}"
    return f"{total(accepted, 'position')} / ({total(reached, 'position')} > 0)"


def conditional() -> str:
    """Return the share of the drafts that reached each position in which it was
    accepted too.
    """
    accepted, reaching = (
        increase(name, "position")
        for name in ("accepted_tokens_per_position", "drafts_reaching_position")
    )
    return f"{accepted} / ({reaching} > 0)"


def accepted_buckets() -> str:
    """Return the cumulative buckets of accepted tokens per draft, as shares of the
    drafts.

    An engine with a smaller K has no bucket for what it never drafts; all its drafts
    belong there. The last bucket holds all drafts, so +Inf would add an empty row, or a
    wrong one where K changes.
    """
    finite = MODELS + ',le!="+Inf"'
    bucket = (
        f"increase({metric('accepted_tokens_per_draft_bucket', finite)}[{INTERVAL}])"
    )
    count = f"increase({metric('accepted_tokens_per_draft_count')}[{INTERVAL}])"
    within = f"sum by (le) (0 * {bucket} + ignoring (le) group_left () {count})"
    return (
        f"1 + (sum by (le) ({bucket}) - {within}) / on () group_left () (sum({count}) "
        "> 0)"
    )


def renamed(expr: str, label: str, words: Mapping[str, str], to: str = "") -> str:
    """Return an expression with words for people in place of a label's values, or in
    another label.
    """
    for code, word in words.items():
        if code != word or to:
            expr = (
                f'label_replace({expr}, "{to or label}", "{word}", "{label}", "{code}")'
            )
    return expr


def in_words(by: str, label: str, *numbers: str, and_label: str = "") -> str:
    """Return 1 for each row, with a label that has several numbers with blanks between
    them.

    They stand in labels that come last in the alphabet: Prometheus 2.42 loses those
    behind them.

    Args:
        by: labels of the rows.
        label: the label of the result.
        numbers: expressions, up to four.
        and_label: a label of the first one that comes behind the numbers.
    """
    names = ("w", "x", "y", "z")[-len(numbers) :]
    first, *others = zip(names, numbers, strict=True)
    kept = f"{by}, {and_label}" if and_label else by
    joined = f'count_values by ({kept}) ("{first[0]}", {first[1]})'
    for name, number in others:
        joined += (
            f' * on ({by}) group_left ({name}) count_values by ({by}) ("{name}", '
            f"{number})"
        )
    parts = [name for name in (*names, and_label) if name]
    quoted = ", ".join(f'"{name}"' for name in parts)
    words = f'label_join({joined}, "{label}", " ", {quoted})'
    return f"sum without ({', '.join(parts)}) ({words})"
