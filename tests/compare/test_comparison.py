"""The comparison as a whole: pairs, warnings, the report and the JSON."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.sides import DRAFTING, END, side
from vllm_specdec_exporter.commands.compare import compare, render
from vllm_specdec_exporter.commands.compare.comparison import FORMAT, Comparison
from vllm_specdec_exporter.commands.compare.report import render_page
from vllm_specdec_exporter.commands.compare.side import Side

HERE = Path(__file__).parent / "golden"

K5: dict[str, Any] = {"positions": (0.7, 0.5, 0.35, 0.2, 0.1), "drafts": 28_000.0, "speedup": 1.6}


def at(one: Side, end: float = END, **more: Any) -> Side:
    return replace(one, ended_seconds=end, **more)


REPORTS: dict[str, tuple[list[Side], float | None]] = {
    "on-against-off": ([side("plain"), side("ngram", 0.0142, **DRAFTING)], 1.3),
    "three": ([side("off"), side("K=3", 0.0142, **DRAFTING), side("K=5", 0.0135, **K5)], None),
    "slower": ([side("off"), side("on", 0.028, **DRAFTING)], 1.5),
    "no-difference": ([side("A", **DRAFTING), side("B", 0.0201, **DRAFTING)], None),
    "cannot-be-told": ([side("A", requests=12.0), at(side("B", None), END + 3600, version="0.29.1")], 1.2),
    "other-load": ([side("A", end_to_end=3.0), side("B", 0.0142, 200.0, end_to_end=1.5)], None),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_as_recorded(name: str) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/compare` writes the files anew; look at the difference.

    The verdicts stand first, no text is wider than a terminal, colours change no word, and the JSON holds
    everything and no NaN.
    """
    sides, claim = REPORTS[name]
    comparison = compare(sides, claim)
    shown = render(comparison)
    file = HERE / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown + "\n", encoding="utf-8")
    assert shown + "\n" == file.read_text(encoding="utf-8")
    assert " ".join(shown.split()).startswith(comparison.pairs[0].speed.text)
    assert max(map(len, shown.splitlines())) <= 100

    coloured = render(comparison, colour=True)
    assert "\x1b[" in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == shown

    document = json.loads(msgspec.json.encode(comparison), parse_constant=pytest.fail)
    assert document["format"] == FORMAT == "vllm-specdec-compare/1"
    assert [one["name"] for one in document["sides"]] == [one.name for one in sides]
    assert [pair["side"] for pair in document["pairs"]] == [one.name for one in sides[1:]]
    assert {pair["reference"] for pair in document["pairs"]} == {sides[0].name}
    assert all((pair["claim"] is None) == (claim is None) for pair in document["pairs"])


def test_quantiles_are_ratios_and_means_have_intervals() -> None:
    (pair,) = compare([side("A"), side("B", 0.01)]).pairs
    per_token = next(one for one in pair.latencies if one.name == "time_per_output_token")
    assert per_token.ratio is not None
    assert per_token.ratio.low is not None
    assert per_token.ratio.high is not None
    assert per_token.ratio.low < 0.5 < per_token.ratio.high
    assert (per_token.p50_ratio, per_token.p95_ratio, per_token.p99_ratio) == pytest.approx((0.5, 0.5, 0.5))
    assert per_token.difference_seconds.value == pytest.approx(-0.01)


def test_acceptance_is_compared_only_where_both_draft() -> None:
    (both,) = compare([side("A", **DRAFTING), side("B", **K5)]).pairs
    (one,) = compare([side("A"), side("B", **K5)]).pairs
    assert both.acceptance_length_difference is not None
    assert both.acceptance_length_difference.value == pytest.approx(2.85 - 2.25)
    assert both.acceptance_ratio_difference is not None
    assert (one.acceptance_ratio_difference, one.acceptance_length_difference) == (None, None)


def test_something_can_be_concluded_as_soon_as_one_pair_can() -> None:
    assert compare([side("A"), side("B", 0.01), side("C", requests=3.0)]).conclusive
    assert not compare([side("A"), side("C", requests=3.0)]).conclusive


# --- warnings


def warnings(*sides: Side) -> str:
    return "\n".join(compare(sides).warnings)


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


def test_the_same_requests_a_second_are_told_apart_from_another_load() -> None:
    comparison = compare([side("A"), side("B", 0.01)])
    assert comparison.warnings == ()
    (told,) = comparison.notes
    assert told.startswith("A had more requests at a time for about the same requests a second (")


def test_another_k_is_pointed_out_because_it_moves_the_ratio() -> None:
    comparison = compare([side("A", **DRAFTING), side("B", **K5)])
    assert comparison.warnings == ()
    assert comparison.notes[0].startswith("K is 5 in B and 3 in A")


# --- bad calls


def test_a_bad_call_is_refused() -> None:
    a, b = side("A"), side("B")
    for sides, claim, words in (
        ([a], None, "two sides or more are needed, not 1"),
        ([a, a], None, "names of their own"),
        ([a, b], 0.0, "lies above 0, not at 0"),
        ([a, b], float("inf"), "lies above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            compare(sides, claim)


# --- as HTML


def test_the_html_report_holds_verdicts_warnings_plots_and_tables() -> None:
    comparison: Comparison = compare(
        [side("off"), side("<b>on</b>", 0.0142, **DRAFTING), side("K=5", 0.0135, **K5)], 1.3
    )
    page = render_page(comparison)
    assert page.count("<svg") == page.count("</svg>") >= 6
    assert "<b>" not in page
    assert "&lt;b&gt;on&lt;/b&gt; is 1.41 times as fast per output token as off (1.35 to 1.47)." in page
    assert "the claim of 1.3x is confirmed" in page
    assert "<script" not in page
    assert {address.lower() for address in re.findall(r"http://(\S+?)[/\"<:]", page)} <= {
        *("www.w3.org", "off", "k=5", "&lt;b&gt;on&lt;")
    }
    for title in ("Speed", "Load", "Speculation"):
        assert f"<h2>{title}</h2>" in page
    assert "time per output token, P50 ~" in page


def test_the_html_report_of_sides_that_tell_nothing_has_no_empty_plot() -> None:
    page = render_page(compare([side("A", None, 0.0), side("B", None, 0.0)]))
    assert "<svg" not in page
    assert "cannot be told" in page
