"""Advice on the status page: what every K gives, what the rules of thumb say, and what to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..markup import Html, element, gauge, join, length, none, row, section, table, times
from ..wording import ONLY_CHANGES, SAYS, only_changes, reason_words, seen_words, to_paste
from .view import View, missing, varying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...economics.choice import CandidateK
    from ...measures.measures import Measures


def every_k(view: View) -> Html:
    """What every K in reach gives: tokens a draft, speedup, and how sure that is."""
    if view.off:
        return Html()
    title, anchor = "Every K", f"{view.anchor}-k"
    measures, options = view.judged, view.engine.advice.options
    if measures is None or not measures.mean_acceptance_length_at:
        return section(title, missing(view), anchor=anchor, note=view.window_words)
    heads = ("K", "Tokens per draft", "Speedup", "95 % interval")
    rows = _options(view, options) if options else _lengths(view, measures)
    content = table(heads, rows, label=title, class_="bars options")
    words = "Tokens per draft are exact up to the present K."
    if options:
        words += (
            " The interval is that of the sample; the cost profile "
            f"{view.engine.deployment.cost_profile} can be off by more."
        )
        if measures.measured.speedup is not None:
            words += " Speedups are corrected by what was measured."
    note = element("p", words, class_="note")
    return section(title, content, note, varying(measures), anchor=anchor, note=view.window_words)


def _options(view: View, options: tuple[CandidateK, ...]) -> Iterator[Html]:
    best = max(option.speedup for option in options)
    for option in options:
        k = option.num_speculative_tokens
        interval = f"{option.speedup_low:.2f} to {option.speedup_high:.2f}"
        cells = (
            length(option.mean_acceptance_length),
            gauge(option.speedup / best, times(option.speedup)),
            interval if k else none("no speculation is the measure itself"),
        )
        yield _row(view, k, cells, extrapolated=option.extrapolated)


def _lengths(view: View, measures: Measures) -> Iterator[Html]:
    why = reason_words(view.engine.advice) or "nothing is known yet"
    for k, tokens in enumerate(measures.mean_acceptance_length_at, 1):
        yield _row(view, k, (length(tokens), none(why), none(why)))


def _row(view: View, k: int, cells: tuple[str, ...], *, extrapolated: bool = False) -> Html:
    present = k == view.engine.num_speculative_tokens
    marks = {
        "no speculation": k == 0,
        "now": present,
        "recommended": k == view.engine.advice.num_speculative_tokens,
        "extrapolated": extrapolated,
    }
    words = ", ".join(word for word, holds in marks.items() if holds)
    head = join(str(k), " ", element("small", words)) if words else join(str(k))
    return row(head, cells, class_="present" if present else "")


def rules(view: View) -> Html:
    """What the published rules of thumb say; left out where there is nothing to apply them to."""
    found = view.engine.advice.rules
    if not found:
        return Html()
    title, anchor = "Rules of thumb", f"{view.anchor}-rules"
    rows = (row(SAYS.get(rule.says, rule.says), (rule.text,)) for rule in found)
    content = table(("Says", "Because"), rows, label=title, class_="words")
    words = (
        "The published rules look at acceptance alone. What to do weighs it against the time a step takes, "
        "so it may differ."
    )
    return section(title, content, element("p", words, class_="note"), anchor=anchor, note=view.window_words)


def paste(view: View) -> Html:
    """What to give to vLLM; left out where nothing is to be changed."""
    advice = view.engine.advice
    parts = []
    if advice.speculative_config:
        parts += [element("p", "With the recommended K:"), _flag(advice.speculative_config)]
    if advice.schedule_config:
        rows = (
            row(
                _batch(index, len(advice.schedule), item.first, item.last), (_k(item.num_speculative_tokens),)
            )
            for index, item in enumerate(advice.schedule, 1)
        )
        label = "Best K by batch size"
        parts += [
            table(("Requests in the batch", "K"), rows, label=label, class_="numbers"),
            element("p", "As a K schedule, which vLLM ignores with data parallelism:"),
            _flag(advice.schedule_config),
        ]
        seen = seen_words(advice)
        parts += [element("p", seen, class_="note")] if seen else []
    if advice.schedule_note:
        parts.append(element("p", f"No K schedule: {advice.schedule_note}.", class_="note"))
    if not parts:
        return Html()
    if only_changes(view.engine):
        parts.append(element("p", ONLY_CHANGES, class_="note"))
    return section("To paste", *parts, anchor=f"{view.anchor}-paste", class_="panel paste")


def _flag(config: str) -> Html:
    return element("p", element("code", to_paste(config)))


def _batch(index: int, rows: int, first: int, last: int) -> str:
    return (
        f"{first:,} and more" if index == rows else f"{first:,} to {last:,}" if last > first else f"{first:,}"
    )


def _k(k: int) -> str:
    return str(k) if k else "0, no speculation"
