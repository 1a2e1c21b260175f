"""Names of series and labels, and the pieces of PromQL that rules share; rule modules
call this one `s`.
"""

from collections.abc import Mapping

from mixin import CLUSTER, JOB

#: Labels that name a model, whatever its replicas.
MODEL = f"{CLUSTER}, namespace, model_name"
#: Labels that name a scrape target of the exporter.
TARGET = f"{CLUSTER}, namespace, job, instance"

#: Labels that name an engine, whatever else Prometheus attaches.
ENGINE = f"{TARGET}, target, model_name, engine"

#: Labels that Prometheus 3 adds to scraped series where it is told to
#: (type-and-unit-labels), and drops with their name: what kept them would match nothing
#: that lost them.
METADATA = "__type__, __unit__"

#: What selects the exporter's own `up`: its job by name, also as an operator names it
#: (namespace/name).
EXPORTER_JOB = f'job=~"{JOB}"'

#: Of what pages a loss and what a collapse fires, which read a few records: so that a
#: page waits for the next evaluation of records alone.
PAGE_INTERVAL = "15s"
#: Of groups whose values hardly change between two evaluations, or cost the most; below
#: Prometheus's look-back of 5m. Others have the interval of `mixin.yml`.
LONG_INTERVAL = "3m"

#: How far back a gauge may lie: more than two scrapes, so that a lost one hides
#: nothing.
LOOK_BACK = "3m"

# --- pieces of PromQL


#: Every threshold that the rules compare models with, by the label `threshold`.
THRESHOLD = "model:vllm_specdec_threshold:min"


def threshold(name: str, record: str = THRESHOLD) -> str:
    """Return the threshold in force, by model; it keeps the label `threshold`."""
    return f'{record}{{threshold="{name}"}}'


def threshold_of_targets(name: str) -> str:
    """Return a threshold by exporter: what has no model has no threshold of a model."""
    return (
        f"max by ({TARGET}) "
        f'(last_over_time(vllm_specdec_threshold{{threshold="{name}"}}[{LOOK_BACK}]))'
    )


def rounded(ratio: str) -> str:
    """Return a ratio as texts show it: in percent, with one decimal."""
    return f"round({ratio}, 0.001)"


def plain(gauges: str, without: str = "") -> str:
    """Return gauges with the labels of what is computed: without name and metadata, and
    without labels of their own.
    """
    dropped = f"{without}, {METADATA}" if without else METADATA
    return f"sum without ({dropped}) ({gauges})"


def compare(left: str, operator: str, name: str) -> str:
    """Return a comparison of a model's series with a threshold."""
    return f"{left} {operator} ignoring (threshold) {threshold(name)}"


def compare_each(left: str, operator: str, name: str) -> str:
    """Return the same of several series of each model, such as those of its engines."""
    return f"{left} {operator} on ({MODEL}) group_left () {threshold(name)}"


#: Windows of recorded rates, in seconds.
SECONDS = {"5m": 300, "30m": 1800, "1h": 3600}


def sample(window: str, offset: str = "", of: str = "") -> str:
    """Return the number of a model's drafts in a window.

    Args:
        window: a recorded one, or a longer one of whole half hours.
        offset: how long ago it ends.
        of: matchers of the model, in braces.
    """
    back = f" offset {offset}" if offset else ""
    drafts = "model:vllm_specdec_drafts:rate"
    if window in SECONDS:
        return f"{SECONDS[window]} * {drafts}{window}{of}{back}"
    # Of half hours, which cost far less than hours of every engine.
    return f"1800 * sum_over_time({drafts}30m{of}[{window}:30m]{back})"


def enough(window: str, name: str = "advice_minimum_drafts", offset: str = "") -> str:
    """Return the condition that a window holds enough drafts."""
    return compare(sample(window, offset), ">=", name)


def tagged(series: str, name: str, value: str) -> str:
    """Return a series with one more label."""
    return f'label_replace({series}, "{name}", "{value}", "", "")'


def labelled(name: str, joined: str = "or", **series: str) -> str:
    """Return several series as one that tells them apart by a label.

    `label_replace` names its label at its end, so a comment before each says what the
    reader is about to read.

    Args:
        name: of the label.
        joined: the operator between them.
        series: what each value of the label stands for; `_` is written as a blank.
    """
    return f"\n{joined} ".join(
        f'# {name}="{value}"\n{tagged(expr, name, value)}'
        for value, expr in _by_value(series).items()
    )


def in_one_line(name: str, **series: str) -> str:
    """Return the same for a text, joined by `or`."""
    return " or ".join(
        tagged(expr, name, value) for value, expr in _by_value(series).items()
    )


