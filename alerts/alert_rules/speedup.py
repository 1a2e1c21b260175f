"""Records of whether speculation pays: the speedup of engines and models, and the
verdict.
"""

from collections.abc import Iterator

from . import series as s
from .rule import Record

_DRAFTS = "model:vllm_specdec_drafts:rate5m"
#: What is known of a model, by the label `verdict`.
VERDICT = "model:vllm_specdec_verdict:info"
#: The same where there are enough drafts to judge by.
_WITH_ENOUGH_DRAFTS = "model:vllm_specdec_speedup_of_enough_drafts:ratio_rate5m"
#: The threshold of the probability from which on a loss counts as one.
PROBABLE = "probable_loss_probability"
#: The speedup of each engine, against replicas without speculation and by the best
#: basis, and a guess of it by model.
_REPLICA = "engine:vllm_specdec_replica_speedup:last3m"
_ENGINE = "engine:vllm_specdec_speedup:last3m"
_REPLICA_ESTIMATE = "engine:vllm_specdec_replica_estimate:last3m"
_GUESSED = "model:vllm_specdec_guessed_speedup:min"
#: The speedup of each engine that is unknown, but in all probability a loss.
_PROBABLE = "engine:vllm_specdec_probable_loss:last3m"
#: Tokens of engines with a known speedup, and the time of plain decoding for them.
_TOKENS = "model:vllm_specdec_judged_tokens:rate5m"
_SPENT = "model:vllm_specdec_plain_token_times:rate5m"
_MEASURED, _CALIBRATED, _OBSERVED, _MODELLED = (
    (
        "sum without (basis) "
        f'(last_over_time(vllm_specdec_speedup{{basis="{basis}"}}[{s.LOOK_BACK}]))'
    )
    for basis in ("measured", "calibrated", "observed", "modelled")
)
#: Whether an interval includes 1, and what a measurement says, decided or not.
_MAY_BE = (
    "(sum without (bound) "
    f'(last_over_time(vllm_specdec_speedup_interval{{bound="high"}}[{s.LOOK_BACK}])) '
    "and ignoring (verdict) "
    f'(last_over_time(vllm_specdec_payoff{{verdict="unknown"}}[{s.LOOK_BACK}]) == 1))'
)
_BENEFICIAL = (
    f"min by ({s.MODEL}) "
    f'(last_over_time(vllm_specdec_payoff{{verdict="beneficial"}}[{s.LOOK_BACK}])) == 1'
)
_UNKNOWN = (
    f'last_over_time(vllm_specdec_payoff{{verdict="unknown"}}[{s.LOOK_BACK}]) == 1'
)
_ANY_MEASURED = (
    "sum without (window) "
    f'(last_over_time(vllm_specdec_measured_speedup{{window="5m"}}[{s.LOOK_BACK}]))'
    " or sum without (basis, window) "
    f'(last_over_time(vllm_specdec_estimated_speedup{{basis="measured", '
    f'window="5m"}}[{s.LOOK_BACK}]))'
)


def records() -> Iterator[Record]:
    """Yield what says whether speculation pays, each after what it is made of."""
    yield Record(
        s.ENOUGH_5M,
        f"group by ({s.MODEL}) ({s.enough('5m')})",
        why="Enough drafts to judge by.",
    )
    yield Record(
        s.ENOUGH_30M,
        f"group by ({s.MODEL}) (\n  {s.enough('30m')}\n"
        f"  and avg_over_time(({_DRAFTS} > bool 0)[30m:1m]) > 2 / 3\n"
        f"  and last_over_time({_DRAFTS}[15m] offset 15m)\n)",
        why="And in two thirds of half an hour: a benchmark of ten minutes, or a "
        "minute of traffic in an hour, is over before "
        "anybody could act.",
    )
    yield Record(
        s.ENOUGH_1H,
        f"group by ({s.MODEL}) ({s.enough('1h', 'comparison_minimum_drafts')})",
    )
    yield from _of_each_engine()
    yield from _of_models()
    yield from _by_method(_ENGINE)
    yield from _over_hours()
    yield from _guesses()
    yield from _verdict()
    yield from _by_load()


