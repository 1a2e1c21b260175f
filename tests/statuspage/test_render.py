"""What the status page says, in every state."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields, is_dataclass, replace
from html import unescape
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from statuspage.document import Element, read
from statuspage.examples import (
    FLEET,
    HOSTILE_TEXT,
    NOW,
    PAGES,
    SPECULATION,
    down,
    engine,
    page_of,
    target,
)
from vllm_specdec_exporter.baseline import LatencyRatio, Measured
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.findings import Finding, Severity
from vllm_specdec_exporter.judgement.rules import Rule
from vllm_specdec_exporter.markup import count, duration, length, percent, rate
from vllm_specdec_exporter.measures import Measures
from vllm_specdec_exporter.per_request.smaller_k import every_k, positions
from vllm_specdec_exporter.reading import Load
from vllm_specdec_exporter.result import REASONS, EngineResult, ExporterResult, Reload, TargetResult
from vllm_specdec_exporter.statuspage import CONTENT_SECURITY_POLICY, parse_refresh, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_specdec_exporter.per_request.result import RequestsResult


def show(result: ExporterResult) -> Element:
    return read(render(result, NOW))


def answers(page: Element) -> dict[str, str]:
    """Return the tiles of the only engine within: title to text."""
    tiles = page.one("dl", class_="answer").all("div")
    return {tile.one("dt").text: tile.one("dd").text for tile in tiles}


def panel(page: Element, title: str) -> Element:
    """Return the section with this title."""
    own = (s for s in page.all("section") if s.content[0].tag == "h4")
    return next(s for s in own if s.content[0].text.startswith(title))


def words_of(only: EngineResult) -> str:
    """Return what the page calls an engine's advice."""
    k = only.advice.num_speculative_tokens
    return {
        "keep": f"keep K={k}",
        "increase_k": f"raise K to {k}",
        "decrease_k": f"lower K to {k}",
        "disable": "switch speculation off",
        "switch_method": "try another method",
        "insufficient_data": "–",
    }[only.advice.action.value]


def codes(element: Element) -> list[list[str]]:
    """Return what a shell makes of every flag to paste: its name left out, the words behind it."""
    found = [shlex.split(str(code.content[0])) for code in element.all("code")]
    assert {words[0] for words in found} == {"--speculative-config"}
    return [words[1:] for words in found]


def rows(element: Element) -> list[list[str]]:
    """Return the texts of all rows of a table's body."""
    return [
        [cell.text for cell in row.content if isinstance(cell, Element)]
        for row in element.one("tbody").all("tr")
    ]


@pytest.mark.parametrize("name", PAGES)
class TestEveryState:
    def test_is_well_formed(self, name: str) -> None:
        page = show(PAGES[name])

        ids = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
        assert len(ids) == len(set(ids))
        for e in page.all():
            if "aria-labelledby" in e.attributes:
                assert e.attributes["aria-labelledby"] in ids
        assert page.one("html").attributes["lang"] == "en"
        assert page.one("meta", charset="utf-8")
        assert page.one("main")

    def test_needs_nothing_from_elsewhere(self, name: str) -> None:
        page = show(PAGES[name])

        assert not {e.tag for e in page.all()} & {"script", "img", "iframe", "object", "form", "base"}
        assert not [e for e in page.all() if {k for k in e.attributes if k.startswith("on")}]
        assert not [e for e in page.all() if "style" in e.attributes], "the policy would refuse it"
        assert [e.attributes["href"] for e in page.all("link")] == ["data:,"]
        assert "url(" not in page.one("style").content[0]
        assert "@import" not in page.one("style").content[0]

    def test_has_relative_links_that_lead_somewhere(self, name: str) -> None:
        page = show(PAGES[name])
        links = [a.attributes["href"] for a in page.all("a")]
        ids = {e.attributes.get("id") for e in page.all()}

        assert not [link for link in links if link.startswith("/") or ":" in link]
        assert {"metrics", "api/v1/snapshot", "config", "-/healthy", "-/ready"} <= set(links)
        assert {link[1:] for link in links if link.startswith("#")} <= ids

    def test_has_headings_in_order(self, name: str) -> None:
        levels = [int(e.tag[1]) for e in show(PAGES[name]).all() if re.fullmatch("h[1-6]", e.tag)]

        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))

    def test_has_tables_that_can_be_read_aloud(self, name: str) -> None:
        for table in show(PAGES[name]).all("table"):
            heads = table.one("thead").all("th")
            assert all(th.attributes["scope"] == "col" for th in heads)
            for row in table.one("tbody").all("tr"):
                assert row.one("th").attributes["scope"] == "row"
                assert len(row.all("th") + row.all("td")) == len(heads)

    def test_every_bar_has_its_value_beside_it(self, name: str) -> None:
        for gauge in show(PAGES[name]).all("div", class_="gauge"):
            assert re.fullmatch(r"[\d.,]+[%×]?|–", gauge.text)

    def test_every_dash_says_why(self, name: str) -> None:
        page = show(PAGES[name])

        for dash in page.all("span", class_="none"):
            assert dash.text == "–"
            assert dash.attributes["title"]
            assert f"none: {dash.attributes['title']}" in dash.one("span", class_="hidden").content
        assert not re.search(r"\b(nan|inf|None)\b(?!:)", page.one("main").text)

    def test_shows_no_number_that_is_not_in_the_result(self, name: str) -> None:
        result = PAGES[name]
        main = show(result).one("main")
        # Clock times are a matter of their own tests.
        text = main.text
        for time in main.all("time"):
            text = text.replace(time.text, "")

        assert not set(NUMBER.findall(text)) - numbers_of(result)


