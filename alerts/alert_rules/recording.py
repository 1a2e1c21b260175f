"""Recording rules: rates and ratios at three levels over five windows, speedup, thresholds, latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rule import (
    LOOK_BACK,
    MODEL,
    SPEEDUP,
    Group,
    Level,
    Record,
    enough,
    threshold,
    thresholds_of_models,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Most rules of a group: Mimir's own limit.
GROUP_SIZE = 20
SHORT = ("5m", "30m", "1h")
LONG = ("6h", "1d")
#: Long windows hardly move between two evaluations, and cost the most; below Prometheus's look-back of 5m.
LONG_INTERVAL = "3m"

COUNTERS = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens", "accepted_tokens_per_position")
LEVELS: tuple[Level, ...] = ("engine", "instance", "model")

#: Thresholds that the rules compare with.
THRESHOLDS = (
    "minimum_drafts",
    "advice_minimum_drafts",
    "comparison_minimum_drafts",
    "measurement_minimum_requests",
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
    "widened_latency_ratio",
    "failed_request_ratio",
    "worth_it_objective_ratio",
)


def groups() -> Iterator[Group]:
    """Yield the groups of recording rules, each after those that it needs."""
    yield from _split("thresholds", _thresholds())
    for windows, interval in ((SHORT, ""), (LONG, LONG_INTERVAL)):
        for window in windows:
            yield Group(f"vllm-specdec.rates.{window}", tuple(_rates(window)), interval)
            yield Group(f"vllm-specdec.ratios.{window}", tuple(_ratios(window)), interval)
    yield Group("vllm-specdec.engines", tuple(_engines()))
    yield from _split("speedup", _speedup())
    yield Group("vllm-specdec.server", tuple(_server()))


def _split(name: str, records: Iterable[Record]) -> Iterator[Group]:
    """Yield groups that Mimir takes: it allows 20 rules to a group unless told otherwise."""
    found = tuple(records)
    for number, start in enumerate(range(0, len(found), GROUP_SIZE), 1):
        yield Group(f"vllm-specdec.{name}.{number}", found[start : start + GROUP_SIZE])


def total(counter: str) -> str:
    """Return the exporter's counter."""
    return f"vllm_specdec_{counter}_total"


def by(level: Level, inner: str, *more: str) -> str:
    """Return the sum that takes a series of the level below to this one."""
    if level == "instance":
        return f"sum without (engine) ({inner})"
    return f"sum by ({', '.join((MODEL, *more))}) ({inner})"


def _below(level: Level) -> Level:
    return LEVELS[LEVELS.index(level) - 1]


def _thresholds() -> Iterator[Record]:
    why = (
        "A threshold for every model, whatever exporter watches it. Where exporters of one model disagree, "
        "the lowest counts. No series, no alert: VLLMSpecDecodeRulesBlind tells of that."
    )
    yield from thresholds_of_models(THRESHOLDS, f"last_over_time(vllm_specdec_info[{LOOK_BACK}])", why)


def _rates(window: str) -> Iterator[Record]:
    for counter in COUNTERS:
        own = ("position",) if counter.endswith("_per_position") else ()
        name = f"vllm_specdec_{counter}:rate{window}"
        yield Record(f"engine:{name}", f"rate({total(counter)}[{window}])")
        for level in LEVELS[1:]:
            yield Record(f"{level}:{name}", by(level, f"{_below(level)}:{name}", *own))
    name = f"vllm_specdec_drafts:increase{window}"
    yield Record(f"engine:{name}", f"increase({total('drafts')}[{window}])", why="The sample of the ratios.")
    for level in LEVELS[1:]:
        yield Record(f"{level}:{name}", by(level, f"{_below(level)}:{name}"))


