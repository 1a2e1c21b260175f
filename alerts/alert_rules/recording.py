"""Recording rules: what an alert, a panel or a federated overview uses, and nothing
else.
"""

from collections.abc import Iterator

from . import series as s
from . import speedup
from .rule import Group, Record

#: The words that the names of records use.
ABOUT = (
    "What alerts, panels and overviews of many clusters are computed from. A series "
    "that ends in :bool is 1 or absent (reads_vllm: 1 or 0). "
    "A guess is an estimate that is neither measured nor calibrated, or whose "
    "interval includes 1. Judged is what has a known "
    "speedup and enough drafts. By default severe_speedup is 0.9, harmful_speedup 1 "
    "and beneficial_speedup 1.2."
)

#: The counters behind the rates of each window.
RATES = {
    "5m": ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens"),
    "30m": (
        "drafts",
        "draft_tokens",
        "accepted_tokens",
    ),
    "1h": ("drafts", "accepted_tokens"),
}
#: Thresholds that the rules compare with.
THRESHOLDS = (
    "minimum_drafts",
    "advice_minimum_drafts",
    "comparison_minimum_drafts",
    "poor_mean_acceptance_length",
    "poor_acceptance_ratio",
    "poor_position_0_acceptance_ratio",
    "poor_position_decay_ratio",
    "collapsed_acceptance_ratio",
    "abnormal_acceptance_ratio",
    "drop_ratio",
    "step_acceptance_ratio",
    "outlier_ratio",
    "disable_mean_acceptance_length",
    "disable_acceptance_ratio",
    "break_even_acceptance_ratio",
    "severe_speedup",
    "harmful_speedup",
    "beneficial_speedup",
    "wasted_verification_ratio",
    "squeezed_kv_cache_usage_ratio",
    "failed_request_ratio",
    "worth_it_objective_ratio",
)


def groups() -> Iterator[Group]:
    """Yield the groups of recording rules, each after those that it needs."""
    yield Group("vllm-specdec.thresholds", (_thresholds(),), s.LONG_INTERVAL)
    yield Group(
        "vllm-specdec.replicas",
        (_method(), *speedup.replica_records()),
        s.LONG_INTERVAL,
    )
    for window in ("30m", "1h"):
        yield Group(
            f"vllm-specdec.rates.{window}",
            (*_rates(window), *_ratios(window)),
            s.LONG_INTERVAL,
        )
    # In one group, so that what pages a loss waits for one evaluation of the records,
    # and not for one of each group on the way.
    yield Group(
        "vllm-specdec.rates.5m",
        (
            *_rates("5m"),
            *_ratios("5m"),
            *speedup.engine_records(),
            *speedup.model_records(),
        ),
    )
    yield Group("vllm-specdec.rates.1d", (_length_of_a_day(),), s.LONG_INTERVAL)
    yield Group("vllm-specdec.advice", tuple(_advice()), s.LONG_INTERVAL)
    yield Group("vllm-specdec.engines", tuple(_engines()), s.LONG_INTERVAL)
    yield Group(
        "vllm-specdec.speedup.drafts", (speedup.losing_drafts(),), s.LONG_INTERVAL
    )
    yield Group(
        "vllm-specdec.decisive", tuple(speedup.decisive_records()), s.LONG_INTERVAL
    )


def _thresholds() -> Record:
    names = "|".join(THRESHOLDS)
    of_exporters, of_models = (
        f'last_over_time(vllm_specdec_{gauge}{{threshold=~"{names}"}}[{s.LOOK_BACK}])'
        for gauge in ("threshold", "model_threshold")
    )
    models = (
        f"group by ({s.TARGET}, model_name) "
        f"(last_over_time(vllm_specdec_info[{s.LOOK_BACK}]))"
    )
    return Record(
        s.THRESHOLD,
        f"min by ({s.MODEL}, threshold) (\n"
        f"  {of_exporters}\n"
        f"  * on ({s.TARGET}) group_left (model_name)\n"
        f"  topk by ({s.TARGET}) (1, {models})\n"
        "  or\n"
        f"  {of_models}\n"
        ")",
        why=(
            "The thresholds of every model, by the label threshold. Where exporters "
            "of one model disagree, the lowest counts. An exporter of several models "
            "publishes the thresholds of each, because PromQL cannot join several "
            "with several. Without them alerts are silent or unguarded: "
            "VLLMSpecDecodeRulesBlind reports that."
        ),
    )


