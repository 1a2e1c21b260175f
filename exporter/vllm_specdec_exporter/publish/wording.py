"""Texts that the terminal reports and the status page share, and the layout of terminal
text. Pure.
"""

import re
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ..economics.speculative_config import names_drafter
from ..economics.statistics import Interval, times
from ..judgement.advice import Action, Advice
from ..judgement.findings import Finding, Severity
from ..judgement.payoff import Payoff, PayoffVerdict
from ..judgement.published_rules import DISABLE, LOWER_K, MEASURE, NOTHING, RAISE_K
from ..observe.result import EngineResult

#: Returns a text, emphasised in a style.
Paint = Callable[[str, str], str]

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

#: Terminal colours and emphasis: parameters of the escape sequence.
BOLD = "1"
RED = "31"
YELLOW = "33"
GREEN = "32"
#: Formats of numbers in terminal reports.
PERCENT = "{:.1%}"
WHOLE_PERCENT = "{:.0%}"
LENGTH = "{:.2f}"
FACTOR = "{:.2f}x"
DASH = "–"
#: Columns of a terminal report. Narrower terminals wrap it themselves.
WIDTH = 100

_PASTE = re.compile(r"--speculative-config '.*'")
#: Width of a column that is shortened: less would say nothing.
_MIN_COLUMN = 8
_GLUE = "\0"  # replaces spaces at which a line must not be broken


def painter(*, colour: bool) -> Paint:
    """Return a function that emphasises text; without `colour` it does nothing."""

    def paint(text: str, style: str) -> str:
        if colour:
            return f"\x1b[{style}m{text}\x1b[0m"
        return text

    return paint


def printable(text: str) -> str:
    """Return text with unprintable characters replaced: they could control a terminal
    or break a line.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


#: Control characters that JSON may have, also those that change lines or the direction
#: of a text.
_CONTROL = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(json_text: str) -> str:
    """Return JSON with escaped control characters, for terminals; its readers get the
    same texts.
    """
    # Nearly always, and much faster than the search.
    if json_text.isascii() and "\x7f" not in json_text:
        return json_text
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


def verdict_words(payoff: Payoff) -> str:
    """Return a verdict in words; of an unknown one its interval, and which way it
    leans.
    """
    low = payoff.speedup_low
    high = payoff.speedup_high
    if payoff.verdict is not PayoffVerdict.UNKNOWN or low is None or high is None:
        return payoff.verdict or ""
    leaning = f"likely {payoff.likely}" if payoff.likely else "unknown"
    return f"{leaning} ({low:.2f} to {high:.2f})"


def activity_words(engine: EngineResult) -> str:
    """Return an engine's activity in words."""
    return (engine.activity.state or "unknown").replace("_", " ")


def headline(payoff: Payoff) -> str:
    """Return the verdict in capitals, with the interval of an unknown one; empty
    without one.
    """
    name, *interval = verdict_words(payoff).split(" (")
    return " (".join((name.upper(), *interval))


def wrap(text: str, indent: str, hang: int) -> list[str]:
    """Return text as lines of a terminal: the first indented by `indent`, the others by
    `hang` blanks.
    """
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraph(text: str, hang: int, indent: str = "") -> list[str]:
    """Return text from outside as lines of a terminal, as `wrap` does. A flag to paste
    stays in one line.

    Unprintable characters are replaced. `hang` blanks come before all lines but the
    first, which has `indent`.
    """
    glued = _PASTE.sub(lambda match: match[0].replace(" ", _GLUE), printable(text))
    return [
        line.replace(_GLUE, " ") for line in wrap(glued, indent or " " * hang, hang)
    ]


def emphasised(lines: list[str], text: str, paint: Paint, style: str) -> list[str]:
    """Return lines with `text` emphasised in the first."""
    return [lines[0].replace(text, paint(text, style), 1), *lines[1:]]


def finding_lines(
    finding: Finding, indent: str, hang: int, paint: Paint
) -> Iterator[str]:
    """Yield a finding, its first line emphasised, and its remedy."""
    style = RED if finding.severity is Severity.PROBLEM else YELLOW
    first, *others = paragraph(finding.text, hang, indent)
    yield paint(first, style)
    yield from others
    yield from paragraph(finding.action, hang)


def shown(value: float | None, form: str) -> str:
    """Return a formatted value, or a dash without one."""
    if value is None:
        return DASH
    return form.format(value)


def digits(value: float) -> str:
    """Return a number with three digits, or all before the decimal point."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def range_words(interval: Interval) -> str:
    """Return the ends of an interval of ratios, `1.27 to 1.41`; empty where they are
    not known.
    """
    if interval.low is None or interval.high is None:
        return ""
    return f"{times(interval.low)} to {times(interval.high)}"


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


def to_paste(config: str) -> str:
    """Return vLLM's flag with this JSON, quoted for a shell; without a method, the JSON
    alone.
    """
    if names_drafter(config):
        return f"--speculative-config {shlex.quote(config)}"
    return config


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


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Collection[str] = (),
    *,
    shorten: str = "",
    indent: str = "    ",
) -> Iterator[str]:
    """Yield a table.

    Columns are right-aligned, but for `left`; `shorten` is cut to fit into the line.
    """
    lines = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if shorten:
        column = heads.index(shorten)
        excess = len(indent) + sum(widths) + 2 * (len(widths) - 1) - WIDTH
        width = max(_MIN_COLUMN, widths[column] - excess)
        widths[column] = min(widths[column], width)
        for line in lines:
            line[column] = _cut(line[column], widths[column])
    for line in lines:
        cells = []
        for head, cell, width in zip(heads, line, widths, strict=True):
            align = cell.ljust if head in left else cell.rjust
            cells.append(align(width))
        yield f"{indent}{'  '.join(cells)}".rstrip()


def _cut(text: str, width: int) -> str:
    """Return a text without its middle if it is too long: names often differ at their
    ends.
    """
    if len(text) <= width:
        return text
    end = width // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"