def _ratios(window: str) -> Iterator[Record]:
    for level in LEVELS:

        def rate(counter: str, level: Level = level) -> str:
            return f"{level}:vllm_specdec_{counter}:rate{window}"

        def ratio(name: str, expr: str, why: str = "", level: Level = level) -> Record:
            return Record(f"{level}:vllm_specdec_{name}:ratio_rate{window}", expr, why=why)

        accepted, drafted, drafts = rate("accepted_tokens"), rate("draft_tokens"), rate("drafts")
        position, generated = rate("accepted_tokens_per_position"), rate("generation_tokens")
        yield ratio("acceptance", f"{accepted} / ({drafted} > 0)", "Without drafts there is no ratio.")
        yield ratio("mean_acceptance_length", f"1 + {accepted} / ({drafts} > 0)")
        yield ratio("coverage", f"clamp_max(({accepted} + {drafts}) / ({generated} > 0), 1)")
        yield ratio(
            "wasted_verification",
            f"({drafted} - {accepted}) / (({drafted} + {drafts}) > 0)",
            "Of the tokens that the target model verified, the share that was thrown away.",
        )
        yield ratio(
            "position_acceptance",
            f"{position} / ignoring (position) group_left () ({drafts} > 0)",
        )


def _engines() -> Iterator[Record]:
    look = LOOK_BACK
    k = f"last_over_time(vllm_specdec_num_speculative_tokens[{look}])"
    yield Record("model:vllm_specdec_num_speculative_tokens:max", f"max by ({MODEL}) ({k})")
    yield Record("model:vllm_specdec_num_speculative_tokens:min", f"min by ({MODEL}) ({k})")
    for window in ("5m", "1h"):
        yield Record(
            f"model:vllm_specdec_requests_running:avg{window}",
            f"avg by ({MODEL}) (avg_over_time(vllm_specdec_requests_running[{window}]))",
            why="Requests in the batch of a mean engine." if window == "5m" else "",
        )
    yield Record(
        "model:vllm_specdec_requests:avg1h",
        f"avg by ({MODEL}) (avg_over_time(vllm_specdec_requests_running[1h]) "
        "+ avg_over_time(vllm_specdec_requests_waiting[1h]))",
        why="Including waiting requests, because a full batch does not grow.",
    )
    for level in ("engine", "model"):
        position = f"{level}:vllm_specdec_accepted_tokens_per_position:rate30m"
        if level == "engine":
            first, last, own_k = (
                f'sum without (position) ({position}{{position="0"}})',
                f"min without (position) ({position})",
                k,
            )
        else:
            first, last, own_k = (
                f'sum by ({MODEL}) ({position}{{position="0"}})',
                f"min by ({MODEL}) ({position})",
                "model:vllm_specdec_num_speculative_tokens:max",
            )
        yield Record(
            f"{level}:vllm_specdec_position_decay:ratio_rate30m",
            f"({last} / ({first} > 0)) ^ (1 / (({own_k} > 1) - 1))",
            why=(
                "Geometric mean of the conditional acceptance behind position 0: the root of the last position's rate over "
                "the first's. Rates never rise with the position, so the lowest "
                "is the last."
                if level == "engine"
                else ""
            ),
        )
    yield Record(
        "engine:vllm_specdec_peers_mean_acceptance_length:ratio_rate1h",
        "1 + (\n"
        f"  (engine:vllm_specdec_accepted_tokens:rate1h - on ({MODEL}) group_left () "
        "model:vllm_specdec_accepted_tokens:rate1h)\n"
        "  /\n"
        f"  ((engine:vllm_specdec_drafts:rate1h - on ({MODEL}) group_left () "
        "model:vllm_specdec_drafts:rate1h) < 0)\n"
        ")",
        why="Mean acceptance length of the model's other engines: the model's sums less the engine's own.",
    )
    yield Record(
        "engine:vllm_specdec_peers_drafts:increase1h",
        f"-(engine:vllm_specdec_drafts:increase1h - on ({MODEL}) group_left () "
        "model:vllm_specdec_drafts:increase1h)",
    )
    advised = f"last_over_time(vllm_specdec_recommended_num_speculative_tokens[{look}])"
    yield Record(
        "model:vllm_specdec_recommendation:engines",
        f'count_values by ({MODEL}, action) ("recommended_k",\n'
        f"  (last_over_time(vllm_specdec_recommendation[{look}]) == 1) * ignoring (action) group_left () {advised}\n"
        ")",
        why="Engines by the exporter's advice.",
    )
    yield Record("model:vllm_specdec_advised:engines", f"count by ({MODEL}) ({advised})")
    yield Record(
        "model:vllm_specdec_cost_profile:engines",
        f"count by ({MODEL}, cost_profile) (last_over_time(vllm_specdec_info[{look}]))",
        why="Engines by the cost profile of their estimate.",
    )


