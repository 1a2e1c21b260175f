"""The comparison as a whole: pairs, warnings, the report and the JSON."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import markupsafe
import msgspec
import pytest

from compare.sides import DRAFTING, END, side
from vllm_specdec_exporter.commands.compare import compare, render
from vllm_specdec_exporter.commands.compare.comparison import FORMAT
from vllm_specdec_exporter.commands.compare.report import render_page
from vllm_specdec_exporter.commands.compare.side import Side

HERE = Path(__file__).parent / "golden"

K5: dict[str, Any] = {"positions": (0.7, 0.5, 0.35, 0.2, 0.1), "drafts": 28_000.0, "speedup": 1.6}


def at(one: Side, end: float = END, **more: Any) -> Side:
    return replace(one, ended_seconds=end, **more)


REPORTS: dict[str, tuple[tuple[Side, Side], float | None]] = {
    "on-against-off": ((side("plain"), side("ngram", 0.0142, **DRAFTING)), 1.3),
    "another-k": ((side("K=3", 0.0142, **DRAFTING), side("K=5", 0.0135, **K5)), None),
    "slower": ((side("off"), side("on", 0.028, **DRAFTING)), 1.5),
    "no-difference": ((side("A", **DRAFTING), side("B", 0.0201, **DRAFTING)), None),
    "cannot-be-told": ((side("A", requests=12.0), at(side("B", None), END + 3600, version="0.29.1")), 1.2),
    "other-load": ((side("A", end_to_end=3.0), side("B", 0.0142, 200.0, end_to_end=1.5)), None),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_as_recorded(name: str) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/compare` writes the files anew; look at the difference.

    The verdicts stand first, no text is wider than a terminal, colours change no word, and the JSON holds
    everything and no NaN.
    """
    sides, claim = REPORTS[name]
    comparison = compare(*sides, claim)
    shown = render(comparison)
    file = HERE / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown + "\n", encoding="utf-8")
    assert shown + "\n" == file.read_text(encoding="utf-8")
    assert " ".join(shown.split()).startswith(comparison.speed.text)
    assert max(map(len, shown.splitlines())) <= 100

    coloured = render(comparison, colour=True)
    assert "\x1b[" in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == shown

    document = json.loads(msgspec.json.encode(comparison), parse_constant=pytest.fail)
    assert document["format"] == FORMAT == "vllm-specdec-compare/2"
    assert [document[role]["name"] for role in ("reference", "side")] == [one.name for one in sides]
    assert document["speed"]["text"] == comparison.speed.text
    assert (document["claim"] is None) == (claim is None)


def test_acceptance_is_compared_only_where_both_draft() -> None:
    both = compare(side("A", **DRAFTING), side("B", **K5))
    one = compare(side("A"), side("B", **K5))
    assert both.acceptance_length_difference is not None
    assert both.acceptance_length_difference.value == pytest.approx(2.85 - 2.25)
    assert both.acceptance_ratio_difference is not None
    assert (one.acceptance_ratio_difference, one.acceptance_length_difference) == (None, None)


# --- warnings


def warnings(reference: Side, one: Side) -> str:
    return "\n".join(compare(reference, one).warnings)


def test_sides_that_are_not_alike_are_pointed_out() -> None:
    a, b = side("A"), side("B")
    at_other_load = side("B", 0.0142, 200.0, end_to_end=1.5)
    for one, other, told in (
        (a, replace(b, models=("qwen",)), "models of different names (A llama, B qwen)"),
        (a, replace(b, version="0.11.0"), "different versions of vLLM (A 0.32.0, B 0.11.0)"),
        (
            at(a),
            at(b, END + 3600),
            "not over the same period (A 2026-11-18 11:06:10 to 11:06:40, B 2026-11-18 12:06:10 to ",
        ),
        (at(a), at(b, 1e300), "B at no known time"),
        (
            side("A", end_to_end=3.0),
            at_other_load,
            "not at the same load (requests at a time: B 10.0, A 40.0)",
        ),
        (side("A", end_to_end=3.0), at_other_load, "A looks slower than it is beside B"),
        (a, side("B", 0.02, 200.0, tokens=400.0), "requests of B had 400 tokens each, those of A 200"),
    ):
        assert told in warnings(one, other)


def test_like_sides_have_no_warning_nor_have_periods_that_overlap_nearly_whole() -> None:
    assert warnings(side("A", **DRAFTING), side("B", 0.0195, **DRAFTING)) == ""
    assert warnings(at(side("A")), at(side("B"), END + 3)) == ""


def test_a_restart_is_pointed_out_only_of_a_side_that_was_watched() -> None:
    assert "B restarted while it was watched" in warnings(
        side("A"), replace(side("B"), restarts=1, live=True)
    )
    assert warnings(side("A"), replace(side("B"), restarts=1)) == ""


# --- as HTML


def test_the_html_report_holds_the_text_and_plots() -> None:
    comparison = compare(side("off"), side("<b>on</b>", 0.0142, **DRAFTING), 1.3)
    page = render_page(comparison)
    assert page.count("<svg") == page.count("</svg>") == 6
    assert "<b>" not in page
    assert "&lt;b&gt;on&lt;/b&gt; is 1.41 times as fast per output token as off (1.35 to 1.47)." in page
    assert markupsafe.escape(render(comparison)) in page
    assert "<script" not in page
    addresses = {address.lower() for address in re.findall(r"http://(\S+?)[/\"<:]", page)}
    assert addresses <= {"www.w3.org", "off", "&lt;b&gt;on&lt;"}


def test_the_html_report_of_sides_that_tell_nothing_has_no_empty_plot() -> None:
    page = render_page(compare(side("A", None, 0.0), side("B", None, 0.0)))
    assert "<svg" not in page
    assert "cannot be told" in page