NUMBER = re.compile(r"(?<![\w.,-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


def leaves(value: object) -> Iterator[str | float]:
    """Yield every text and number within a result."""
    if isinstance(value, str | int | float):
        yield value
    elif isinstance(value, dict):
        yield from leaves((*value.keys(), *value.values()))
    elif isinstance(value, tuple):
        # Positions count from 0, K from 1, and K + 1 is the most that a draft can give.
        yield from range(len(value) + 2 if value else 0)
        for item in value:
            yield from leaves(item)
    elif is_dataclass(value):
        for item in fields(value):
            yield from leaves(getattr(value, item.name))


def written(number: float) -> list[str]:
    """Return a number in every form in which the page may write it."""
    plain = [count(number), percent(number), length(number), rate(number), f"{number:g}", f"{number:.3g}"]
    return [*plain, duration(number), duration(NOW - number)]


def numbers_of(result: ExporterResult) -> set[str]:
    """Return every number in the result, and those that follow from it, as the page may write them."""
    found = list(leaves(result))
    for one in (one for server in result.targets for one in server.engines):
        found += [len(one.findings), (one.num_speculative_tokens or 0) + 1]
        found += [end for option in one.advice.options for end in (option.speedup_low, option.speedup_high)]
        spread = one.accepted_tokens_per_draft
        for before, bucket in pairwise((0.0, *spread.buckets) if spread else ()):
            found += [bucket - before, (bucket - before) / (spread.count or 1)]
    if result.requests is not None:
        found += of_requests(result.requests)
    texts = [t for item in found for t in ([item] if isinstance(item, str) else written(item))]
    # 0 stands for no findings, every interval is one of 95 %, and 0.29 is the vLLM that has records.
    return {
        "0",
        "95",
        "0.29",
        *(number for text in (*texts, *REASONS.values()) for number in NUMBER.findall(text)),
    }


def of_requests(known: RequestsResult) -> Iterator[float]:
    """Yield every number that follows from what is known of single requests."""
    yield sum(item.requests for item in known.observations)
    yield sum(item.requests for item in known.observations if item.record != "none")
    for model in known.models:
        yield from (p.of_all_drafts for p in positions(model))
        for option in every_k(model):
            yield from (option.draft_length, option.acceptance_length, option.acceptance_length - 1)
    for tenant in known.tenants:
        total = sum(tenant.outcomes.values())
        yield from (
            total,
            tenant.outcomes["loses"] / total,
            tenant.accepted_tokens / tenant.draft_tokens,
        )


class TestAnswer:
    @pytest.mark.parametrize(
        ("name", "activity", "quality"),
        [
            ("healthy", "active", "healthy"),
            ("optimal", "active", "optimal"),
            ("fair", "active", "fair"),
            ("poor", "active", "poor"),
            ("idle", "idle", "–"),
            ("bypassed", "bypassed", "–"),
            ("off", "off", "–"),
            ("warming_up", "warming up", "–"),
            ("just_started", "warming up", "–"),
            ("v0", "unknown", "–"),
        ],
    )
    def test_says_the_state_and_why(self, name: str, activity: str, quality: str) -> None:
        result = PAGES[name]
        said = answers(show(result))
        only = result.targets[0].engines[0]

        assert said["Activity"].startswith(f"{activity} {only.activity.reason}")
        assert said["Acceptance quality"].split()[0] == quality
        for reason in only.quality.reasons:
            assert reason in said["Acceptance quality"]

    @pytest.mark.parametrize(
        ("name", "payoff", "basis"),
        [
            ("healthy", "beneficial 1.88×", "estimated"),
            ("marginal", "marginal 1.13×", "estimated"),
            ("poor", "harmful 0.92×", "estimated"),
            ("decrease", "beneficial 1.41×", "estimated"),
            ("disable", "harmful 0.52×", "estimated"),
            ("measured", "beneficial 1.62×", "measured"),
            ("measured_harmful", "harmful 0.87×", "measured"),
            ("varying", "marginal 1.12×", "estimated"),
        ],
    )
    def test_leads_with_payoff_and_what_to_do(self, name: str, payoff: str, basis: str) -> None:
        page = show(PAGES[name])
        said = answers(page)
        only = PAGES[name].targets[0].engines[0]
        judged = only.window("5m")

        assert list(said)[:2] == ["Payoff", "What to do"]
        assert said["Payoff"].startswith(
            f"{payoff} times as fast as without speculation, {basis}, last 5m "
            "by the cost profile it breaks even at "
            f"{judged.estimate.break_even_acceptance_length:.2f} tokens per draft, or "
            f"{judged.estimate.break_even_acceptance_ratio:.1%} of the drafted tokens accepted"
        )
        for reason in only.payoff.reasons:
            assert reason in said["Payoff"]
        assert said["What to do"].startswith(f"{words_of(only)} ")
        assert said["What to do"].endswith(only.advice.reason.removeprefix("no advice on K: "))
        assert payoff.split()[0] in page.one("article").attributes["class"].split(), "it colours the border"

    @pytest.mark.parametrize(
        ("action", "k", "words"),
        [
            (Action.KEEP, 4, "keep K=4"),
            (Action.INCREASE_K, 5, "raise K to 5"),
            (Action.DECREASE_K, 2, "lower K to 2"),
            (Action.DISABLE, 0, "switch speculation off"),
            (Action.SWITCH_METHOD, 1, "try another method"),
            (Action.INSUFFICIENT_DATA, None, "–"),
        ],
    )
    def test_every_action_is_in_plain_words(self, action: Action, k: int | None, words: str) -> None:
        only = engine()
        only = replace(
            only, advice=replace(only.advice, action=action, num_speculative_tokens=k, reason="why")
        )
        page = show(page_of(target(only), target(only, address="http://other:8000")))

        assert {answers(article)["What to do"] for article in page.all("article")} == {f"{words} why"}
        assert {row[2] for row in rows(page.one("table", class_="overview"))} == {words}

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("idle", "nothing was generated in the last 5m"),
            ("off", "the server shows no sign of speculation being configured"),
            ("warming_up", "37 drafts in the last 5m, 100 are needed"),
            ("v0", "vLLM V0 shows means over its whole life only, so what it does now is not known"),
        ],
    )
    def test_what_is_not_active_has_no_payoff_and_nothing_to_do(self, name: str, why: str) -> None:
        page = show(PAGES[name])
        said = answers(page)

        assert said["Payoff"] == "– only an active engine is judged"
        assert said["What to do"] == f"– {why}"
        assert not {"harmful", "marginal", "beneficial"} & set(
            page.one("article").attributes["class"].split()
        )

    def test_a_payoff_that_cannot_be_known_says_why(self) -> None:
        """A server that does not tell its load is judged by its acceptance, as before."""
        only = engine(running=None)
        page = show(page_of(target(only)))
        said = answers(page)

        why = "the server does not tell how many requests run, so the cost of a step is not known"
        assert said["Payoff"] == f"– {why}"
        assert said["What to do"].startswith("– without the number of running requests")
        assert page.one("article").attributes["class"] == "healthy"
        assert page.one("title").content[0] == "healthy – vllm-specdec-exporter"

    def test_the_colour_of_payoff_is_never_alone(self) -> None:
        for name in ("healthy", "marginal", "poor"):
            for mark in show(PAGES[name]).all("span", class_="pill"):
                assert mark.text

    def test_gives_the_two_numbers_of_the_judged_window(self) -> None:
        only = engine()
        measures = only.window("5m")
        said = answers(show(page_of(target(only))))

        assert said["Mean acceptance length"] == (
            f"{measures.mean_acceptance_length:.2f} tokens per draft of at most 5, last 5m"
        )
        assert said["Acceptance ratio"] == (
            f"{measures.acceptance_ratio:.1%} of the drafted tokens accepted, last 5m"
        )

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("idle", "no drafts in the last 5m"),
            ("bypassed", "no drafts in the last 5m"),
            ("off", "speculation is off"),
            ("just_started", "no samples yet to look back on the last 5m"),
        ],
    )
    def test_a_ratio_that_does_not_exist_is_a_dash_that_says_why(self, name: str, why: str) -> None:
        said = answers(show(PAGES[name]))

        assert said["Mean acceptance length"] == f"– {why}"
        assert said["Acceptance ratio"] == f"– {why}"

    def test_says_how_far_the_warming_up_is(self) -> None:
        said = answers(show(PAGES["warming_up"]))

        assert "37 of 100 drafts" in said["Activity"]
        assert "too few drafts to judge" in said["Acceptance ratio"]

    def test_takes_the_minimum_from_the_thresholds_in_force(self) -> None:
        result = replace(PAGES["warming_up"], thresholds={"minimum_drafts": 250})

        assert "37 of 250 drafts" in answers(show(result))["Activity"]

    def test_marks_the_lifetime_values_of_v0(self) -> None:
        said = answers(show(PAGES["v0"]))

        assert said["Mean acceptance length"].startswith("3.50 ")
        assert said["Acceptance ratio"].startswith("61.7% ")
        assert said["Mean acceptance length"].endswith("over the server's whole life (V0)")
        assert said["Acceptance ratio"].endswith("over the server's whole life (V0)")

    def test_says_what_v0_lacks_for_a_length(self) -> None:
        only = replace(
            PAGES["v0"].targets[0].engines[0],
            num_speculative_tokens=None,
            windows=(Measures("lifetime", acceptance_ratio=0.5),),
        )

        said = answers(show(page_of(target(only))))

        assert said["Mean acceptance length"] == "– K is not known; give the exporter --spec.config"

    def test_the_tab_says_it_too(self) -> None:
        def title(name: str) -> str:
            return str(show(PAGES[name]).one("title").content[0])

        assert title("poor") == "harmful – vllm-specdec-exporter"
        assert title("healthy") == "beneficial – vllm-specdec-exporter"
        assert title("varying") == "marginal – vllm-specdec-exporter"
        assert title("warming_up") == "warming up – vllm-specdec-exporter"
        assert title("down") == "down – vllm-specdec-exporter"
        assert title("several_targets") == "1 beneficial, 1 down – vllm-specdec-exporter"
        assert title("no_targets") == "no targets – vllm-specdec-exporter"


