"""Recording rules: what an alert, a panel or a federated overview uses, and nothing
else.
"""

from collections.abc import Iterable, Iterator

from mixin import CLUSTER

from . import series as s
from . import speedup
from .rule import Group, Record

#: The words that the names of records use.
ABOUT = (
    "What alerts, panels and overviews of many clusters are computed from. A series "
    "that ends in :bool is 1 or absent. "
    "A guess is an estimate that is neither measured nor calibrated, or whose "
    "interval includes 1. Judged is what has a known "
    "speedup and enough drafts. By default severe_speedup is 0.9, harmful_speedup 1 "
    "and beneficial_speedup 1.2."
)

#: Mimir's default limit of rules in a group (ruler_max_rules_per_rule_group).
MAX_GROUP_RULES = 20

#: The counters behind the rates of each window that is computed from samples.
RATES = {
    "5m": ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens"),
    "30m": (
        "drafts",
        "draft_tokens",
        "accepted_tokens",
        "accepted_tokens_per_position",
    ),
    "1h": ("drafts", "draft_tokens", "accepted_tokens"),
}
#: The same of windows that are computed from rates of half an hour, and how many of
#: those they have.
LONG_RATES = {"6h": 12, "1d": 48}
LONG_COUNTERS = {"6h": ("drafts", "draft_tokens", "accepted_tokens"), "1d": ("drafts",)}

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
    yield from _split("thresholds", _thresholds(), s.LONG_INTERVAL)
    for window in RATES:
        interval = "" if window == "5m" else s.LONG_INTERVAL
        yield Group(
            f"vllm-specdec.rates.{window}",
            (*_rates(window), *_ratios(window)),
            interval,
        )
    for window in LONG_RATES:
        more = (_restarts(),) if window == "6h" else ()
        yield Group(
            f"vllm-specdec.rates.{window}",
            (*_long_rates(window), *_ratios(window), *more),
            s.LONG_INTERVAL,
        )
    yield Group("vllm-specdec.engines", tuple(_engines()), s.LONG_INTERVAL)
    yield Group("vllm-specdec.advice", tuple(_advice()), s.LONG_INTERVAL)
    yield from _split("speedup", speedup.records())


def _split(name: str, records: Iterable[Record], interval: str = "") -> Iterator[Group]:
    """Yield groups that Mimir takes: it allows 20 rules to a group unless told
    otherwise.
    """
    listed = tuple(records)
    for number, start in enumerate(range(0, len(listed), MAX_GROUP_RULES), 1):
        yield Group(
            f"vllm-specdec.{name}.{number}",
            listed[start : start + MAX_GROUP_RULES],
            interval,
        )


def _thresholds() -> Iterator[Record]:
    why = (
        "A threshold for every model, whatever exporter watches it. Where exporters "
        "of one model disagree, "
        "the lowest counts. No series, no alert: VLLMSpecDecodeRulesBlind reports that."
    )
    yield from s.thresholds_of_models(
        THRESHOLDS, f"last_over_time(vllm_specdec_info[{s.LOOK_BACK}])", why
    )


def _rate(counter: str, window: str) -> str:
    return f"rate(vllm_specdec_{counter}_total[{window}])"


#: Rates that are recorded for engines as well: engines are judged one by one, and sums
#: of instances and models are made from one rate.
_OF_ENGINES = {
    *((counter, "5m") for counter in RATES["5m"]),
    ("drafts", "1h"),
    ("accepted_tokens", "1h"),
}


def _rates(window: str) -> Iterator[Record]:
    for counter in RATES[window]:
        if counter.endswith("_per_position"):
            labels = f"{s.MODEL}, position"
        else:
            labels = s.MODEL
        rate = _rate(counter, window)
        if (counter, window) in _OF_ENGINES:
            yield Record(f"engine:vllm_specdec_{counter}:rate{window}", rate)
            rate = f"engine:vllm_specdec_{counter}:rate{window}"
        yield Record(
            f"model:vllm_specdec_{counter}:rate{window}", f"sum by ({labels}) ({rate})"
        )


def _long_rates(window: str) -> Iterator[Record]:
    count = LONG_RATES[window]
    for counter in LONG_COUNTERS[window]:
        name = f"model:vllm_specdec_{counter}"
        yield Record(
            f"{name}:rate{window}",
            f"sum_over_time({name}:rate30m[{window}:30m]) / {count}",
            why=(
                "A mean of the rates of half hours, which costs far less than a rate "
                "of every engine."
            ),
        )


