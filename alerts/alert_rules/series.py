"""Names of series and labels, and the pieces of PromQL that rules share; rule modules
call this one `s`.
"""

from collections.abc import Iterable, Iterator

from mixin import CLUSTER, JOB

from .rule import Record

#: Labels that name a model, whatever its replicas.
MODEL = f"{CLUSTER}, namespace, model_name"
#: Labels that name a scrape target of the exporter.
TARGET = f"{CLUSTER}, namespace, job, instance"

#: Labels that name an engine, whatever else Prometheus attaches.
ENGINE = f"{TARGET}, target, model_name, engine"

#: What selects the exporter's own `up`: its job by name, also as an operator names it
#: (namespace/name).
EXPORTER_JOB = f'job=~"{JOB}"'

#: Of groups whose values hardly change between two evaluations, or cost the most; below
#: Prometheus's look-back of 5m.
LONG_INTERVAL = "3m"

#: How far back a gauge may lie: more than two scrapes, so that a lost one hides
#: nothing.
LOOK_BACK = "3m"

# --- pieces of PromQL


def threshold(name: str) -> str:
    """Return the threshold in force, by model."""
    return f"model:vllm_specdec_{name}:threshold"


def threshold_of_targets(name: str) -> str:
    """Return a threshold by exporter: what has no model has no threshold of a model."""
    return (
        f"max by ({TARGET}) "
        f'(last_over_time(vllm_specdec_threshold{{threshold="{name}"}}[{LOOK_BACK}]))'
    )


def thresholds_of_models(
    names: Iterable[str], models: str, why: str
) -> Iterator[Record]:
    """Yield the records of thresholds by model.

    Args:
        names: of the thresholds.
        models: what has a series with the value 1 for every model of an exporter.
        why: the comment, which the first one has.
    """
    for name in names:
        yield Record(
            threshold(name),
            f"min by ({MODEL}) (\n"
            f"  {threshold_of_targets(name)}\n"
            f"  * on ({TARGET}) group_right ()\n"
            f"  {models}\n"
            ")",
            why=why,
        )
        why = ""


def rounded(ratio: str) -> str:
    """Return a ratio as texts show it: in percent, with one decimal."""
    return f"round({ratio}, 0.001)"


def compare(left: str, operator: str, name: str) -> str:
    """Return a comparison of a model's series with a threshold."""
    return f"{left} {operator} {threshold(name)}"


#: Windows of recorded rates, in seconds.
SECONDS = {"5m": 300, "30m": 1800, "1h": 3600, "6h": 21600, "1d": 86400}


def sample(window: str, offset: str = "") -> str:
    """Return the number of a model's drafts in a window."""
    back = f" offset {offset}" if offset else ""
    return f"{SECONDS[window]} * model:vllm_specdec_drafts:rate{window}{back}"


def enough(window: str, name: str = "advice_minimum_drafts", offset: str = "") -> str:
    """Return the condition that a window holds enough drafts."""
    return compare(sample(window, offset), ">=", name)


def labelled(name: str, **series: str) -> str:
    """Return several series as one that tells them apart by a label.

    Args:
        name: of the label.
        series: what each value of the label stands for; `_` is written as a blank.
    """
    return "\nor ".join(
        f'label_replace({expr}, "{name}", "{value.replace("_", " ")}", "", "")'
        for value, expr in series.items()
    )


#: Whether enough drafts were made to judge a model by, in five minutes, half an hour
#: and an hour.
ENOUGH_5M, ENOUGH_30M, ENOUGH_1H = (
    f"model:vllm_specdec_enough_drafts_in_{window}:bool"
    for window in ("5m", "30m", "1h")
)
#: Tokens without a draft: speculation has been switched off.
UNDRAFTED = (
    "model:vllm_specdec_generation_tokens:rate5m > 0 unless "
    "model:vllm_specdec_drafts:rate5m > 0"
)
#: What says whether speculation should be off, by the label `measure`: values, and
#: their limits.
DECISIVE, DECISIVE_LIMIT = (
    f"model:vllm_specdec_decisive:{what}" for what in ("value", "threshold")
)
#: The smallest of those values over their limits: of the published rule, and of all.
#: Below 1 it should be off.
PUBLISHED_RULE, DISABLE_RULE = (
    f"model:vllm_specdec_{which}_rule:ratio" for which in ("published", "disable")
)
#: It is known that it pays or, by a measurement, that it does not lose; by no more than
#: a guess it may pay.
NOT_LOSING = "model:vllm_specdec_is_known_not_to_lose:bool"
MAY_PAY = "model:vllm_specdec_may_pay_by_a_guess:bool"
#: The published rule and a guess contradict each other.
TO_BE_MEASURED = "model:vllm_specdec_is_to_be_measured:bool"
#: The share of the engines with advice that are advised to do something, by the label
#: `action`.
ADVICE = "model:vllm_specdec_advice:ratio"
#: Of each method of a model with several, else of the model, while there are enough
#: drafts to judge by.
JUDGED_SPEEDUP, JUDGED_ACCEPTANCE = (
    f"method:vllm_specdec_judged_{which}:ratio_rate5m"
    for which in ("speedup", "acceptance")
)
#: The method of an engine, where a model has several.
METHOD = "engine:vllm_specdec_method:info"
#: Drafts of engines with a known speedup.
JUDGED_DRAFTS = "model:vllm_specdec_judged_drafts:rate5m"
#: The speedup of a model now, where it is known.
SPEEDUP = "model:vllm_specdec_speedup:ratio_rate5m"
#: The same where it is measured or calibrated, and its interval excludes 1, on every
#: engine.
WITHOUT_GUESSES = "model:vllm_specdec_speedup_without_guesses:ratio_rate5m"
#: Engines of a model that were started within two hours; absent if none was.
RESTARTS = "model:vllm_specdec_restarts:count2h"
#: Now or, where traffic is too thin for that, within the last hour, or else over the
#: last day.
KNOWN_SPEEDUP = "model:vllm_specdec_known_speedup:last1d"
#: The exception for speculation that is beneficial, whatever the acceptance.
UNLESS_IT_PAYS = f"unless {KNOWN_SPEEDUP} >= {threshold('beneficial_speedup')}"


# --- series that several modules use

UP = f"up{{{EXPORTER_JOB}}}"
NAMESPACE = f"{CLUSTER}, namespace"
POD = f"{NAMESPACE}, pod"
#: vLLM's own series of an engine that speculates, one of each.
SPECULATIVE = '«vllm»spec_decode_num_accepted_tokens_per_pos_total{position="0"}'
LENGTH = "model:vllm_specdec_mean_acceptance_length"
ACCEPTANCE = "model:vllm_specdec_acceptance"
K, LEAST_K = (
    f"model:vllm_specdec_num_speculative_tokens:{which}" for which in ("max", "min")
)


def k_changed(window: str) -> str:
    """Return the condition that K changed on any engine of a model within a time, a
    rollout's beginning included.

    Not by `changes`: VictoriaMetrics counts the birth of a series as one.
    """
    return (
        f"stddev_over_time({K}[{window}]) + stddev_over_time({LEAST_K}[{window}]) > 0"
    )