def _speedup() -> Iterator[Record]:
    look = LOOK_BACK
    measured, calibrated, modelled = (
        f'sum without (basis) (last_over_time(vllm_specdec_speedup{{basis="{basis}"}}[{look}]))'
        for basis in ("measured", "calibrated", "modelled")
    )
    for term in ("fixed", "per_request"):
        learned = (
            f'sum without (term) (last_over_time(vllm_specdec_step_fit_seconds{{term="{term}"}}[{look}]))'
        )
        off = f'last_over_time(vllm_specdec_activity{{state="off"}}[{look}]) == 1'
        yield Record(
            f"model:vllm_specdec_plain_step_{term}_seconds:avg",
            f"avg by ({MODEL}) ({learned} and ignoring (state) ({off}))",
            why="The learned time of a step on replicas of the model without speculation."
            if term == "fixed"
            else "",
        )

    def last(name: str) -> str:
        return f'sum without (window) (last_over_time(vllm_specdec_{name}{{window="5m"}}[{look}]))'

    covered = last("coverage_ratio")
    plain = (
        f"({last('mean_batch_size')} * on ({MODEL}) group_left () "
        f"model:vllm_specdec_plain_step_per_request_seconds:avg + on ({MODEL}) group_left () "
        "model:vllm_specdec_plain_step_fixed_seconds:avg)"
    )
    replica = "engine:vllm_specdec_replica_speedup:last3m"
    yield Record(
        replica,
        f"({plain}\n/ ({last('step_seconds')} > 0)\n"
        f"/ (({covered} / ({last('mean_acceptance_length')} > 0) + 1 - {covered}) > 0)) > 0",
        why="Speedup against replicas of the model without speculation: their time of a step at this batch size, "
        "over the engine's own time of a step for each token it gives.",
    )
    yield Record(
        SPEEDUP["engine"],
        f"{measured}\nor\n{replica}\nor\n{calibrated}\nor\n{modelled}",
        why="Speedup of all output by the best basis: a baseline, a replica without speculation, calibrate, a model. "
        "Absent while it is not known whether speculation pays.",
    )
    yield Record(
        "engine:vllm_specdec_measured_speedup:last3m",
        measured,
    )
    tokens, spent = "vllm_specdec_judged_tokens:rate5m", "vllm_specdec_plain_token_times:rate5m"
    drafts, losing = "vllm_specdec_judged_drafts:rate5m", "vllm_specdec_losing_drafts:rate5m"
    yield Record(
        f"engine:{tokens}",
        f"(engine:vllm_specdec_generation_tokens:rate5m and {SPEEDUP['engine']}) > 0",
        why="Tokens of engines with a known speedup, and their time in plain tokens: the quotient "
        "is the speedup of any number of engines.",
    )
    yield Record(f"engine:{spent}", f"engine:{tokens} / {SPEEDUP['engine']}")
    yield Record(
        f"engine:{drafts}",
        f"engine:vllm_specdec_drafts:rate5m and {SPEEDUP['engine']}",
        why="Drafts of engines with a known speedup, and those made while speculation lost.",
    )
    yield Record(
        f"engine:{losing}",
        f"engine:{drafts} * ({SPEEDUP['engine']} < bool on ({MODEL}) group_left () "
        f"{threshold('harmful_speedup')})",
    )
    for level in LEVELS[1:]:
        for name in (tokens, spent, drafts, losing):
            yield Record(f"{level}:{name}", by(level, f"{_below(level)}:{name}"))
        yield Record(SPEEDUP[level], f"{level}:{tokens} / {level}:{spent}")
    for window in ("30m", "1h"):
        yield Record(
            f"model:vllm_specdec_speedup:ratio_rate{window}",
            f"avg_over_time(model:{tokens}[{window}]) / avg_over_time(model:{spent}[{window}])",
            why="Both sides are means of rates over the same time, so this is a ratio of sums."
            if window == "30m"
            else "",
        )
    yield Record(
        "model:vllm_specdec_measured_speedup:min",
        f"min by ({MODEL}) (engine:vllm_specdec_measured_speedup:last3m)",
    )
    yield Record(
        "model:vllm_specdec_payoff_beneficial:min",
        f'min by ({MODEL}) (last_over_time(vllm_specdec_payoff{{verdict="beneficial"}}[{look}]))',
        why="1 if the payoff of every engine is beneficial.",
    )
    running = "model:vllm_specdec_requests_running:avg5m"
    beneficial = f"and {SPEEDUP['model']} >= {threshold('beneficial_speedup')}\nand {enough('model', '30m')}"
    yield Record(
        "model:vllm_specdec_beneficial_requests_running:avg5m",
        f"{running}\n{beneficial}",
        why="Load and K at which speculation was beneficial, and load at which it lost: for Reenable.",
    )
    yield Record(
        "model:vllm_specdec_beneficial_num_speculative_tokens:max",
        f"model:vllm_specdec_num_speculative_tokens:max\n{beneficial}",
    )
    yield Record(
        "model:vllm_specdec_losing_requests_running:avg5m",
        f"{running}\nand {SPEEDUP['model']} < {threshold('harmful_speedup')}\nand {enough('model', '30m')}",
    )


