"""Records of whether speculation pays: the speedup of engines and models, and the
verdict.

The speedup of a model is the ratio of sums that `economics.equal_load` computes over
strata, here over engines, whose time per token without speculation counts as equal::

    sum(tokens) / sum(tokens / speedup of the engine)

over engines with a known speedup. What decides something for all engines of a model
counts the others as well, with a speedup of 1: they are not known to gain or to lose.
A model with several methods is decided on method by method.

It has no interval. Those of its engines come from the exporter, which gives a speedup
only where the interval leaves out 1 or a loss is probable.
"""

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vllm_specdec_exporter.config.thresholds import Thresholds

from . import series as s
from .rule import Record

_DEFAULTS = Thresholds()
_DRAFTS = "model:vllm_specdec_drafts:rate5m"
#: What is known of a model, by the label `verdict`.
VERDICT = "model:vllm_specdec_verdict:info"
#: The same where there are enough drafts to judge by.
_WITH_ENOUGH_DRAFTS = "model:vllm_specdec_speedup_of_enough_drafts:ratio_rate5m"
#: The speedup of each engine, against replicas without speculation and by the best
#: basis, and a guess of it by model.
_REPLICA = "engine:vllm_specdec_replica_speedup:last3m"
_REPLICA_ESTIMATE = "engine:vllm_specdec_replica_estimate:last3m"
_GUESSED = "model:vllm_specdec_guessed_speedup:min"
#: The exporter's speedup of an engine, also a probable loss; and its guess.
_JUDGED, _GUESS = (
    f"last_over_time(vllm_specdec_{gauge}[{s.LOOK_BACK}])"
    for gauge in ("judged_speedup", "guessed_speedup")
)
#: Tokens of engines with a known speedup, and the time of plain decoding for them.
_TOKENS = "model:vllm_specdec_judged_tokens:rate5m"
_SPENT = "model:vllm_specdec_plain_token_times:rate5m"
_MEASURED = s.plain(
    f'last_over_time(vllm_specdec_speedup{{basis="measured"}}[{s.LOOK_BACK}])',
    without="basis",
)
#: Whether an interval includes 1, and what a measurement says, decided or not.
_MAY_BE = (
    "(sum without (bound) "
    f'(last_over_time(vllm_specdec_speedup_interval{{bound="high"}}[{s.LOOK_BACK}])) '
    "and ignoring (verdict) "
    f'(last_over_time(vllm_specdec_payoff{{verdict="unknown"}}[{s.LOOK_BACK}]) == 1))'
)
_BENEFICIAL = (
    "sum without (verdict) "
    f'(last_over_time(vllm_specdec_payoff{{verdict="beneficial"}}[{s.LOOK_BACK}]))'
)
_UNKNOWN = (
    f'last_over_time(vllm_specdec_payoff{{verdict="unknown"}}[{s.LOOK_BACK}]) == 1'
)
_ANY_MEASURED = " or ".join(
    (
        s.plain(
            f'last_over_time(vllm_specdec_measured_speedup{{window="5m"}}'
            f"[{s.LOOK_BACK}])",
            without="window",
        ),
        s.plain(
            f'last_over_time(vllm_specdec_estimated_speedup{{basis="measured", '
            f'window="5m"}}[{s.LOOK_BACK}])',
            without="basis, window",
        ),
    )
)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is decided on as one.

    Attributes:
        labels: the labels that name it.
        speedup: its speedup, where it is known.
        enough: the same while there are enough drafts to judge by.
        certain: the same while no engine has but a guess.
        guess: the lowest guess of its engines.
    """

    labels: str
    speedup: str
    enough: str
    certain: str
    guess: str

    def engines(self, series: str) -> str:
        """Return a series of engines with the labels that name what they belong to."""
        if self is _MODELS:
            return series
        return f"({series}) * on ({s.ENGINE}) group_left (method) {s.METHOD}"


_OF_METHODS = f'{s.JUDGED_SPEEDUP}{{method!=""}}'
_MODELS = _Scope(
    labels=s.MODEL,
    speedup=s.SPEEDUP,
    enough=_WITH_ENOUGH_DRAFTS,
    certain=f'{s.WITHOUT_GUESSES}{{method=""}}',
    guess=f'{_GUESSED}{{method=""}}',
)
_METHODS = _Scope(
    labels=f"{s.MODEL}, method",
    speedup=_OF_METHODS,
    enough=_OF_METHODS,
    certain=f'{s.WITHOUT_GUESSES}{{method!=""}}',
    guess=f'{_GUESSED}{{method!=""}}',
)


def _decided(rule: Callable[[_Scope], str]) -> str:
    """Return a rule for models, and for each method of a model with several."""
    return _either(rule(_MODELS), rule(_METHODS))


def _either(of_models: str, of_methods: str) -> str:
    """Return what is said of models, and instead of each method where a model has
    several.
    """
    return (
        "# models with one method\n"
        f"(\n{_indented(of_models)}\n  unless on ({s.MODEL}) {s.METHOD}\n)\n"
        f"or # each method of a model with several\n(\n{_indented(of_methods)}\n)"
    )


def _indented(expr: str) -> str:
    return textwrap.indent(expr, "  ")


def engine_records() -> Iterator[Record]:
    """Yield the speedup of engines, and whether there are enough drafts to judge by."""
    yield Record(
        s.ENOUGH_30M,
        f"group by ({s.MODEL}) (\n  {s.enough('30m')}\n"
        f"  and avg_over_time(({_DRAFTS} > bool 0)[30m:1m]) > 2 / 3\n"
        f"  and last_over_time({_DRAFTS}[15m] offset 15m)\n)",
        why=(
            "Enough drafts to judge by, in two thirds of half an hour: a benchmark of "
            "ten minutes, or a minute of traffic in an hour, is over before anybody "
            "could act."
        ),
    )
    yield _of_each_engine()


def model_records() -> Iterator[Record]:
    """Yield the speedup of models, and of their methods, by which is paged."""
    yield from _of_models()
    yield from _by_method()


def decisive_records() -> Iterator[Record]:
    """Yield what tickets and boards are decided by: over half an hour and more, so that
    it need not be evaluated as often as what pages.
    """
    yield from _over_hours()
    yield from _guesses()
    yield from _verdict()
    yield from _by_load()


def replica_records() -> Iterator[Record]:
    """Yield the speedup of engines against replicas of the model that do not draft."""
    look = s.LOOK_BACK
    off = f'last_over_time(vllm_specdec_activity{{state="off"}}[{look}]) == 1'

    def plain_step(term: str) -> str:
        fit = f'last_over_time(vllm_specdec_step_fit_seconds{{term="{term}"}}[{look}])'
        return (
            f"on ({s.MODEL}) group_left () avg by ({s.MODEL}) ({fit} and ignoring "
            f"(state, term) ({off}))"
        )

    def last(name: str) -> str:
        return s.plain(
            f'last_over_time(vllm_specdec_{name}{{window="5m"}}[{look}])',
            without="window",
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
        f"unless (({_ANY_MEASURED})\n"
        f"  and ignoring (verdict, {s.METADATA}) ({_UNKNOWN}))",
        why=(
            "Speedup against replicas of the model without speculation: the learned "
            "time of a step there, at this batch size, over the engine's own time of "
            "a step for each token it gives. It does not decide what a measurement "
            "leaves open."
        ),
    )
    error = (
        f"last_over_time(vllm_specdec_step_fit_error_ratio[{look}]) and ignoring "
        f"(state) ({off})"
    )
    yield Record(
        _REPLICA,
        f"{_REPLICA_ESTIMATE} and abs(ln({_REPLICA_ESTIMATE}))\n"
        f"> on ({s.MODEL}) group_left () ln(1 + max by ({s.MODEL}) ({error}))\n"
        f"unless {_MEASURED}",
        why=(
            "The same where its interval, which is the error of the replicas' learned "
            "line, leaves out 1, and nothing is measured."
        ),
    )


def _of_each_engine() -> Record:
    return Record(
        s.ENGINE_SPEEDUP,
        f"{_REPLICA}\nor\n{s.plain(_JUDGED)}",
        why=(
            "Speedup of all output by the best basis: a baseline, a replica without "
            "speculation, calibrate, own steps, a model. Absent while it is not known "
            "whether speculation pays, unless it probably loses."
        ),
    )


def _of_models() -> Iterator[Record]:
    generated = "engine:vllm_specdec_generation_tokens:rate5m"
    yield Record(
        _TOKENS,
        f"sum by ({s.MODEL}) (({generated} and {s.ENGINE_SPEEDUP}) > 0)",
        why=(
            "Tokens of engines with a known speedup, and their time in plain tokens: "
            "the quotient is the speedup of any number of engines."
        ),
    )
    yield Record(_SPENT, f"sum by ({s.MODEL}) (({generated} > 0) / {s.ENGINE_SPEEDUP})")
    yield Record(s.SPEEDUP, f"{_TOKENS} / {_SPENT}")
    drafts = "engine:vllm_specdec_drafts:rate5m"
    yield Record(
        s.JUDGED_DRAFTS,
        f"sum by ({s.MODEL}) ({drafts} and {s.ENGINE_SPEEDUP})",
        why="Drafts of engines with a known speedup: its sample.",
    )
    judged = f"300 * {s.JUDGED_DRAFTS}"
    every = "model:vllm_specdec_generation_tokens:rate5m"
    yield Record(
        _WITH_ENOUGH_DRAFTS,
        f"{_with_others(every, judged=_TOKENS, spent=_SPENT)}\n"
        f"and {s.compare(judged, '>=', 'advice_minimum_drafts')}",
        why=(
            "The speedup while engines with a known one have enough drafts to judge "
            "by. Engines of which it is not known count as 1."
        ),
    )


def _with_others(generated: str, judged: str, spent: str) -> str:
    """Return the speedup of all tokens, where those that are not judged count as 1.

    Args:
        generated: tokens of all engines.
        judged: tokens of those with a known speedup.
        spent: the time of plain decoding for the latter.
    """
    # The two are evaluated at different seconds: their difference may be below zero.
    others = f"clamp_min({generated} - {judged}, 0)"
    return f"({judged} + {others})\n/ ({spent} + {others})"


def losing_drafts() -> Record:
    """Return the drafts by which the objective weighs."""
    drafts = "engine:vllm_specdec_drafts:rate5m"
    return Record(
        "model:vllm_specdec_losing_drafts:rate5m",
        f"sum by ({s.MODEL}) (\n"
        f"  {drafts}\n"
        f"  * ({s.compare_each(s.ENGINE_SPEEDUP, '< bool', 'harmful_speedup')})\n"
        # For minutes VictoriaMetrics compares with a limit that is gone.
        f") and on ({s.MODEL}) {s.threshold('harmful_speedup')}",
        why="Drafts made while speculation lost.",
    )


def _over_hours() -> Iterator[Record]:
    judged = f"1800 * avg_over_time({s.JUDGED_DRAFTS}[30m])"
    enough = s.compare(judged, ">=", "advice_minimum_drafts")

    def mean(window: str) -> str:
        return (
            f"avg_over_time({_TOKENS}[{window}])\n/ avg_over_time({_SPENT}[{window}])"
        )

    yield Record(
        s.HALF_HOUR,
        f"({mean('30m')}\n  and {enough}\n  unless on ({s.MODEL}) {s.METHOD})\n"
        f"or (avg_over_time({_OF_METHODS}[30m]) and {_OF_METHODS})",
        why=(
            "Both sides are means of rates over the same time, so this is a ratio of "
            "sums; of half an hour while it has enough drafts. Of each method of a "
            "model with several the mean: that of all says nothing of any."
        ),
    )
    yield Record("model:vllm_specdec_speedup:ratio_rate1h", mean("1h"))
    yield Record(
        "model:vllm_specdec_speedup:ratio_rate1d",
        f"sum_over_time({_TOKENS}[1d:15m]) / (sum_over_time({_SPENT}[1d:15m]) > 0)",
        why=(
            "Weighted by traffic: what thin traffic at night cannot show, the day has "
            "shown."
        ),
    )


def _guesses() -> Iterator[Record]:
    guesses = f"{_GUESS} unless ignoring ({s.METADATA}) {_REPLICA}"
    yield Record(
        _GUESSED,
        f"min by ({s.MODEL}) ({guesses})\n"
        f"or min by ({_METHODS.labels}) ({_METHODS.engines(guesses)})",
        why=(
            "A guess: the lowest estimate that is neither measured nor calibrated, or "
            "of a speedup whose interval includes 1. A guess that it pays turns "
            "Disable into a ticket that asks to measure, in place of it. Of each "
            "method as well, of a model with several."
        ),
    )
    yield Record(
        s.WITHOUT_GUESSES,
        f"({_WITH_ENOUGH_DRAFTS} or {_OF_METHODS})\nunless {_GUESSED}",
        why="The speedup while no engine has but a guess.",
    )
    judged = (
        f"(\n"
        f"  {s.SPEEDUP}\n"
        "  or (\n"
        f"    (last_over_time({_WITH_ENOUGH_DRAFTS}[1h])\n"
        "      or model:vllm_specdec_speedup:ratio_rate1d)\n"
        f"    unless {_GUESSED}\n"
        "  )\n"
        ")"
    )
    yield Record(
        s.PAYS,
        f"group by ({s.MODEL}) (\n{s.compare(judged, '>=', 'beneficial_speedup')}\n)",
        why=(
            "Beneficial now, or when it was judged last where nothing is said of now: "
            "an earlier gain proves nothing once it is unknown."
        ),
    )


def _verdict() -> Iterator[Record]:
    """Yield what decides whether speculation should be off, and the verdict that boards
    and alerts share.
    """
    yield _decisive()
    limits = f"on ({s.MODEL}, threshold) group_left () {s.THRESHOLD}"
    yield Record(
        s.PUBLISHED_RULE,
        f'min by ({s.MODEL}, method) ({s.DECISIVE}{{measure!="speedup"}} / {limits})',
        why=(
            "Below 1, acceptance is too low: by default the published rule, a mean "
            f"acceptance length below {_DEFAULTS.disable_mean_acceptance_length:g} or "
            f"an acceptance below {_DEFAULTS.disable_acceptance_ratio:.2f}, for draft "
            "models; for cheap drafters their break-even."
        ),
    )
    yield Record(
        s.NOT_LOSING,
        _decided(_not_losing),
        why=(
            "Measured, on more than half of the engines that draft, not to lose; or "
            "beneficial by more than a guess now or, while "
            "there is no speedup of enough drafts, over the last hour or day."
        ),
    )
    yield Record(
        s.MAY_PAY,
        _decided(_may_pay),
        why=(
            "An engine has but a guess now or, where traffic is too thin to tell, all "
            "had within the last day; by it speculation may pay, and the engines that "
            "are judged do not lose as a whole."
        ),
    )
    yield Record(
        s.DISABLE_RULE,
        f"min by ({s.MODEL}, method) ({s.DECISIVE} / {limits})\n"
        f"unless {s.NOT_LOSING}\n"
        f"unless {s.MAY_PAY}",
        why=(
            "Below 1, speculation should be off: by acceptance or by the speedup, and "
            "nothing says that it pays. Of each method of a model with several."
        ),
    )


def _decisive() -> Record:
    """Return the record of what decides whether speculation should be off."""
    off = (
        "last_over_time(vllm_specdec_recommendation"
        f'{{action="disable"}}[{s.LOOK_BACK}]) == 1'
    )

    def engines(series: str) -> str:
        return f"count by ({_METHODS.labels}) ({_METHODS.engines(series)})"

    advised = f"{engines(off)}\n/ {engines(s.VOTERS)} > 0.5"

    length = "model:vllm_specdec_mean_acceptance_length:ratio_rate5m"
    acceptance = "model:vllm_specdec_acceptance:ratio_rate5m"
    speedup = (
        f'{s.HALF_HOUR}{{method=""}}\n'
        f'and on ({s.MODEL}) ({s.ADVICE}{{action="disable"}} > 0.5)'
    )
    speedup_of_methods = (
        f"max_over_time({_OF_METHODS}[30m]) and {_OF_METHODS}\n"
        f"and on ({_METHODS.labels}) ({advised})"
    )
    measures = {
        "mean_acceptance_length": (
            _either(length, _length_of_methods()),
            "disable_mean_acceptance_length",
        ),
        "acceptance_rate": (
            _either(acceptance, f'{s.JUDGED_ACCEPTANCE}{{method!=""}}'),
            "disable_acceptance_ratio",
        ),
        "speedup": (_either(speedup, speedup_of_methods), "harmful_speedup"),
    }
    values = s.labelled(
        "measure",
        **{
            name: s.tagged(f"(\n{_indented(value)}\n)", "threshold", limit)
            for name, (value, limit) in measures.items()
        },
    )
    return Record(
        s.DECISIVE,
        f"(\n{values}\n)\n"
        f"and on ({s.MODEL}) {s.ENOUGH_30M}\n"
        f"and on ({s.MODEL}) ({s.enough('5m', 'minimum_drafts')})",
        why=(
            "What says that speculation should be off if it is below the threshold "
            "that it names, while there are enough drafts: mean acceptance length, "
            "acceptance, and the speedup where no K pays on most engines. A model "
            "with several methods is never judged as a whole, and of the speedup of "
            "a method the best of half an hour counts."
        ),
    )


def _length_of_methods() -> str:
    """Return the mean acceptance length of methods that have enough drafts."""
    accepted, drafts = (
        f"sum by ({s.MODEL}, method) "
        f"({_METHODS.engines(f'engine:vllm_specdec_{counter}:rate5m')})"
        for counter in ("accepted_tokens", "drafts")
    )
    return (
        f"1 + {accepted}\n/ ({drafts} > 0)\n"
        f"and on ({s.MODEL}, method) {s.JUDGED_ACCEPTANCE}"
    )


def _not_losing(scope: _Scope) -> str:
    lately = f"last_over_time({scope.certain}[1h])"
    if scope is _MODELS:
        day = "model:vllm_specdec_speedup:ratio_rate1d"
        lately = f"({lately} or ({day} and last_over_time({scope.certain}[1d])))"
    judged = (
        f"(({scope.speedup} unless {scope.guess})\n"
        f"  or ({lately} unless {scope.enough}))"
    )
    beneficial = f"min by ({scope.labels}) ({scope.engines(_BENEFICIAL)}) == 1"
    measured = scope.engines(_MEASURED)
    slowest = f"min by ({scope.labels}) ({measured})"
    drafting = scope.engines("engine:vllm_specdec_drafts:rate5m > 0")
    return (
        f"group by ({scope.labels}) (\n"
        "  # beneficial now or, without a speedup now, when it was judged last\n"
        f"  {s.compare_each(judged, '>=', 'beneficial_speedup')}\n"
        "  or # each engine that has a verdict, also UNKNOWN, is beneficial\n"
        f"  ({beneficial} unless {scope.guess})\n"
        "  or # measured on most engines that draft, and no loss\n"
        "  (\n"
        f"    {s.compare_each(slowest, '>=', 'harmful_speedup')}\n"
        f"    and count by ({scope.labels}) ({measured})\n"
        f"      > 0.5 * count by ({scope.labels}) ({drafting})\n"
        f"    and {s.compare_each(scope.speedup, '>=', 'harmful_speedup')}\n"
        "  )\n"
        ")"
    )


def _may_pay(scope: _Scope) -> str:
    guess = (
        f"({scope.guess}\n"
        f"  or (last_over_time({scope.guess}[1d]) "
        f"unless last_over_time({scope.certain}[1d])))"
    )
    may_be = f"max by ({scope.labels}) ({scope.engines(f'{_MAY_BE} unless {_JUDGED}')})"
    return (
        f"group by ({scope.labels}) (\n"
        "  # by its lowest guess\n"
        f"  {s.compare_each(guess, '>=', 'harmful_speedup')}\n"
        "  or # by the high end of the interval of an engine with an unknown verdict\n"
        f"  {s.compare_each(may_be, '>=', 'harmful_speedup')}\n"
        ")\n"
        f"unless {s.compare_each(scope.enough, '<', 'harmful_speedup')}"
    )


WHY_VERDICT = (
    "One series for each model that is judged. Unknown also while it is to be "
    "measured: the published rule and a guess contradict each other."
)


def verdicts() -> str:
    """Return 1 for each judged model, with its verdict: the first that holds."""
    to_be_measured = f"{s.PUBLISHED_RULE} < 1 and {s.MAY_PAY} unless {s.NOT_LOSING}"
    unknown = f"group by ({s.MODEL}) ({_UNKNOWN} unless on ({s.MODEL}) {s.SPEEDUP})"
    harmful = s.compare(s.SPEEDUP, "<", "harmful_speedup")
    verdicts = s.labelled(
        "verdict",
        joined=f"or on ({s.MODEL})",
        harmful=f"{harmful}",
        unknown=f"({s.SPEEDUP} and on ({s.MODEL}) ({to_be_measured})) or {unknown}",
        beneficial=s.compare(s.SPEEDUP, ">=", "beneficial_speedup"),
        marginal=s.compare(s.SPEEDUP, ">=", "harmful_speedup"),
    )
    return f"group by ({s.MODEL}, verdict) (\n{verdicts}\n)"


def _by_load() -> Iterator[Record]:
    running = "model:vllm_specdec_requests_running:avg5m"
    beneficial = s.compare(s.SPEEDUP, ">=", "beneficial_speedup")
    loads = s.labelled(
        "verdict",
        beneficial=f"({running} and {beneficial})",
        harmful=f"({running} and {s.compare(s.SPEEDUP, '<', 'harmful_speedup')})",
    )
    yield Record(
        "model:vllm_specdec_judged_requests_running:avg5m",
        f"(\n{loads}\n)\nand on ({s.MODEL}) ({s.enough('5m')})",
        why=(
            "Load and K at which speculation was beneficial, and load at which it "
            "lost: for Reenable."
        ),
    )
    yield Record(
        "model:vllm_specdec_beneficial_num_speculative_tokens:max",
        f"{s.K}\nand {beneficial}\nand {s.enough('5m')}",
    )


def _by_method() -> Iterator[Record]:
    """Yield what is judged by method, for models that have several: their sum hides the
    one that loses.
    """

    # The method comes first, because few models have several: so little else is
    # computed.
    def of_methods(counter: str) -> str:
        return (
            f"engine:vllm_specdec_{counter}:rate5m * on ({s.ENGINE}) "
            f"group_left (method) {s.METHOD}"
        )

    def total(rates: str) -> str:
        return f"sum by ({s.MODEL}, method) ({rates})"

    accepted, drafts = (
        total(of_methods(counter)) for counter in ("accepted_tokens", "drafts")
    )
    drafted = total(
        "increase(vllm_specdec_draft_tokens_total[5m]) / 300 "
        f"* on ({s.ENGINE}) group_left (method) {s.METHOD}"
    )
    enough = s.compare_each(f"300 * {drafts}", ">=", "advice_minimum_drafts")
    yield Record(
        s.JUDGED_ACCEPTANCE,
        f"({accepted}\n"
        f"  / ({drafted} > 0)\n"
        f"  and ({enough}))\n"
        f"or on ({s.MODEL}) (\n"
        "  model:vllm_specdec_acceptance:ratio_rate5m\n"
        f"  and {s.enough('5m')}\n"
        ")",
        why=(
            "What is judged: each method of a model that has several, as in an A/B "
            "test, while it has enough drafts; else, and while none of them has "
            "enough drafts, the model."
        ),
    )
    generated = f"({of_methods('generation_tokens')} > 0)"
    spent = f"{generated} / ignoring (method) group_left () {s.ENGINE_SPEEDUP}"
    yield Record(
        s.JUDGED_SPEEDUP,
        f"(\n"
        f"  {total(generated)}\n"
        f"  / {total(f'{spent} or {generated}')}\n"
        f"  and {total(f'{generated} and ignoring (method) {s.ENGINE_SPEEDUP}')}\n"
        f'  and {s.JUDGED_ACCEPTANCE}{{method!=""}}\n'
        ")\n"
        f"or (\n"
        f"  {_WITH_ENOUGH_DRAFTS}\n"
        f'  unless on ({s.MODEL}) {s.JUDGED_ACCEPTANCE}{{method!=""}}\n'
        ")",
        why=("The speedup of the same. Engines of which it is not known count as 1."),
    )