class TestSections:
    def test_positions(self) -> None:
        only = engine()
        measures = only.window("5m")

        assert rows(panel(show(page_of(target(only))), "Acceptance by position")) == [
            [str(i), percent(ratio), percent(measures.position_conditional_acceptance_ratio[i])]
            for i, ratio in enumerate(measures.position_acceptance_ratio)
        ]

    def test_positions_that_no_draft_reached(self) -> None:
        page = show(page_of(target(engine((0.5, 0.0, 0.0)))))

        assert rows(panel(page, "Acceptance by position"))[1:] == [["1", "0.0%", "0.0%"], ["2", "0.0%", "–"]]

    def test_every_k(self) -> None:
        only = engine()
        options = only.advice.options

        table = rows(panel(show(page_of(target(only))), "Every K"))

        assert [row[0] for row in table] == [
            *("0 no speculation", "1", "2", "3", "4 now, recommended"),
            *(f"{k} extrapolated" for k in range(5, 9)),
        ]
        assert [row[1] for row in table] == [f"{o.mean_acceptance_length:.2f}" for o in options]
        assert [row[2] for row in table] == [f"{o.speedup:.2f}×" for o in options]
        assert [row[3] for row in table][1:] == [
            f"{o.speedup_low:.2f} to {o.speedup_high:.2f}" for o in options[1:]
        ]
        assert table[0][1:] == ["1.00", "1.00×", "–"]

    @pytest.mark.parametrize(
        ("k", "marked"),
        [
            (0, {"0 no speculation, recommended", "4 now"}),
            (2, {"2 recommended", "4 now"}),
            (4, {"4 now, recommended"}),
            (7, {"7 recommended, extrapolated", "4 now"}),
            (None, {"4 now"}),
        ],
    )
    def test_every_k_marks_the_present_and_the_recommended_one_in_words(
        self, k: int | None, marked: set[str]
    ) -> None:
        only = engine()
        only = replace(only, advice=replace(only.advice, num_speculative_tokens=k))
        heads = [row[0] for row in rows(panel(show(page_of(target(only))), "Every K"))]

        assert {head for head in heads if "now" in head or "recommended" in head} == marked

    def test_every_k_without_speedups_still_has_the_exact_lengths(self) -> None:
        only = PAGES["varying"].targets[0].engines[0]
        found = panel(show(PAGES["varying"]), "Every K")
        lengths = [f"{value:.2f}" for value in only.window("5m").mean_acceptance_length_at]

        assert [row[:2] for row in rows(found)] == [
            ["1", lengths[0]],
            ["2", lengths[1]],
            ["3", lengths[2]],
            ["4 now", lengths[3]],
        ]
        assert {tuple(row[2:]) for row in rows(found)} == {("–", "–")}
        assert "the counters do not show" in found.all("span", class_="none")[0].attributes["title"]

    def test_every_k_says_what_its_interval_leaves_out(self) -> None:
        estimated = panel(show(PAGES["healthy"]), "Every K").text
        corrected = panel(show(PAGES["measured"]), "Every K").text

        assert "The interval is that of the sample; the cost profile unknown can be off by more." in estimated
        assert "corrected by what was measured" not in estimated
        assert "corrected by what was measured" in corrected

    def test_rules_of_thumb_say_that_they_look_at_acceptance_alone(self) -> None:
        only = PAGES["poor"].targets[0].engines[0]
        found = panel(show(PAGES["poor"]), "Rules of thumb")

        assert [row[1] for row in rows(found)] == [rule.text for rule in only.advice.rules]
        assert [row[0] for row in rows(found)] == [
            "lower K",
            "nothing to do",
            "nothing to do",
            "switch speculation off",
        ]
        assert "look at acceptance alone" in found.text
        assert "weighs it against the time a step takes" in found.text

    @pytest.mark.parametrize("name", ["idle", "off", "v0", "bypassed", "warming_up"])
    def test_what_nothing_is_said_of_is_left_out(self, name: str) -> None:
        titles = [h.text for h in show(PAGES[name]).all("h4")]

        assert not [t for t in titles if t.startswith(("Rules", "To paste", "Against"))]

    def test_what_to_paste_is_the_operators_json_with_another_k(self) -> None:
        found = panel(show(PAGES["decrease"]), "To paste")
        (flag, *_), *_ = codes(found)

        assert json.loads(flag) == {
            "method": "eagle3",
            "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "num_speculative_tokens": 2,
        }
        assert "Only what changes" not in found.text

    def test_what_to_paste_says_so_where_the_operators_json_is_not_known(self) -> None:
        found = panel(show(PAGES["unsaid"]), "To paste")

        pasted = [json.loads(str(code.content[0])) for code in found.all("code")]
        assert pasted[0] == {"num_speculative_tokens": 2}
        assert "--speculative-config" not in "".join(str(code.content[0]) for code in found.all("code"))
        assert "Only what changes is in it: add it to the server's own JSON." in found.text

    def test_a_schedule_is_shown_as_rows_and_as_json(self) -> None:
        only = PAGES["poor"].targets[0].engines[0]
        found = panel(show(PAGES["poor"]), "To paste")
        first, last = only.advice.schedule

        assert rows(found) == [[f"1 to {first.last}", "1"], [f"{last.first} and more", "0, no speculation"]]
        assert json.loads(codes(found)[1][0])["num_speculative_tokens_per_batch_size"] == [
            [1, first.last, 1],
            [last.first, 1024, 0],
        ]

    @pytest.mark.parametrize(
        ("seen", "words"),
        [
            ((14.0, 14.0), "Batches of 14 were seen; for all others it rests on the cost profile alone."),
            ((2.0, 1200.0), "Batches of 2 to 1,200 were seen; for all others"),
            (None, ""),
        ],
    )
    def test_a_schedule_says_what_it_rests_on(self, seen: tuple[float, float] | None, words: str) -> None:
        only = PAGES["poor"].targets[0].engines[0]
        only = replace(only, advice=replace(only.advice, batch_sizes=seen))
        text = panel(show(page_of(target(only))), "To paste").text

        assert words in text
        assert ("were seen" in text) == bool(words)

    def test_no_schedule_says_why(self) -> None:
        only = PAGES["poor"].targets[0].engines[0]
        note = "vLLM ignores a K schedule with data parallelism"
        advice = replace(only.advice, schedule=(), schedule_config="", schedule_note=note)
        found = panel(show(page_of(target(replace(only, advice=advice)))), "To paste")

        assert f"No K schedule: {note}." in found.text
        assert len(codes(found)) == 1
        assert "No K schedule" not in panel(show(PAGES["poor"]), "To paste").text

    def test_json_of_any_content_survives_a_shell(self) -> None:
        """What stands on the page gives vLLM the operator's text back, whatever quotes it holds."""
        (words,) = codes(panel(show(PAGES["hostile"]), "To paste"))

        assert json.loads(words[0])["method"] == HOSTILE_TEXT
        assert len(words) == 1

    def test_against_the_baseline(self) -> None:
        only = PAGES["measured"].targets[0].engines[0]
        found = panel(show(PAGES["measured"]), "Against the baseline")
        measured = only.window("5m").measured

        assert "Speedup per output token 1.62×" in found.text
        assert (
            f"95 % interval {measured.speedup_low:.2f} to {measured.speedup_high:.2f}× "
            "Requests behind it 1,200 Tokens per second of the baseline 467"
        ) in found.text
        assert [th.text for th in found.one("thead").all("th")][1:] == ["P50", "P95", "P99"]
        assert [row[0] for row in rows(found)] == ["First token", "Output token", "Whole request"]
        ratios = [[float(cell.removesuffix("×")) for cell in row[1:]] for row in rows(found)]
        # The first token takes as long as before, the others 1 / 1.62 of it.
        assert ratios[0] == [1.0, 1.0, 1.0]
        assert ratios[1] == pytest.approx([1 / 1.62] * 3, abs=0.02)
        assert ratios[2] == pytest.approx([(0.09 + 6.02 / 1.62) / 6.11] * 3, abs=0.02)

    def test_a_baseline_with_too_few_requests_in_the_judged_window_says_so(self) -> None:
        only = PAGES["measured"].targets[0].engines[0]
        short, judged = only.windows
        few = replace(only, windows=(short, replace(judged, measured=Measured())))

        assert panel(show(page_of(target(few))), "Against the baseline").text.endswith(
            "None: too few requests finished in the window at a load that the baseline has."
        )

    def test_latencies_that_are_missing_are_dashes(self) -> None:
        only = PAGES["measured"].targets[0].engines[0]
        short, judged = only.windows
        one = Measured(latency_ratios=(LatencyRatio("end_to_end", 0.95, 1.3),))
        few = replace(only, windows=(short, replace(judged, measured=one)))
        found = panel(show(page_of(target(few))), "Against the baseline")

        assert rows(found) == [
            ["First token", "–", "–", "–"],
            ["Output token", "–", "–", "–"],
            ["Whole request", "–", "1.30×", "–"],
        ]
        assert "Speedup per output token –" in found.text

    def test_warns_of_deep_positions_where_drafts_vary(self) -> None:
        page = show(PAGES["varying"])

        for title in ("Acceptance by position", "Every K"):
            assert "Drafts hold 2.30 tokens on average" in panel(page, title).text
        assert "Drafts hold" not in panel(show(PAGES["healthy"]), "Acceptance by position").text

    def test_distribution_adds_up(self) -> None:
        only = engine()
        table = rows(panel(show(page_of(target(only))), "Accepted tokens per draft"))

        assert [row[0] for row in table] == ["0", "1", "2", "3", "4"]
        assert sum(int(row[2].replace(",", "")) for row in table) == only.accepted_tokens_per_draft.count
        assert sum(float(row[1].rstrip("%")) for row in table) == pytest.approx(100, abs=0.3)

    def test_windows_side_by_side(self) -> None:
        only = engine()
        found = panel(show(page_of(target(only))), "Windows")
        table = {row[0]: row[1:] for row in rows(found)}
        short, long = only.windows

        assert [th.text for th in found.one("thead").all("th")] == ["Measure", "30s", "5m judged"]
        assert table["Drafts"] == [count(short.drafts), count(long.drafts)]
        assert table["Span"] == ["30 s", "5 min"]
        assert table["Acceptance ratio"] == [percent(m.acceptance_ratio) for m in only.windows]
        assert table["Coverage (output from drafts)"] == [percent(m.coverage_ratio) for m in only.windows]
        assert table["Generated tokens per second"] == [
            rate(m.generation_tokens_per_second) for m in only.windows
        ]

    def test_windows_have_what_speculation_gains(self) -> None:
        only = PAGES["measured"].targets[0].engines[0]
        table = {row[0]: row[1:] for row in rows(panel(show(PAGES["measured"]), "Windows"))}
        estimates = [m.estimate for m in only.windows]

        assert table["Estimated speedup"] == [f"{e.speedup:.2f}×" for e in estimates]
        assert table["Break-even length"] == [length(e.break_even_acceptance_length) for e in estimates]
        assert table["Break-even acceptance ratio"] == [
            percent(e.break_even_acceptance_ratio) for e in estimates
        ]
        assert table["Requests in the batch"] == ["14.0", "14.0"]
        assert table["Measured speedup"] == [f"{m.measured.speedup:.2f}×" for m in only.windows]
        assert table["Return on speculation"] == [length(m.returns.return_ratio) for m in only.windows]

    def test_windows_leave_out_what_no_window_has(self) -> None:
        table = {row[0]: row[1:] for row in rows(panel(show(PAGES["healthy"]), "Windows"))}

        assert not {"Measured speedup", "Return on speculation"} & set(table)

    def test_windows_of_v0_keep_the_lifetime_apart(self) -> None:
        found = panel(show(PAGES["v0"]), "Windows")
        table = {row[0]: row[1:] for row in rows(found)}

        assert [th.text for th in found.one("thead").all("th")][3] == "Whole life V0"
        assert table["Acceptance ratio"] == ["–", "–", "61.7%"]
        assert table["Drafts"] == ["–", "–", "–"], "what is not counted is not known to be 0"
        assert table["Coverage (output from drafts)"] == ["–", "–", "–"]
        assert table["Generated tokens per second"] == ["20.0", "20.0", "–"]

    def test_load(self) -> None:
        only = replace(engine(), load=Load(requests_running=3, kv_cache_usage_ratio=0.0))

        assert panel(show(page_of(target(only))), "Load").text == (
            "Load at the last poll Requests running 3 Requests waiting – KV cache in use 0.0%"
        )

    def test_deployment(self) -> None:
        text = panel(show(PAGES["healthy"]), "Deployment").text

        for value in (
            SPECULATION.method,
            SPECULATION.draft_model,
            "0.11.0",
            "vllm-v1",
            "Cost profile unknown",
        ):
            assert value in text

    def test_records(self) -> None:
        only = replace(
            engine(), engine_resets_total=3, inconsistent_samples_total=17, defects=("a bucket fell",)
        )
        text = panel(show(page_of(target(only))), "Data quality").text

        assert "Counter resets seen 3" in text
        assert "Inconsistent samples 17" in text
        assert "a bucket fell" in text

    def test_findings_say_what_to_do(self) -> None:
        only = PAGES["poor"].targets[0].engines[0]
        text = panel(show(PAGES["poor"]), "Findings").text

        assert only.findings
        for finding in only.findings:
            assert f"{finding.severity.value} {finding.text} {finding.action}" in text

    def test_the_rubric_is_shown_as_applied(self) -> None:
        page = show(PAGES["varying"])
        criteria = PAGES["varying"].targets[0].engines[0].quality.criteria
        found = next(d for d in page.all("details") if d.one("summary").text.startswith("Rubric"))

        assert len(rows(found)) == len(criteria)
        assert {row[4] for row in rows(found)} == {"holds", "no", "not judged"}

    def test_thresholds_are_all_there(self) -> None:
        result = PAGES["healthy"]
        page = show(result)
        found = next(d for d in page.all("details") if d.one("summary").text.startswith("Thresholds"))

        assert "open" not in found.attributes
        for name, value in result.thresholds.items():
            assert f"{name.replace('_', ' ')} {value:g}" in found.text