def _growth(counter: str, window: str) -> str:
    # Not `rate`, which VictoriaMetrics divides by the time between a series' own
    # samples: a pod of two minutes would count as if it had lived all the window.
    return f"increase(vllm_specdec_{counter}_total[{window}])"


#: Rates that are recorded for engines as well: engines are judged one by one, and sums
#: of models are made from one rate.
_OF_ENGINES = {
    ("drafts", "5m"),
    ("accepted_tokens", "5m"),
    ("generation_tokens", "5m"),
    ("drafts", "1h"),
    ("accepted_tokens", "1h"),
}
#: That of them whose sum too few rules need for a record of its own.
_OF_ENGINES_ONLY = {("accepted_tokens", "1h")}


def _rates(window: str) -> Iterator[Record]:
    for counter in RATES[window]:
        of_engines = f"engine:vllm_specdec_{counter}:rate{window}"
        of_models = f"model:vllm_specdec_{counter}:rate{window}"
        growth = _growth(counter, window)
        seconds = s.SECONDS[window]
        if (counter, window) not in _OF_ENGINES:
            yield Record(of_models, f"sum by ({s.MODEL}) ({growth}) / {seconds}")
            continue
        yield Record(of_engines, f"{growth} / {seconds}")
        if (counter, window) not in _OF_ENGINES_ONLY:
            yield Record(of_models, f"sum by ({s.MODEL}) ({of_engines})")


def _length_of_a_day() -> Record:
    accepted, drafts = (
        f"sum_over_time(model:vllm_specdec_{counter}:rate30m[1d:30m])"
        for counter in ("accepted_tokens", "drafts")
    )
    return Record(
        f"{s.LENGTH}:ratio_rate1d",
        f"1 + {accepted} / ({drafts} > 0)\n"
        "and count_over_time(model:vllm_specdec_drafts:rate30m[1d:6h] offset 1d)",
        why=(
            "Of half hours, which cost far less than a day of every engine. Only if "
            "there were drafts on the day before as well: the first hours of a model "
            "are no day."
        ),
    )


def _restarts() -> Record:
    return Record(
        s.RESTARTS,
        f"(count by ({s.MODEL}) (last_over_time(vllm_specdec_info[{s.LOOK_BACK}]) "
        "unless (vllm_specdec_info offset 2h))\n"
        f"  and on ({s.MODEL}) ({s.PROFILES} offset 2h))\n"
        f"or sum by ({s.MODEL}) (resets(vllm_specdec_generation_tokens_total[2h])) > 0",
        why=(
            "Engines that were started within two hours, of a model that was there "
            "before."
        ),
    )


def _ratios(window: str) -> Iterator[Record]:
    def rate(counter: str) -> str:
        return f"model:vllm_specdec_{counter}:rate{window}"

    def ratio(name: str, expr: str, why: str = "") -> Record:
        return Record(f"model:vllm_specdec_{name}:ratio_rate{window}", expr, why=why)

    accepted = rate("accepted_tokens")
    drafted = rate("draft_tokens")
    drafts = rate("drafts")
    if window == "1h":
        accepted = f"sum by ({s.MODEL}) (engine:vllm_specdec_accepted_tokens:rate1h)"
        drafted = f"sum by ({s.MODEL}) ({_growth('draft_tokens', window)}) / 3600"
    yield ratio(
        "acceptance",
        f"{accepted} / ({drafted} > 0)",
        "Without drafts there is no ratio.",
    )
    if window != "30m":
        yield ratio(
            "mean_acceptance_length",
            f"1 + {accepted} / ({drafts} > 0)",
            "As counted: tokens that answers end before are in it. What was delivered "
            "is `vllm_specdec_mean_acceptance_length` of the exporter.",
        )
    else:
        positions = _growth("accepted_tokens_per_position", window)
        # SGLang's engines count no positions, so their drafts do not count here.
        first = positions.replace("[", '{position="0"}[')
        counted = (
            f"sum by ({s.MODEL}) (\n"
            f"  {_growth('drafts', window)}\n"
            f"  and ignoring (position) {first}\n"
            ")"
        )
        yield ratio(
            "position_acceptance",
            f"sum by ({s.MODEL}, position) ({positions})\n"
            f"/ ignoring (position) group_left () ({counted} > 0)",
        )