def _of_each_engine() -> Iterator[Record]:
    look = s.LOOK_BACK
    off = f'last_over_time(vllm_specdec_activity{{state="off"}}[{look}]) == 1'

    def plain_step(term: str) -> str:
        fit = f'last_over_time(vllm_specdec_step_fit_seconds{{term="{term}"}}[{look}])'
        return (
            f"on ({s.MODEL}) group_left () avg by ({s.MODEL}) ({fit} and ignoring "
            f"(state, term) ({off}))"
        )

    def last(name: str) -> str:
        return (
            "sum without (window) "
            f'(last_over_time(vllm_specdec_{name}{{window="5m"}}[{look}]))'
        )

    covered = last("coverage_ratio")
    plain = (
        f"({last('mean_batch_size')} * {plain_step('per_request')}\n+ "
        f"{plain_step('fixed')})"
    )
    yield Record(
        _REPLICA_ESTIMATE,
        f"({plain}\n/ ({last('step_seconds')} > 0)\n"
        f"/ (({covered} / ({last('mean_acceptance_length')} > 0) + 1 - {covered}) > "
        "0)) > 0\n"
        f"unless (({_ANY_MEASURED}) and ignoring (verdict) ({_UNKNOWN}))",
        why="Speedup against replicas of the model without speculation: the learned "
        "time of a step there, at this batch size, "
        "over the engine's own time of a step for each token it gives. It does not "
        "decide what a measurement leaves open.",
    )
    error = (
        f"last_over_time(vllm_specdec_step_fit_error_ratio[{look}]) and ignoring "
        f"(state) ({off})"
    )
    yield Record(
        _REPLICA,
        f"{_REPLICA_ESTIMATE} and abs(ln({_REPLICA_ESTIMATE}))\n"
        f"> on ({s.MODEL}) group_left () ln(1 + max by ({s.MODEL}) ({error}))",
        why=(
            "The same where its interval, which is the error of the replicas' learned "
            "line, leaves out 1."
        ),
    )
    yield Record(
        _PROBABLE,
        "exp(avg without (bound) "
        f"(ln(last_over_time(vllm_specdec_speedup_interval[{look}]))))\n"
        f"and ignoring (verdict) ({_UNKNOWN})\n"
        f"and (last_over_time(vllm_specdec_loss_probability[{look}]) >= on "
        f"({s.TARGET}) group_left () "
        f"{s.threshold_of_targets(PROBABLE)})",
        why=(
            "The middle of an interval that includes 1, where speculation loses in all "
            "probability."
        ),
    )
    yield Record(
        _ENGINE,
        (
            f"{_MEASURED}\nor\n{_REPLICA}\nor\n{_PROBABLE}\nor\n{_CALIBRATED}\nor\n"
            f"{_OBSERVED}\nor\n{_MODELLED}"
        ),
        why="Speedup of all output by the best basis: a baseline, a replica without "
        "speculation, calibrate, own steps, a model. "
        "Absent while it is not known whether speculation pays, unless it probably "
        "loses: that replaces the estimate before at once.",
    )


def _of_models() -> Iterator[Record]:
    judged = s.JUDGED_DRAFTS
    losing = "model:vllm_specdec_losing_drafts:rate5m"
    generated = "engine:vllm_specdec_generation_tokens:rate5m"
    drafts = "engine:vllm_specdec_drafts:rate5m"
    yield Record(
        _TOKENS,
        f"sum by ({s.MODEL}) (({generated} and {_ENGINE}) > 0)",
        why="Tokens of engines with a known speedup, and their time in plain tokens: "
        "the quotient "
        "is the speedup of any number of engines.",
    )
    yield Record(_SPENT, f"sum by ({s.MODEL}) (({generated} > 0) / {_ENGINE})")
    yield Record(
        judged,
        f"sum by ({s.MODEL}) ({drafts} and {_ENGINE})",
        why=(
            "Drafts of engines with a known speedup, and those made while speculation "
            "lost."
        ),
    )
    yield Record(
        losing,
        f"sum by ({s.MODEL}) ({drafts} * ({_ENGINE} < bool on ({s.MODEL}) group_left "
        "() "
        f"{s.threshold('harmful_speedup')}))",
    )
    yield Record(s.SPEEDUP, f"{_TOKENS} / {_SPENT}")
    yield Record(
        _WITH_ENOUGH_DRAFTS,
        f"{s.SPEEDUP}\nand 300 * {s.compare(judged, '>=', 'advice_minimum_drafts')}",
        why="The speedup while engines with a known one have enough drafts to judge by.",
    )


def _over_hours() -> Iterator[Record]:
    for window in ("30m", "1h"):
        yield Record(
            f"model:vllm_specdec_speedup:ratio_rate{window}",
            f"avg_over_time({_TOKENS}[{window}]) / avg_over_time({_SPENT}[{window}])",
            why=(
                "Both sides are means of rates over the same time, so this is a ratio "
                "of sums."
            ),
        )
    yield Record(
        "model:vllm_specdec_speedup:ratio_rate1d",
        f"sum_over_time({_TOKENS}[1d:15m]) / (sum_over_time({_SPENT}[1d:15m]) > 0)",
        why=(
            "Weighted by traffic: what thin traffic at night cannot show, the day has "
            "shown."
        ),
    )