class TestTargets:
    def test_up(self) -> None:
        text = show(PAGES["healthy"]).one("div", class_="server").text

        assert text == (
            "http://vllm:8000 up Last success 1.3 s ago Last poll took 12 ms "
            "Failed polls refused 7, timeout 1"
        )

    def test_down_says_why_and_since_when_and_shows_nothing_derived(self) -> None:
        page = show(PAGES["down"])
        notice = page.one("div", class_="notice").text

        assert notice.startswith("Down: connection refused Reason: refused (nothing listens at the address")
        assert "The last successful poll was at 14:10:00 UTC , 3 min 20 s ago." in notice
        assert "down" in page.one("h2").text
        assert not page.all("article")
        assert not page.all("div", class_="gauge")

    def test_never_up(self) -> None:
        page = show(PAGES["never_up"])

        assert "No poll has succeeded since the exporter started." in page.one("div", class_="notice").text
        assert page.one("div", class_="server").one("span", class_="none")

    def test_a_reason_that_is_not_known_here_is_shown_all_the_same(self) -> None:
        text = show(page_of(down(reason="newfangled"))).one("div", class_="notice").text

        assert "Reason: newfangled . The last" in text

    def test_since_a_day_long_past(self) -> None:
        text = show(page_of(down(last_success=NOW - 3 * 86_400))).one("div", class_="notice").text

        assert "at 2026-09-18 14:13:20 UTC , 3 d ago" in text

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("not_polled", "The first poll is under way."),
            ("no_engines", "The server answers, but shows no engine"),
            ("no_targets", "The exporter was given no server to poll."),
        ],
    )
    def test_nothing_to_show(self, name: str, words: str) -> None:
        assert words in show(PAGES[name]).one("div", class_="notice").text

    def test_errors_by_reason_without_those_that_never_happened(self) -> None:
        page = show(PAGES["healthy"])
        found = next(d for d in page.all("details") if d.one("summary").text.startswith("Failed polls"))

        assert [row[:2] for row in rows(found)] == [["refused", "7"], ["timeout", "1"]]
        assert all(row[2] for row in rows(found))

    def test_no_errors(self) -> None:
        clean = replace(target(engine()), poll_errors_total={"refused": 0})
        page = show(page_of(clean))

        assert "Failed polls 0" in page.one("div", class_="server").text
        assert not [d for d in page.all("details") if "Failed" in d.text]

    def test_a_failed_reload(self) -> None:
        result = replace(
            PAGES["healthy"], reload=Reload(successful=False, success_timestamp_seconds=NOW - 60)
        )

        text = show(result).one("div", class_="notice").text

        assert text.startswith("Configuration not reloaded")
        assert "14:12:20 UTC" in text

    def test_a_clock_that_was_set_back(self) -> None:
        ahead = replace(target(engine()), last_success_timestamp_seconds=NOW + 10)

        assert "Last success 0 ms ago" in show(page_of(ahead)).one("div", class_="server").text


