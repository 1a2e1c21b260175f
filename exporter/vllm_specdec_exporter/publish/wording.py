"""Wording: advice in plain words, for whoever reads it, in the terminal and on the status page. Pure."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import TYPE_CHECKING

from ..economics.speculative_config import names_drafter
from ..judgement.advice import Action
from ..judgement.payoff import DISABLE, LOWER_K, MEASURE, NOTHING, RAISE_K

if TYPE_CHECKING:
    from ..judgement.advice import Advice
    from ..observe.result import EngineResult

#: What to know of JSON that is not the operator's own with another K.
ONLY_CHANGES = (
    "Only what changes is in it: add it to the server's own JSON. With --spec.config, the whole is shown."
)
#: What a rule of thumb says, in words.
SAYS = {
    RAISE_K: "raise K",
    LOWER_K: "lower K",
    DISABLE: "switch speculation off",
    MEASURE: "measure under real load first",
    NOTHING: "nothing to do",
}


def printable(text: str) -> str:
    """Return text that came from outside without what would steer a terminal, or break a line."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    )


def wrap(text: str, indent: str, hang: int, width: int = 100) -> list[str]:
    """Return text as lines of a terminal: the first indented by `indent`, the others by `hang` blanks."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def action_words(advice: Advice) -> str:
    """Return what is advised, in plain words: `lower K to 2`."""
    k = advice.num_speculative_tokens
    return {
        Action.KEEP: f"keep K={k}",
        Action.INCREASE_K: f"raise K to {k}",
        Action.DECREASE_K: f"lower K to {k}",
        Action.DISABLE: "switch speculation off",
        Action.SWITCH_METHOD: "try another method",
        Action.INSUFFICIENT_DATA: "no advice",
    }[advice.action]


def reason_words(advice: Advice) -> str:
    """Return why, without saying once more that there is no advice."""
    return re.sub(r"^no advice( on K)?: ", "", advice.reason)


def to_paste(config: str) -> str:
    """Return vLLM's flag with this JSON, quoted for a shell; without a method, the JSON alone."""
    return f"--speculative-config {shlex.quote(config)}" if names_drafter(config) else config


def seen_words(advice: Advice) -> str:
    """Say at which batch sizes the schedule rests on what was seen; empty where none was."""
    if advice.batch_sizes is None:
        return ""
    least, most = advice.batch_sizes
    seen = f"{least:,.0f} to {most:,.0f}" if least < most else f"{most:,.0f}"
    return f"Batches of {seen} were seen; for all others it rests on the cost profile alone."


def only_changes(engine: EngineResult) -> bool:
    """Tell whether what is to be pasted lacks the method, because the operator did not say which it is."""
    return not engine.deployment.method and not engine.deployment.draft_model