def _restarts() -> Record:
    return Record(
        s.RESTARTS,
        f"count by ({s.MODEL}) (last_over_time(vllm_specdec_info[{s.LOOK_BACK}]) "
        "unless (vllm_specdec_info offset 2h))\n"
        f"and count by ({s.MODEL}) (vllm_specdec_info offset 2h)\n"
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
    if window not in LONG_RATES:
        yield ratio(
            "acceptance",
            f"{accepted} / ({drafted} > 0)",
            "Without drafts there is no ratio.",
        )
    if window == "1d":
        accepted = (
            "sum_over_time(model:vllm_specdec_accepted_tokens:rate30m[1d:30m]) / "
            f"{LONG_RATES['1d']}"
        )
    if window not in ("30m", "6h"):
        yield ratio("mean_acceptance_length", f"1 + {accepted} / ({drafts} > 0)")
    if window == "30m":
        position = rate("accepted_tokens_per_position")
        # SGLang's engines count no positions, so their drafts do not count here.
        first = _rate("accepted_tokens_per_position", window).replace(
            "[", '{position="0"}['
        )
        counted = (
            f"sum by ({s.MODEL}) ({_rate('drafts', window)} and ignoring (position) "
            f"{first})"
        )
        yield ratio(
            "position_acceptance",
            f"{position} / ignoring (position) group_left () ({counted} > 0)",
        )


def _engines() -> Iterator[Record]:
    look = s.LOOK_BACK
    yield Record(
        "namespace:vllm_specdec_exporters:count",
        f"count by ({CLUSTER}, namespace) (up{{{s.EXPORTER_JOB}}})",
        why=(
            "Scrape targets of a namespace: how MonitoringLost finds that they are "
            "gone."
        ),
    )
    k = f"last_over_time(vllm_specdec_num_speculative_tokens[{look}])"
    yield Record(
        "model:vllm_specdec_num_speculative_tokens:max", f"max by ({s.MODEL}) ({k})"
    )
    yield Record(
        "model:vllm_specdec_num_speculative_tokens:min", f"min by ({s.MODEL}) ({k})"
    )
    for window in ("5m", "1h"):
        yield Record(
            f"model:vllm_specdec_requests_running:avg{window}",
            (
                f"avg by ({s.MODEL}) "
                f"(avg_over_time(vllm_specdec_requests_running[{window}]))"
            ),
            why="Requests in the batch of a mean engine." if window == "5m" else "",
        )
    position = "model:vllm_specdec_accepted_tokens_per_position:rate30m"
    first = f'sum by ({s.MODEL}) ({position}{{position="0"}})'
    yield Record(
        "model:vllm_specdec_position_decay:ratio_rate30m",
        f"(min by ({s.MODEL}) ({position}) / ({first} > 0)) "
        "^ (1 / ((model:vllm_specdec_num_speculative_tokens:max > 1) - 1))",
        why="Geometric mean of the conditional acceptance after position 0: the root "
        "of the last position's rate over "
        "the first's. Rates never rise with the position, so the lowest is the last.",
    )
    # Of five minutes there is a rate only of an engine that is there now.
    accepted, drafts = (
        f"(engine:vllm_specdec_{counter}:rate1h and engine:vllm_specdec_drafts:rate5m)"
        for counter in ("accepted_tokens", "drafts")
    )
    least = s.threshold("comparison_minimum_drafts")

    def peers(rate: str) -> str:
        return f"({rate} - on ({s.MODEL}) group_left () sum by ({s.MODEL}) ({rate}))"

    yield Record(
        "engine:vllm_specdec_accepted_per_draft:rate1h",
        f"{accepted} / ({drafts} >= on ({s.MODEL}) group_left () ({least} / 3600))",
        why="Accepted tokens per draft of an engine, and of the model's other "
        "engines; only engines that are there now, "
        "with enough drafts.",
    )
    yield Record(
        "engine:vllm_specdec_peers_accepted_per_draft:rate1h",
        (
            f"{peers(accepted)} / ({peers(drafts)} <= on ({s.MODEL}) group_left () "
            f"({least} / -3600))"
        ),
    )
    info = f"last_over_time(vllm_specdec_info[{look}])"
    yield Record(
        s.METHOD,
        f"topk by ({s.ENGINE}) (1, group by ({s.ENGINE}, method) ({info}))\n"
        f"and on ({s.MODEL}) (count by ({s.MODEL}) (count by ({s.MODEL}, method) "
        f"({info})) > 1)",
        why=(
            "The method of each engine, only of models with several: an A/B test, or "
            "replicas without speculation."
        ),
    )
    advised = f"last_over_time(vllm_specdec_recommended_num_speculative_tokens[{look}])"
    yield Record(
        s.ADVICE,
        f"count by ({s.MODEL}, action) (\n"
        "  "
        f'(last_over_time(vllm_specdec_recommendation{{action=~"disable|switch_method"}}[{look}]) == 1)\n'
        f"  and ignoring (action) {advised}\n"
        f")\n/ on ({s.MODEL}) group_left () count by ({s.MODEL}) ({advised})",
        why=(
            "The share of the engines with advice, by the exporter's advice, where an "
            "alert asks for it."
        ),
    )


def _advice() -> Iterator[Record]:
    """Yield what is judged over hours or a day."""
    look = s.LOOK_BACK
    k = f"last_over_time(vllm_specdec_num_speculative_tokens[{look}])"
    advised = f"last_over_time(vllm_specdec_recommended_num_speculative_tokens[{look}])"
    yield Record(
        "model:vllm_specdec_recommended_num_speculative_tokens:median",
        f"quantile by ({s.MODEL}) (0.5, {advised})",
        why=(
            "The advised K of a typical engine, and how much faster engines would be "
            "with theirs."
        ),
    )
    at = f"last_over_time(vllm_specdec_estimated_speedup_at[{look}])"
    chosen, present = (
        f"avg by ({s.MODEL}) ({at}\n  and on ({s.ENGINE}, num_speculative_tokens) "
        f'count_values by ({s.ENGINE}) ("num_speculative_tokens", {value}))'
        for value in (advised, k)
    )
    yield Record("model:vllm_specdec_advised_speedup:ratio", f"{chosen}\n/\n{present}")
    yield Record(
        "model:vllm_specdec_cost_profile:engines",
        (
            f"count by ({s.MODEL}, cost_profile) "
            f"(last_over_time(vllm_specdec_info[{look}]))"
        ),
        why=(
            "Engines by the cost profile of their estimate, and by the basis of their "
            "speedup."
        ),
    )
    yield Record(
        "model:vllm_specdec_basis:engines",
        f"count by ({s.MODEL}, basis) (last_over_time(vllm_specdec_speedup[{look}]))",
    )