def _guesses() -> Iterator[Record]:
    look = s.LOOK_BACK
    estimated = f'last_over_time(vllm_specdec_estimated_speedup{{window="5m"}}[{look}])'
    yield Record(
        _GUESSED,
        f"min by ({s.MODEL}) ((\n"
        f"  ({_ANY_MEASURED} or max without (basis, window) ({estimated})) and "
        f"ignoring (verdict) ({_UNKNOWN})\n"
        f"  or {_OBSERVED} or {_MODELLED}\n"
        f") unless {_REPLICA})",
        why="A guess: the lowest estimate that is neither measured nor calibrated, "
        "whatever its interval, or of a speedup whose "
        "interval includes 1. A guess that it pays turns Disable into a ticket that "
        "asks to measure; it never silences it.",
    )
    yield Record(
        s.WITHOUT_GUESSES,
        f"{_WITH_ENOUGH_DRAFTS}\nunless {_GUESSED}",
        why="The speedup while no engine has but a guess.",
    )
    yield Record(
        s.KNOWN_SPEEDUP,
        f"{s.SPEEDUP}\nor\n"
        f"(last_over_time({_WITH_ENOUGH_DRAFTS}[1h]) or "
        f"model:vllm_specdec_speedup:ratio_rate1d) unless {_GUESSED}",
        why=(
            "The speedup now, or the last one where nothing is said of now: an earlier "
            "gain proves nothing once it is unknown."
        ),
    )


def _verdict() -> Iterator[Record]:
    """Yield what decides whether speculation should be off, and the verdict that boards
    and alerts share.
    """
    no_k_pays = f'{s.ADVICE}{{action="disable"}} > 0.5'
    values = s.labelled(
        "measure",
        mean_acceptance_length="model:vllm_specdec_mean_acceptance_length:ratio_rate5m",
        acceptance_rate="model:vllm_specdec_acceptance:ratio_rate5m",
        speedup=(
            f"(model:vllm_specdec_speedup:ratio_rate30m and on ({s.MODEL}) "
            f"({no_k_pays}))"
        ),
    )
    yield Record(
        s.DECISIVE,
        (
            f"({values})\nand on ({s.MODEL}) {s.ENOUGH_30M}\nand on ({s.MODEL}) "
            f"({s.enough('5m', 'minimum_drafts')})"
        ),
        why="What says that speculation should be off if it is below its threshold, "
        "while there are enough drafts: the "
        "two measures of the published rule, and the speedup where no K pays on most "
        "engines.",
    )
    limits = s.labelled(
        "measure",
        mean_acceptance_length=s.threshold("disable_mean_acceptance_length"),
        acceptance_rate=s.threshold("disable_acceptance_ratio"),
        speedup=s.threshold("harmful_speedup"),
    )
    yield Record(s.DECISIVE_LIMIT, limits)
    published = (
        f'{s.DECISIVE}{{measure!="speedup"}} / on ({s.MODEL}, measure) '
        f"{s.DECISIVE_LIMIT}"
    )
    yield Record(
        s.PUBLISHED_RULE,
        f"min by ({s.MODEL}) ({published})",
        why="Below 1, speculation should be off by the published rule: by default, a "
        "mean acceptance length below 1.2 or an "
        "acceptance below 0.50, for draft models.",
    )
    benefit = s.threshold("beneficial_speedup")
    harm = s.threshold("harmful_speedup")
    day = (
        "model:vllm_specdec_speedup:ratio_rate1d and "
        f"last_over_time({s.WITHOUT_GUESSES}[1d])"
    )
    known = (
        f"({s.SPEEDUP} unless {_GUESSED})\n"
        f"  or ((last_over_time({s.WITHOUT_GUESSES}[1h]) or ({day})) unless "
        f"{_WITH_ENOUGH_DRAFTS})"
    )
    yield Record(
        s.NOT_LOSING,
        f"group by ({s.MODEL}) (\n  ({known}) >= {benefit}\n"
        f"  or ({_BENEFICIAL} unless {_GUESSED})\n"
        f"  or (min by ({s.MODEL}) ({_MEASURED}) >= {harm} and {s.SPEEDUP} >= "
        f"{harm})\n)",
        why="Measured not to lose; or beneficial by more than a guess now or, while "
        "there is no speedup of enough drafts, over the "
        "last hour or day.",
    )
    yield Record(
        s.MAY_PAY,
        f"group by ({s.MODEL}) (\n"
        f"  ({_GUESSED}\n    or (last_over_time({_GUESSED}[1d]) unless "
        f"last_over_time({s.WITHOUT_GUESSES}[1d]))) >= {harm}\n"
        f"  or max by ({s.MODEL}) ({_MAY_BE} unless {_PROBABLE}) >= {harm}\n"
        f")\nunless {_WITH_ENOUGH_DRAFTS} < {harm}",
        why="An engine has but a guess now or, where traffic is too thin to tell, "
        "all had within the last day; by it "
        "speculation may pay, and the engines that are judged do not lose as a whole.",
    )
    yield Record(
        s.DISABLE_RULE,
        f"min by ({s.MODEL}) ({s.DECISIVE} / on ({s.MODEL}, measure) "
        f"{s.DECISIVE_LIMIT})\n"
        f"unless {s.NOT_LOSING}\nunless {s.MAY_PAY}",
        why=(
            "Below 1, speculation should be off: by the published rule or by the "
            "speedup, and nothing says that it pays."
        ),
    )
    yield Record(
        s.TO_BE_MEASURED,
        (
            f"group by ({s.MODEL}) ({s.PUBLISHED_RULE} < 1 and {s.MAY_PAY} unless "
            f"{s.NOT_LOSING})"
        ),
        why="The published rule and a guess contradict each other.",
    )
    unknown = f"group by ({s.MODEL}) ({_UNKNOWN} unless on ({s.MODEL}) {s.SPEEDUP})"
    known_verdicts = s.labelled(
        "verdict",
        harmful=f"({s.SPEEDUP} < {harm})",
        marginal=f"({s.SPEEDUP} >= {harm} < {benefit} unless {s.TO_BE_MEASURED})",
        beneficial=f"({s.SPEEDUP} >= {benefit} unless {s.TO_BE_MEASURED})",
        unknown=f"(({s.SPEEDUP} >= {harm} and {s.TO_BE_MEASURED}) or {unknown})",
    )
    yield Record(
        VERDICT,
        f"group by ({s.MODEL}, verdict) (\n{known_verdicts}\n)",
        why=(
            "One series for each model that is judged. Unknown also while it is to be "
            "measured."
        ),
    )