class TestOverview:
    def test_is_not_there_for_a_single_engine(self) -> None:
        assert not [e for e in show(PAGES["healthy"]).all("h2") if e.text == "Overview"]

    def test_has_a_line_for_every_engine_and_every_silent_server(self) -> None:
        page = show(FLEET)
        table = rows(page.one("table", class_="overview"))

        assert len(table) == sum(max(1, len(t.engines)) for t in FLEET.targets)
        assert [row[3] for row in table] == [
            *["active"] * 4,
            "warming up",
            "active",
            "bypassed",
            "idle",
            "off",
            "down",
        ]
        assert [row[4] for row in table] == [
            *["healthy", "optimal", "poor", "fair", "–", "optimal"],
            *["–"] * 4,
        ]
        assert table[-1] == ["http://vllm-c:8000", "–", "–", "down", *["–"] * 6, "http://vllm-c:8000"]

    def test_says_of_every_engine_whether_it_pays_and_what_to_do(self) -> None:
        table = rows(show(FLEET).one("table", class_="overview"))

        assert [row[1].split()[0] for row in table] == [
            *["beneficial", "beneficial", "harmful", "beneficial", "–", "beneficial"],
            *["–"] * 4,
        ]
        assert table[2][1:3] == ["harmful 0.92×", "try another method"]
        assert [row[2] for row in table] == [
            *(words_of(one) for server in FLEET.targets for one in server.engines),
            "–",
        ]
        assert len({row[2] for row in table}) > 3

    def test_comes_before_the_engines(self) -> None:
        page = render(FLEET, NOW)

        assert page.index('class="overview"') < page.index("<article")

    def test_without_the_server_where_there_is_only_one(self) -> None:
        page = show(page_of(target(engine(), engine())))

        assert "Server" not in page.one("table", class_="overview").one("thead").text