def _by_value(series: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", " "): expr for name, expr in series.items()}


#: How fast each K that ran at the present load was, over the present one; measured.
TRIED = "model:vllm_specdec_tried_speedup_at:ratio"
#: What the advised K would gain, with its `basis`, which is measured where that K ran.
ADVISED_GAIN = "model:vllm_specdec_advised_gain:ratio"
#: Whether enough drafts were made in half an hour to judge a model by.
ENOUGH_30M = "model:vllm_specdec_enough_drafts_in_30m:bool"
#: Tokens without a draft: speculation has been switched off.
UNDRAFTED = (
    "model:vllm_specdec_generation_tokens:rate5m > 0 unless "
    "model:vllm_specdec_drafts:rate5m > 0"
)
#: What says whether speculation should be off: values by the label `measure`, each with
#: the name of its threshold in the label `threshold`.
DECISIVE = "model:vllm_specdec_decisive:value"
#: The smallest of those values over their limits: of the published rule, and of all.
#: Below 1 it should be off.
PUBLISHED_RULE, DISABLE_RULE = (
    f"model:vllm_specdec_{rule}_rule:ratio" for rule in ("published", "disable")
)
#: It is known that it pays or, by a measurement, that it does not lose; by no more than
#: a guess it may pay.
NOT_LOSING = "model:vllm_specdec_is_known_not_to_lose:bool"
MAY_PAY = "model:vllm_specdec_may_pay_by_a_guess:bool"
#: The speedup of each engine by its best basis, where it is known.
ENGINE_SPEEDUP = "engine:vllm_specdec_speedup:last3m"
#: The K that each engine is advised.
ADVISED = (
    f"last_over_time(vllm_specdec_recommended_num_speculative_tokens[{LOOK_BACK}])"
)
#: Engines of which most must agree: with advice, or that draft and are not known to
#: gain or to lose.
VOTERS = (
    f"{plain(ADVISED)} or "
    f"(engine:vllm_specdec_drafts:rate5m > 0 unless {ENGINE_SPEEDUP})"
)
#: How much faster engines would be with the K that they are advised.
ADVISED_SPEEDUP = (
    f"avg by ({MODEL}) "
    f"(last_over_time(vllm_specdec_advised_speedup_ratio[{LOOK_BACK}]))"
)
#: The share of them that are advised to do something, by the label `action`.
ADVICE = "model:vllm_specdec_advice:ratio"
#: Of each method of a model with several, else of the model, while there are enough
#: drafts to judge by.
JUDGED_SPEEDUP, JUDGED_ACCEPTANCE = (
    f"method:vllm_specdec_judged_{measure}:ratio_rate5m"
    for measure in ("speedup", "acceptance")
)
#: The speedup over half an hour: of each method of a model with several, else of it.
HALF_HOUR = "model:vllm_specdec_speedup:ratio_rate30m"
#: The method of an engine, where a model has several.
METHOD = "engine:vllm_specdec_method:info"
#: The number of engines of a model by their cost profile, and by the basis of their
#: speedup.
ENGINES = "model:vllm_specdec_engines:count"
PROFILES, BASES = (f'{ENGINES}{{basis{operator}""}}' for operator in ("=", "!="))
#: Drafts of engines with a known speedup.
JUDGED_DRAFTS = "model:vllm_specdec_judged_drafts:rate5m"
#: The speedup of a model now, where it is known.
SPEEDUP = "model:vllm_specdec_speedup:ratio_rate5m"
#: The same where it is measured or calibrated, and its interval excludes 1, on every
#: engine.
WITHOUT_GUESSES = "model:vllm_specdec_speedup_without_guesses:ratio_rate5m"
#: Engines of a model that were started within two hours; absent if none was.
RESTARTS = "model:vllm_specdec_restarts:count2h"
#: Beneficial now or, where traffic is too thin for that, within the last hour, or else
#: over the last day: the exception, whatever the acceptance.
PAYS = "model:vllm_specdec_is_beneficial_in_last1d:bool"


# --- series that several modules use

#: Whether an exporter reads its vLLM: 1, or 0 also while its polls hang.
READS = "instance:vllm_specdec_reads_vllm:bool"

UP = f"up{{{EXPORTER_JOB}}}"
NAMESPACE = f"{CLUSTER}, namespace"
POD = f"{NAMESPACE}, pod"
#: vLLM's own series of an engine that speculates, one of each.
SPECULATIVE = '«vllm»spec_decode_num_accepted_tokens_per_pos_total{position="0"}'
LENGTH = "model:vllm_specdec_mean_acceptance_length"
ACCEPTANCE = "model:vllm_specdec_acceptance"
K, LEAST_K = (
    f"model:vllm_specdec_num_speculative_tokens:{end}" for end in ("max", "min")
)


def firing(alert: str, *matchers: str) -> str:
    """Return the selector of an alert that fires, by its name without prefix."""
    both = f'alertname="VLLMSpecDecode{alert}"', 'alertstate="firing"'
    return f"ALERTS{{{', '.join((*both, *matchers))}}}"


def told(alert: str, *matchers: str) -> str:
    """Return the condition that an alert was told within six days: it has ended since,
    or it has fired for 12 hours.
    """
    fires = firing(alert, *matchers)
    return (
        f"((count_over_time({fires}[6d]) unless count_over_time({fires}[20m]))\n"
        f"  or count_over_time({fires}[6d] offset 12h))"
    )


def k_changed(window: str) -> str:
    """Return the condition that K changed on any engine of a model within a time, a
    rollout's beginning included.

    Not by `changes`: VictoriaMetrics counts the birth of a series as one.
    """
    return (
        f"stddev_over_time({K}[{window}]) + stddev_over_time({LEAST_K}[{window}]) > 0"
    )