def _engines() -> Iterator[Record]:
    look = s.LOOK_BACK
    k = f"last_over_time(vllm_specdec_num_speculative_tokens[{look}])"
    yield Record(
        "model:vllm_specdec_num_speculative_tokens:max", f"max by ({s.MODEL}) ({k})"
    )
    yield Record(
        "model:vllm_specdec_num_speculative_tokens:min", f"min by ({s.MODEL}) ({k})"
    )
    running = "model:vllm_specdec_requests_running:avg5m"
    yield Record(
        running,
        f"avg by ({s.MODEL}) (avg_over_time(vllm_specdec_requests_running[5m]))",
        why="Requests in the batch of a mean engine.",
    )
    yield Record(
        "model:vllm_specdec_requests_running:avg1h", f"avg_over_time({running}[1h])"
    )
    yield _least_accepted()
    yield _restarts()
    yield Record(
        s.ADVICE,
        f"count by ({s.MODEL}, action) (\n"
        "  (last_over_time(vllm_specdec_recommendation"
        f'{{action=~"disable|switch_method"}}[{look}]) == 1)\n'
        f"  and ignoring (action) {s.ADVISED}\n"
        ")\n"
        f"/ on ({s.MODEL}) group_left () count by ({s.MODEL}) ({s.VOTERS})",
        why=(
            "The share of the engines by the exporter's advice, where an alert asks "
            "for it. An engine that drafts, and is not known to gain or to lose, "
            "counts as not advised."
        ),
    )


def _method() -> Record:
    info = f"last_over_time(vllm_specdec_info[{s.LOOK_BACK}])"
    return Record(
        s.METHOD,
        f"topk by ({s.ENGINE}) (1, group by ({s.ENGINE}, method) ({info}))\n"
        f"and on ({s.MODEL}) (count by ({s.MODEL}) (count by ({s.MODEL}, method) "
        f"({info})) > 1)",
        why=(
            "The method of each engine, only of models with several: an A/B test, or "
            "replicas without speculation."
        ),
    )


def _least_accepted() -> Record:
    accepted, drafts = (
        f"engine:vllm_specdec_{counter}:rate1h"
        for counter in ("accepted_tokens", "drafts")
    )
    drafted = f"({s.plain(_growth('draft_tokens', '1h'))} / 3600)"
    # Of five minutes there is a rate only of an engine that is there now.
    present = "engine:vllm_specdec_drafts:rate5m"
    minimum = s.threshold("comparison_minimum_drafts")
    enough = f"on ({s.MODEL}) group_left () ({minimum} / 3600)"

    def all_of_model(rate: str, operator: str) -> str:
        return (
            f"sum by ({s.MODEL}) ({rate} and {present}) {operator} on ({s.MODEL}) "
            f"group_right () {rate}"
        )

    def others(rate: str) -> str:
        return f"({all_of_model(rate, '-')})"

    # What the others have over what the engine has, of which each side is read twice
    # and not three times.
    of_own = {rate: f"({all_of_model(rate, '/')} - 1)" for rate in (drafts, drafted)}
    length = f"clamp_max({of_own[drafts]} / {of_own[drafted]}, 1)"
    return Record(
        "engine:vllm_specdec_least_accepted_per_draft:rate1h",
        f"{others(accepted)}\n"
        f"/ ({others(drafts)} >= {enough})\n"
        f"* {length}\n"
        f"* on ({s.MODEL}) group_left () (1 - {s.threshold('outlier_ratio')})\n"
        f"and ({drafts} >= {enough})\n"
        f"and {present}",
        why=(
            "What an engine has to accept per draft to be no outlier: some percent "
            "below the model's other engines, of those that are there now, where they "
            "and the engine have enough drafts. In proportion if its drafts are "
            "shorter: later positions are never accepted more often than earlier ones."
        ),
    )


def _advice() -> Iterator[Record]:
    """Yield what is judged over hours or a day."""
    look = s.LOOK_BACK
    yield Record(
        "model:vllm_specdec_recommended_num_speculative_tokens:median",
        f"quantile by ({s.MODEL}) (0.5, {s.ADVISED})",
        why="The advised K of a typical engine.",
    )
    yield Record(
        s.ENGINES,
        f"count by ({s.MODEL}, cost_profile) "
        f"(last_over_time(vllm_specdec_info[{look}]))\n"
        f"or count by ({s.MODEL}, basis) "
        f"(last_over_time(vllm_specdec_speedup[{look}]))",
        why=(
            "Engines by the cost profile of their estimate; and those with a speedup "
            "by its basis."
        ),
    )
