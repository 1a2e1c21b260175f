"""Texts that the terminal reports and the status page share. Pure."""

import re
import shlex

from ..economics.speculative_config import names_drafter
from ..economics.statistics import Interval, format_ratio
from ..engines import ENGINE_OF
from ..judgement.advice import Action, Advice
from ..judgement.payoff import Payoff, PayoffVerdict
from ..judgement.published_rules import DISABLE, LOWER_K, MEASURE, NOTHING, RAISE_K
from ..observe.result import EngineResult

#: Shown with a configuration that lacks the method, because the exporter was not given
#: it.
ONLY_CHANGES = (
    "Only what changes is in it: add it to the server's own JSON. With --spec.config, "
    "the whole is shown."
)
#: What to do, in words that the dashboards have too.
OFF = "switch speculation off"
OFF_OR_MEASURE = "switch off, or measure"
CHECK = "check its flags"
NO_ADVICE = "no advice"
#: Of a server before its first poll.
NOT_POLLED = "not polled yet"
#: Of the time that a count covers.
SINCE_START = "since the exporter started"
UNNAMED_MODEL = "unnamed model"
#: What a speedup says.
TIMES_AS_FAST = "times as fast as without speculation"
#: The flag with which vLLM records speculation in its responses.
DETAILED_RECORDS = "--per-request-spec-decode-metrics detailed"
#: Of single requests, none of which has a record; and what helps, with that flag.
NO_RECORD = "No response has a record of speculation"
START_VLLM = "Start vLLM (0.29 or newer) with"
#: Results of the rules of thumb in words.
SAYS = {
    RAISE_K: "raise K",
    LOWER_K: "lower K",
    DISABLE: OFF,
    MEASURE: "measure under real load first",
    NOTHING: "nothing to do",
}
LATENCIES = {
    "time_to_first_token": "first token",
    "time_per_output_token": "output token",
    "end_to_end": "whole request",
}


def verdict_words(payoff: Payoff) -> str:
    """Return a verdict in words; of an unknown one its interval, and which way it
    leans.
    """
    low = payoff.speedup_low
    high = payoff.speedup_high
    words = leaning_words(payoff)
    if payoff.verdict is not PayoffVerdict.UNKNOWN or low is None or high is None:
        return words
    return f"{words} ({low:.2f} to {high:.2f})"


def leaning_words(payoff: Payoff) -> str:
    """Return a verdict in words, of an unknown one which way it leans; empty without
    one.
    """
    if payoff.likely:
        return f"likely {payoff.likely}"
    return payoff.verdict or ""


def activity_words(engine: EngineResult) -> str:
    """Return an engine's activity in words."""
    return (engine.activity.state or "unknown").replace("_", " ")


def headline(payoff: Payoff) -> str:
    """Return the verdict in capitals, with the interval of an unknown one; empty
    without one.
    """
    name, *interval = verdict_words(payoff).split(" (")
    return " (".join((name.upper(), *interval))


def range_words(interval: Interval) -> str:
    """Return the ends of an interval of ratios, `1.27 to 1.41`; empty where they are
    not known.
    """
    if interval.low is None or interval.high is None:
        return ""
    return f"{format_ratio(interval.low)} to {format_ratio(interval.high)}"


def action_words(advice: Advice) -> str:
    """Return the advised action in words: `lower K to 2`."""
    k = advice.num_speculative_tokens
    return {
        Action.KEEP: f"keep K={k}",
        Action.INCREASE_K: f"raise K to {k}",
        Action.DECREASE_K: f"lower K to {k}",
        Action.DISABLE: OFF,
        Action.SWITCH_METHOD: "try another method",
        Action.INSUFFICIENT_DATA: NO_ADVICE,
    }[advice.action]


def to_do(engine: EngineResult) -> str:
    """Return what to do in words: the advised action, or without a better K what the
    verdict says.

    The dashboards use words like these.
    """
    payoff = engine.payoff
    advice = engine.advice
    none = advice.action is Action.INSUFFICIENT_DATA
    if engine.activity.unexplained:
        return CHECK
    held = advice.doubted and advice.action in (Action.KEEP, Action.INCREASE_K)
    if payoff.verdict is PayoffVerdict.HARMFUL and (advice.changes_nothing or held):
        return OFF
    if payoff.likely is PayoffVerdict.HARMFUL and advice.changes_nothing:
        return OFF_OR_MEASURE
    if none and payoff.verdict is PayoffVerdict.UNKNOWN:
        return "measure"
    return action_words(advice)


def reason_words(advice: Advice) -> str:
    """Return the reason of the advice, without the words "no advice"."""
    return re.sub(r"^no advice( on K)?: ", "", advice.reason)


def to_paste(engine: EngineResult, config: str) -> str:
    """Return the engine's option with this JSON, quoted for a shell; without a method,
    the JSON alone.
    """
    if not names_drafter(config):
        return config
    option = ENGINE_OF[engine.deployment.dialect].speculation_option
    return f"{option} {shlex.quote(config)}"


def seen_words(advice: Advice) -> str:
    """Return the batch sizes with measurements behind the advised schedule, empty if
    there are none.
    """
    if advice.batch_sizes is None:
        return ""
    low, high = advice.batch_sizes
    sizes = f"{high:,.0f}"
    if low < high:
        sizes = f"{low:,.0f} to {high:,.0f}"
    return (
        f"Batches of {sizes} were seen; for all others it rests on the cost profile "
        "alone."
    )


def only_changes(engine: EngineResult) -> bool:
    """Return whether the advised configuration lacks the method: the exporter was not
    given it.
    """
    return not engine.deployment.method and not engine.deployment.draft_model