NASTY = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "'&quot;&amp;</style></title><b>",
    "]]>--><!--",
    "line\nbreak\tand \x00\x1b[31m\x7f\x85",
    "\ud800 lone surrogate",
    "\u202egnp.exe",
    "模型 🚀",
)


class TestEscaping:
    @pytest.mark.parametrize("nasty", NASTY)
    def test_nothing_from_outside_becomes_markup(self, nasty: str) -> None:
        plain = everywhere("plain")
        page = render(everywhere(nasty), NOW)

        def tags(root: Element) -> list[tuple[str, list[str]]]:
            return [(e.tag, sorted(e.attributes)) for e in root.all()]

        assert tags(read(page)) == tags(read(render(plain, NOW)))
        page.encode()
        assert "\x00" not in page
        assert "\x1b" not in page

    @pytest.mark.parametrize("nasty", NASTY[:4])
    def test_and_is_shown_as_it_is(self, nasty: str) -> None:
        page = render(everywhere(nasty), NOW)

        assert nasty not in page
        assert unescape(page).count(nasty) >= 14

    def test_a_name_cannot_turn_the_text_around_it(self) -> None:
        page = show(everywhere("\u202egnp.exe"))

        assert page.one("h3").one("bdi").text == "\u202egnp.exe"


def everywhere(text: str) -> ExporterResult:
    """Return a result that holds `text` wherever it may hold one."""
    only = engine()
    only = replace(
        only,
        model_name=text,
        engine="",
        activity=Activity(ActivityState.ACTIVE, text),
        deployment=replace(
            only.deployment,
            method=text,
            draft_model=text,
            dialect=text,
            upstream_version=text,
            cost_profile=text,
        ),
        quality=replace(only.quality, reasons=(text,)),
        payoff=replace(only.payoff, reasons=(text,)),
        advice=replace(
            only.advice,
            reason=text,
            rules=(Rule(text, text, text),),
            speculative_config=text,
            schedule_config=text,
        ),
        findings=(Finding(Severity.HINT, text, text),),
        defects=(text,),
    )
    server = replace(target(only), target=text, poll_errors_total={text: 1})
    dead = down(reason=text, address=text)
    dead = replace(dead, failure=replace(dead.failure, message=text))
    return replace(page_of(server, dead), thresholds={text: 1.0}, version=text)