#: vLLM's own histograms, with the quantiles that the rules need.
HISTOGRAMS = {
    "time_to_first_token_seconds": (0.95,),
    "request_time_per_output_token_seconds": (0.5, 0.99),
}


def _server() -> Iterator[Record]:
    why = "From vLLM itself, where Prometheus scrapes it as well; absent where it does not."
    for name, quantiles in HISTOGRAMS.items():
        yield Record(
            f"model:vllm_{name}_bucket:rate1h",
            f"sum by ({MODEL}, le) (rate(vllm:{name}_bucket[1h]))",
            why=why,
        )
        why = ""
        yield Record(
            f"model:vllm_{name}_count:increase1h", f"sum by ({MODEL}) (increase(vllm:{name}_count[1h]))"
        )
        for quantile in quantiles:
            yield Record(
                f"model:vllm_{name}:p{round(100 * quantile)}_rate1h",
                f"histogram_quantile({quantile}, model:vllm_{name}_bucket:rate1h)",
            )
    for reason, name in (("", "requests"), ('{finished_reason="error"}', "failed_requests")):
        yield Record(
            f"model:vllm_{name}:increase5m",
            f"sum by ({MODEL}) (increase(vllm:request_success_total{reason}[5m]))",
        )
    yield Record(
        "model:vllm_repetitive_requests:increase30m",
        f'sum by ({MODEL}) (increase(vllm:request_success_total{{finished_reason="repetition"}}[30m]))',
    )
    yield Record(
        "model:vllm_requests:increase30m", f"sum by ({MODEL}) (increase(vllm:request_success_total[30m]))"
    )
    yield Record(
        "model:vllm_num_preemptions:rate5m", f"sum by ({MODEL}) (rate(vllm:num_preemptions_total[5m]))"
    )