def _by_load() -> Iterator[Record]:
    running = "model:vllm_specdec_requests_running:avg5m"
    beneficial = (
        f"and {s.SPEEDUP} >= {s.threshold('beneficial_speedup')}\nand {s.ENOUGH_5M}"
    )
    yield Record(
        "model:vllm_specdec_beneficial_requests_running:avg5m",
        f"{running}\n{beneficial}",
        why=(
            "Load and K at which speculation was beneficial, and load at which it "
            "lost: for Reenable."
        ),
    )
    yield Record(
        "model:vllm_specdec_beneficial_num_speculative_tokens:max",
        f"model:vllm_specdec_num_speculative_tokens:max\n{beneficial}",
    )
    yield Record(
        "model:vllm_specdec_losing_requests_running:avg5m",
        (
            f"{running}\nand {s.SPEEDUP} < {s.threshold('harmful_speedup')}\nand "
            f"{s.ENOUGH_5M}"
        ),
    )


def _by_method(speedup: str) -> Iterator[Record]:
    """Yield what is judged by method, for models that have several: their sum hides the
    one that loses.

    Args:
        speedup: the series of the speedup of each engine.
    """

    def total(expr: str) -> str:
        return (
            f"sum by ({s.MODEL}, method) ({expr} * on ({s.ENGINE}) group_left (method) "
            f"{s.METHOD})"
        )

    accepted, drafted, drafts = (
        f"engine:vllm_specdec_{counter}:rate5m"
        for counter in ("accepted_tokens", "draft_tokens", "drafts")
    )
    generated = "engine:vllm_specdec_generation_tokens:rate5m"
    enough, enough_judged = (
        (
            f"300 * {total(of)} >= on ({s.MODEL}) group_left () "
            f"{s.threshold('advice_minimum_drafts')}"
        )
        for of in (drafts, f"({drafts} and {speedup})")
    )
    by_method = "method:vllm_specdec_acceptance_of_enough_drafts:ratio_rate5m"
    yield Record(
        by_method,
        f"{total(accepted)} / ({total(drafted)} > 0)\nand ({enough})",
        why=(
            "Of each method of a model that has several, as in an A/B test, while it "
            "has enough drafts."
        ),
    )
    judged = f"(({generated} and {speedup}) > 0)"
    spent = f"(({generated} > 0) / {speedup})"
    yield Record(
        s.JUDGED_SPEEDUP,
        f"({total(judged)}\n/ {total(spent)}\nand ({enough_judged}))\n"
        f"or ({_WITH_ENOUGH_DRAFTS} unless on ({s.MODEL}) {by_method})",
        why=(
            "What is judged: each method of a model that has several; else, and while "
            "none of them has enough drafts, the model."
        ),
    )
    yield Record(
        s.JUDGED_ACCEPTANCE,
        (
            f"{by_method}\nor (model:vllm_specdec_acceptance:ratio_rate5m and "
            f"{s.ENOUGH_5M} unless on ({s.MODEL}) {by_method})"
        ),
    )