class TestRefresh:
    @pytest.mark.parametrize(
        ("refresh", "content"), [(5.0, "5"), (0.5, "1"), (2.2, "3"), (60, "60"), (0, None), (-1, None)]
    )
    def test_reloads_itself(self, refresh: float, content: str | None) -> None:
        found = read(render(PAGES["healthy"], NOW, refresh)).all("meta", **{"http-equiv": "refresh"})

        assert [e.attributes["content"] for e in found] == ([content] if content else [])

    def test_can_be_paused_and_resumed(self) -> None:
        def link(refresh: float) -> dict[str, str]:
            header = read(render(PAGES["healthy"], NOW, refresh)).one("header")
            return {a.text: a.attributes["href"] for a in header.all("a")}

        assert link(5)["pause"] == "?refresh=0"
        assert link(0)["resume"] == "?"

    @pytest.mark.parametrize(
        ("query", "seconds"),
        [
            (None, 5),
            ("0", 0),
            ("2.5", 2.5),
            ("-3", 0),
            ("1e9", 3600),
            ("nan", 5),
            ("inf", 5),
            ("", 5),
            ("x", 5),
        ],
    )
    def test_reads_its_own_parameter(self, query: str | None, seconds: float) -> None:
        assert parse_refresh(query) == seconds

    def test_reads_its_own_parameter_with_another_default(self) -> None:
        assert parse_refresh(None, 1.0) == 1.0
        assert parse_refresh("junk", 1.0) == 1.0


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (0, "0"),
            (0.0001, "< 0.001"),
            (0.00123, "0.0012"),
            (0.0123, "0.0123"),
            (0.125, "0.125"),
            (1.5, "1.50"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (154.4, "154"),
            (1234, "1,230"),
            (123456, "123,000"),
            (999999, "1.00M"),
            (1234567, "1.23M"),
            (12345678, "12.3M"),
            (2.5e9, "2,500M"),
        ],
    )
    def test_rate(self, value: float, shown: str) -> None:
        assert rate(value) == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [
            (-5, "0 ms"),
            (0.0123, "12 ms"),
            (0.9994, "999 ms"),
            (0.9996, "1 s"),
            (2.06, "2.1 s"),
            (59.94, "59.9 s"),
            (59.96, "1 min"),
            (200, "3 min 20 s"),
            (3599.6, "1 h"),
            (7500, "2 h 5 min"),
            (86_400 * 3 + 4 * 3600, "3 d 4 h"),
        ],
    )
    def test_duration(self, seconds: float, shown: str) -> None:
        assert duration(seconds) == shown


def test_the_policy_allows_the_style_sheet_and_nothing_else() -> None:
    assert "style-src 'sha256-" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; ")


def test_engines_without_labels_have_a_name() -> None:
    assert show(PAGES["unnamed"]).one("h3").text == "unnamed model"


def test_is_pure() -> None:
    assert render(FLEET, NOW) == render(FLEET, NOW)


def test_an_empty_result_of_an_engine() -> None:
    """Everything that may be absent is."""
    bare = EngineResult("", "", Activity(ActivityState.WARMING_UP, "two samples are needed"))
    page = show(page_of(TargetResult("x", up=True, engines=(bare,))))

    assert answers(page)["Acceptance ratio"].startswith("– ")
