"""The comparison as a whole: verdicts, warnings, the report and the JSON."""

import json
import re
from pathlib import Path
from typing import Any

import markupsafe
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compare.sides import DRAFTING, END, side, with_measures
from support.golden import golden_text
from vllm_specdec_exporter.commands.compare.comparison import FORMAT, compare
from vllm_specdec_exporter.commands.compare.report import render, render_page, tables
from vllm_specdec_exporter.commands.compare.side import Side
from vllm_specdec_exporter.commands.compare.verdict import (
    ClaimOutcome,
    compare_load,
    judge_claim,
    judge_gain,
)
from vllm_specdec_exporter.commands.compare.verdict import SpeedComparison as Speed
from vllm_specdec_exporter.commands.compare.verdict import judge_speed as judge_speed_at
from vllm_specdec_exporter.economics.statistics import Interval
from vllm_specdec_exporter.measures.history import Latency

HERE = Path(__file__).parent / "golden"

K5: dict[str, Any] = {
    "positions": (0.7, 0.5, 0.35, 0.2, 0.1),
    "drafts": 28_000.0,
    "speedup": 1.6,
}


def at(first: Side, end: float = END, **more: Any) -> Side:
    return replace(first, ended_seconds=end, **more)


REPORTS: dict[str, tuple[tuple[Side, Side], float | None]] = {
    "on-against-off": ((side("plain"), side("ngram", 0.0142, **DRAFTING)), 1.3),
    "another-k": ((side("K=3", 0.0142, **DRAFTING), side("K=5", 0.0135, **K5)), None),
    "slower": ((side("off"), side("on", 0.028, **DRAFTING)), 1.5),
    "no-difference": ((side("A", **DRAFTING), side("B", 0.0201, **DRAFTING)), None),
    "cannot-be-told": (
        (side("A", requests=12.0), at(side("B", None), END + 3600, version="0.29.1")),
        1.2,
    ),
    "other-load": (
        (side("A", end_to_end=3.0), side("B", 0.0142, 200.0, end_to_end=1.5)),
        None,
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_as_recorded(name: str) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/compare` writes the files anew; look at the
    difference.

    The verdicts stand first, no text is wider than a terminal, colours change no word,
    and the JSON holds everything and no NaN.
    """
    sides, claim = REPORTS[name]
    comparison = compare(*sides, claim)
    shown = render(comparison)
    assert shown + "\n" == golden_text(HERE / f"{name}.txt", shown + "\n")
    assert " ".join(shown.split()).startswith(comparison.speed.text)
    assert max(map(len, shown.splitlines())) <= 100

    coloured = render(comparison, colour=True)
    assert "\x1b[" in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == shown

    document = json.loads(msgspec.json.encode(comparison), parse_constant=pytest.fail)
    assert document["format"] == FORMAT == "vllm-specdec-compare/2"
    assert [document[role]["name"] for role in ("reference", "side")] == [
        first.name for first in sides
    ]
    assert document["speed"]["text"] == comparison.speed.text
    assert (document["claim"] is None) == (claim is None)


def test_acceptance_is_compared_only_where_both_draft() -> None:
    both = compare(side("A", **DRAFTING), side("B", **K5))
    first = compare(side("A"), side("B", **K5))
    assert both.acceptance_length_difference.value == pytest.approx(2.85 - 2.25)
    assert both.acceptance_ratio_difference is not None
    assert first.acceptance_ratio_difference is None
    assert first.acceptance_length_difference is None


# --- warnings


def warnings(reference: Side, first: Side) -> str:
    return "\n".join(compare(reference, first).warnings)


A = side("A")
B = side("B")


@pytest.mark.parametrize(
    ("first", "second", "warning"),
    [
        (
            A,
            replace(B, models=("qwen",)),
            "models of different names (A llama, B qwen)",
        ),
        (at(A), at(B, 1e300), "B at no known time"),
        (
            A,
            side("B", 0.02, 200.0, tokens=400.0),
            "requests of B had 400 tokens each, those of A 200",
        ),
    ],
)
def test_sides_that_are_not_alike_are_pointed_out(
    first: Side, second: Side, warning: str
) -> None:
    """Those of version, period and load are in the reports as recorded."""
    assert warning in warnings(first, second)


@pytest.mark.parametrize(
    ("hit_ratio", "per_token", "outcome"),
    [
        # vLLM issue 50722: 97 % of the prompts against none, and "DFlash is slower".
        (0.0, 0.028, Speed.UNKNOWN),
        (0.0, 0.0199, Speed.UNKNOWN),
        # Faster although it computes its prompts: that holds all the more.
        (0.0, 0.0142, Speed.FASTER),
        (0.94, 0.028, Speed.SLOWER),
        (None, 0.028, Speed.SLOWER),
    ],
)
def test_another_share_of_cached_prompts_explains_a_slower_side(
    hit_ratio: float | None, per_token: float, outcome: Speed
) -> None:
    plain = with_hits(side("plain"), 0.97)
    dflash = with_hits(side("dflash", per_token, **DRAFTING), hit_ratio)
    comparison = compare(plain, dflash, claim=1.5)
    report = render(comparison)

    assert comparison.speed.outcome is outcome
    assert compare(dflash, plain).speed.outcome is {
        Speed.FASTER: Speed.SLOWER,
        Speed.SLOWER: Speed.FASTER,
    }.get(outcome, outcome)
    warned = [text for text in comparison.warnings if "prefix cache" in text]
    assert len(warned) == int(hit_ratio == 0.0)
    if warned:
        assert "plain 97%, dflash 0%" in warned[0]
    shown = "–" if hit_ratio is None else f"{100 * hit_ratio:.0f}"
    assert re.search(rf"prompt tokens from the prefix cache +97.* {shown}", report)
    if outcome is Speed.UNKNOWN:
        assert comparison.gain is None
        assert comparison.claim.outcome is ClaimOutcome.UNDECIDED


def with_hits(first: Side, hit_ratio: float | None) -> Side:
    """A side that found this share of its prompts in its prefix cache."""
    with_cache = replace(
        first.measures,
        prefix_cache_queries_per_second=4000.0,
        prefix_cache_hit_ratio=hit_ratio,
    )
    return replace(first, measures=with_cache)


def test_like_sides_have_no_warning_nor_have_periods_that_overlap_nearly_whole() -> (
    None
):
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
    assert page.count('<img class="plot"') == 6
    assert "<b>" not in page
    assert (
        "&lt;b&gt;on&lt;/b&gt; is 1.41 times as fast per output token as off (1.35 "
        "to 1.47)."
    ) in page
    assert markupsafe.escape(render(comparison)) in page
    assert "<script" not in page
    addresses = {
        address.lower() for address in re.findall(r"http://(\S+?)[/\"<:]", page)
    }
    assert addresses <= {"off", "&lt;b&gt;on&lt;"}


def test_the_html_report_of_sides_that_tell_nothing_has_no_empty_plot() -> None:
    page = render_page(compare(side("A", None, 0.0), side("B", None, 0.0)))
    assert "<img" not in page
    assert "cannot be told" in page


def judge_speed(here: Any, there: Any) -> Any:
    return judge_speed_at(here, there, compare_load(here, there))


def speed_of(per_token: float, **more: Any) -> Any:
    return judge_speed(side("B", per_token, **more), side("A", 0.02))


# --- speed


def only(name: str, *latencies: Latency) -> Any:
    """A side with these latencies, or of its own only the last, the end-to-end one."""
    first = side(name)
    return with_measures(first, latencies=latencies or first.measures.latencies[2:])


NO_TOKENS = Latency("time_per_output_token", 100, 0.0, 0.0)
#: B, A, and why what is said of B beside A cannot be told.
UNTOLD = [
    (side("B"), side("A", None, 0.0), "A: it generated nothing in its 30 s"),
    (only("B"), side("A"), "B: its metrics have no time per output token"),
    # vLLM 0.32.0, whose eight requests had begun and not finished.
    (
        only("B", Latency("time_to_first_token", 8, 0.05, 0.01)),
        side("A"),
        "B: no request finished in its 30 s, 8 had their first token: watch for longer",
    ),
    (side("B", requests=3.0), side("A", requests=7.0), "A: only 7 requests"),
    (only("B", NO_TOKENS), side("A"), "B: no request had more than one token"),
]


def test_a_small_difference_is_not_rounded_to_none() -> None:
    speed = judge_speed(side("B", 0.0199, 400_000.0), side("A", 0.02, 400_000.0))
    assert speed.outcome is Speed.FASTER
    assert speed.text == (
        "B is 1.005 times as fast per output token as A (1.004 to 1.006)"
    )


@pytest.mark.parametrize(("here", "there", "reason"), UNTOLD)
def test_why_the_speed_cannot_be_told_is_said(
    here: Side, there: Side, reason: str
) -> None:
    speed = judge_speed(here, there)
    assert speed.outcome is Speed.UNKNOWN
    assert speed.text.startswith("B against A: cannot be told: ")
    assert reason in speed.text


def test_first_tokens_are_no_finished_requests() -> None:
    """The table has none finished, of eight that began."""
    begun = only("B", Latency("time_to_first_token", 8, 0.05, 0.01))
    rows = [row for part in tables(compare(side("A"), begun)) for row in part]
    assert ("requests finished", "400", "0") in rows


def test_few_requests_have_no_interval() -> None:
    few = speed_of(0.014, requests=12.0)
    assert (few.speedup.low, few.low) == (None, None)


@given(st.floats(0.005, 0.08), st.integers(30, 5_000), st.floats(0.01, 1.5))
def test_exchanging_the_sides_exchanges_the_verdict(
    per_token: float, requests: int, spread: float
) -> None:
    first = side("A", spread=spread)
    second = side("B", per_token, float(requests), spread=spread)
    there = judge_speed(second, first)
    back = judge_speed(first, second)
    opposite = {Speed.FASTER: Speed.SLOWER, Speed.SLOWER: Speed.FASTER}
    assert back.outcome is opposite.get(there.outcome, there.outcome)
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))


# --- load


def loaded(name: str, per_token: float, at_a_time: float, **more: Any) -> Any:
    """A side with so many requests at a time on average, by other end-to-end times."""
    return side(name, per_token, end_to_end=at_a_time * 30.0 / 400.0, **more)


def other_rate(
    name: str, per_token: float, at_a_time: float, requests: float = 200.0
) -> Any:
    """The same with half the requests a second, so that the load is really another."""
    return side(name, per_token, requests, end_to_end=at_a_time * 30.0 / requests)


#: Time per output token and requests at a time of B, requests at a time of A, and what
#: is said of B.
LOADS = [
    (
        0.0142,
        10.0,
        40.0,
        Speed.UNKNOWN,
        "A had 4.0 times as many requests at a time, which could explain",
    ),
    (
        0.02,
        40.0,
        10.0,
        Speed.UNKNOWN,
        "B had 4.0 times as many requests at a time, which could hide a diff",
    ),
    (
        0.008,
        10.0,
        15.0,
        Speed.FASTER,
        "; at least 1.58 times if the load explains all it can",
    ),
    (
        0.06,
        15.0,
        10.0,
        Speed.SLOWER,
        "; at most 0.53 times if the load explains all it can",
    ),
]


def test_what_the_load_could_explain_is_no_difference_and_what_is_beyond_stands() -> (
    None
):
    speeds = {
        row: judge_speed(other_rate("B", *row[:2]), loaded("A", 0.02, row[2]))
        for row in LOADS
    }
    wrong = [
        row
        for row, first in speeds.items()
        if first.outcome is not row[3] or row[4] not in first.text
    ]
    assert wrong == []
    less_loaded, _, gain, _ = speeds.values()
    assert less_loaded.text.startswith(
        "B against A: cannot be told: it looks 1.41 times as fast"
    )
    assert gain.low == pytest.approx(1.58, abs=0.01)


def test_load_is_told_per_engine() -> None:
    first = loaded("A", 0.02, 10.0)
    two = replace(other_rate("B", 0.02, 20.0), engines=2)
    load = compare_load(two, first)
    assert load.side == pytest.approx(10.0)
    assert load.reference == pytest.approx(10.0)
    assert load.same is True
    assert load.quantity == "requests at a time and engine"


# --- what speculation gains


def gain_of(here: Any, there: Any) -> Any:
    return judge_gain(here, there, judge_speed(here, there))


def test_the_gain_is_of_speculation_also_where_the_reference_speculates() -> None:
    first = side("on", 0.0142, **DRAFTING)
    second = side("off")
    there = gain_of(first, second)
    back = gain_of(second, first)
    assert back.speculating == "on"
    assert (back.speedup.value, back.low, back.high) == pytest.approx(
        (there.speedup.value, there.low, there.high)
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.02, "neither gains nor loses at this load"),
        (0.0197, "likely gains at this load"),
        (0.0203, "likely loses at this load"),
    ],
)
def test_a_gain_that_is_not_sure_has_a_direction(seconds: float, said: str) -> None:
    """Where the interval includes 1, the probability of a loss tells which way it
    leans.
    """
    gain = gain_of(side("on", seconds, **DRAFTING), side("off"))
    assert gain.low < 1 < gain.high
    assert f"speculation (on) {said}, as far as the sample shows: " in gain.text


@pytest.mark.parametrize(
    ("speedup", "said"),
    [
        # Said to be likely gains of a drafter whose length was 1.00.
        (Interval(1.3, 0.41, 3.87), "may gain or lose"),
        (Interval(1.0, 0.9, 1.15), "neither gains nor loses"),
        (Interval(1.25, 0.95, 1.6), "likely gains"),
    ],
)
def test_a_wide_interval_has_no_direction(speedup: Interval, said: str) -> None:
    speed = replace(speed_of(0.02), speedup=speedup, low=speedup.low, high=speedup.high)
    gain = judge_gain(side("on", 0.02, **DRAFTING), side("off"), speed)
    assert f"speculation (on) {said} at this load" in gain.text


def test_the_estimate_counts_the_tokens_that_came_without_drafts() -> None:
    """30,000 drafts of 2.25 tokens are 67,500 of 80,000 tokens: 1.5 times as fast makes
    1.39 of the whole.
    """
    drafting = with_measures(side("on", 0.0142, **DRAFTING), coverage_ratio=0.5)
    assert gain_of(drafting, side("off")).estimated == pytest.approx(
        1 / (0.5 / 1.5 + 0.5)
    )


def test_two_methods_have_no_gain_of_speculation() -> None:
    assert gain_of(side("B", 0.0142, **DRAFTING), side("A", **DRAFTING)) is None
    assert gain_of(side("B", 0.0142), side("A")) is None


# --- claims


@pytest.mark.parametrize(
    ("claim", "outcome", "result"),
    [
        (1.3, ClaimOutcome.CONFIRMED, "confirmed: it is at least 1.35x"),
        (1.5, ClaimOutcome.REFUTED, "refuted: it is at most 1.47x"),
        (1.4, ClaimOutcome.UNDECIDED, "not decided: it lies between 1.35x and 1.47x"),
    ],
)
def test_a_claim_is_decided_by_the_interval(
    claim: float, outcome: ClaimOutcome, result: str
) -> None:
    judged = judge_claim(claim, speed_of(0.0142), None)
    assert judged.outcome is outcome
    assert judged.text.startswith(f"the claim of {claim}x is {result}")


def test_a_load_that_differs_can_leave_a_claim_undecided() -> None:
    speed = judge_speed(other_rate("B", 0.0142, 10.0), loaded("A", 0.02, 40.0))
    assert judge_claim(1.3, speed, None).outcome is ClaimOutcome.UNDECIDED
    assert judge_claim(1.5, speed, None).outcome is ClaimOutcome.REFUTED
