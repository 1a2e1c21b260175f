"""Judgement of single requests: the losing minority behind a healthy mean, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from per_request.exact import record, request
from per_request.traffic import MIXED, known, observations
from vllm_specdec_exporter.economics import for_method
from vllm_specdec_exporter.economics.criteria import thresholds_for
from vllm_specdec_exporter.judgement.finding import Finding, Severity
from vllm_specdec_exporter.per_request.book import Book
from vllm_specdec_exporter.per_request.classification import OTHER
from vllm_specdec_exporter.per_request.judgement import Load
from vllm_specdec_exporter.per_request.observation import Source
from vllm_specdec_exporter.per_request.result import Outcome
from vllm_specdec_exporter.per_request.settings import RequestSettings
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_specdec_exporter.per_request.observation import Observation
    from vllm_specdec_exporter.per_request.result import ModelRequests

PROFILE = for_method("draft_model")
#: 25 drafts of four tokens each: 82, and 38, of the hundred are accepted.
WELL = record([(4, 4)] * 20 + [(4, 2)] + [(4, 0)] * 4)
BADLY = record([(4, 4)] * 9 + [(4, 2)] + [(4, 0)] * 15)


def judged(
    requests: Iterable[Observation],
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - it is frozen
    batch: float | None = None,
) -> ModelRequests:
    book = Book(RequestSettings(), thresholds, (Source.TAP,))
    for observation in requests:
        book.add(observation, Source.TAP, 0.0)
    (model,) = book.result(0.0, {} if batch is None else {"m": Load(batch, PROFILE)}).models
    return model


def alike(requests: int, accepted: int, kind: str = "chat") -> list[Observation]:
    return [request(accepted, request_type=kind, completion_tokens=accepted + 20) for _ in range(requests)]


def sixty_forty() -> list[Observation]:
    """60 % of the requests with 82 % of their tokens accepted, 40 % with 38 %, as they may come in."""
    found = [request(0, record=WELL, request_type="code", completion_tokens=107) for _ in range(60)]
    found += [
        request(0, record=BADLY, request_type="chat", temperature=1.2, completion_tokens=63)
        for _ in range(40)
    ]
    Random(1).shuffle(found)
    return found


class TestTheLosingMinority:
    def test_the_mean_looks_healthy(self) -> None:
        """64 % of all drafted tokens are accepted: by that alone nothing is wrong."""
        found = judged(sixty_forty())

        assert found.acceptance_ratio == pytest.approx(0.644)
        assert found.acceptance_ratio >= Thresholds().healthy_acceptance_ratio

    def test_four_of_ten_lose(self) -> None:
        """By request the two kinds are plain: P10 says that a tenth loses, and most others gain."""
        found = judged(sixty_forty())

        assert (found.window, found.window_requests) == ("30m", 100)
        assert found.acceptance_quantiles == {"0.1": 0.38, "0.5": 0.82, "0.9": 0.82}
        assert (found.losing_requests_ratio, found.gaining_requests_ratio) == (0.4, 0.6)
        assert found.losing_tokens_ratio == pytest.approx(40 * 63 / (40 * 63 + 60 * 107))
        assert found.mixed is True

    def test_what_is_said(self) -> None:
        """Both problems, and who is to be sent where with what effect, in words."""
        speedup = (1 + 38 / 25) / PROFILE.step_cost(4, 8)

        assert speedup > 1
        assert judged(sixty_forty(), batch=8.0).findings == (
            Finding(
                Severity.PROBLEM,
                "a tenth of the requests has an acceptance of 38% or less (P10, limit 50%): 40% of the "
                "requests lose",
                "See by temperature and type which they are: route them to a server without speculation, or "
                "lower their temperature.",
            ),
            Finding(
                Severity.PROBLEM,
                "the workload is mixed: 60% of the requests gain and 40% lose; their mean of 64% looks "
                "healthy and describes neither",
                "Judge by groups, not by the mean: serve the two kinds apart, each with the K that suits it.",
            ),
            Finding(
                Severity.HINT,
                "requests of type chat lose: 40% of the requests, and 70% of the drafted tokens that were "
                "verified for nothing",
                "Send them to a server without speculation: acceptance here would rise from 64% to 82%. By "
                f"the cost profile they still run {speedup:.2f} times as fast at the present load: measure "
                "before you do. A fuller batch takes that away first.",
            ),
        )

    def test_a_full_batch(self) -> None:
        """Where the losing requests really are slower, that is said instead."""
        (*_, hint) = judged(sixty_forty(), batch=400.0).findings
        speedup = (1 + 38 / 25) / PROFILE.step_cost(4, 400)

        assert speedup < 1
        assert hint.action == (
            "Send them to a server without speculation: acceptance here would rise from 64% to 82%. By the "
            f"cost profile they now run {speedup:.2f} times as fast as without."
        )

    def test_groups(self) -> None:
        """Each with its share of the requests, the tokens and the waste, the largest first."""
        code, chat = judged(sixty_forty(), batch=8.0).groups

        assert (code.request_type, code.temperature, code.outcome) == ("code", "0", Outcome.GAINS)
        assert (chat.request_type, chat.temperature, chat.outcome) == ("chat", "1+", Outcome.LOSES)
        assert (code.requests, code.requests_ratio, chat.requests, chat.requests_ratio) == (60, 0.6, 40, 0.4)
        assert (code.acceptance_ratio, chat.acceptance_ratio) == (0.82, 0.38)
        assert (code.p10, code.p50, chat.p10, chat.p50) == (0.82, 0.82, 0.38, 0.38)
        assert (code.mean_acceptance_length, chat.mean_acceptance_length) == (1 + 82 / 25, 1 + 38 / 25)
        assert (code.losing_requests_ratio, chat.losing_requests_ratio) == (0.0, 1.0)
        assert (code.rejected_ratio or 0) + (chat.rejected_ratio or 0) == pytest.approx(1)
        assert chat.rejected_ratio == pytest.approx(40 * 62 / (40 * 62 + 60 * 18))
        assert (code.tokens_ratio or 0) + (chat.tokens_ratio or 0) == pytest.approx(1)
        assert chat.estimated_speedup == pytest.approx((1 + 38 / 25) / PROFILE.step_cost(4, 8))
        assert code.judged
        assert chat.judged

    def test_positions_of_detailed_records(self) -> None:
        """What a smaller K would draft is known to the step."""
        found = judged(sixty_forty())
        accepted = (60 * 21 + 40 * 10, 60 * 21 + 40 * 10, 60 * 20 + 40 * 9, 60 * 20 + 40 * 9)

        assert found.mean_draft_length_at == (1, 2, 3, 4)
        assert found.position_acceptance_ratio == tuple(count / 2500 for count in accepted)
        assert (found.drafted_per_position, found.accepted_per_position) == ((2500,) * 4, accepted)

    def test_drawn_step_by_step(self) -> None:
        """The same where each step is drawn at random, as real requests are."""
        (found,) = known(MIXED).models
        ratios = sorted(each.record.acceptance_ratio or 0.0 for each in observations(MIXED) if each.record)

        assert 0 <= ratios[99] - found.acceptance_quantiles["0.1"] < 1e-3
        assert found.acceptance_quantiles["0.1"] < 0.5 < 0.6 <= (found.acceptance_ratio or 0)
        assert found.mixed
        assert found.routing is not None
        assert found.routing.request_types == ("chat",)


class TestEnough:
    def test_too_few(self) -> None:
        """One request short of `minimum_requests` nothing is judged, and it is said how many it takes."""
        found = judged(sixty_forty()[:49])

        assert (found.mixed, found.routing) == (None, None)
        assert found.findings == (
            Finding(
                Severity.HINT,
                "49 requests in the last 30m had something drafted, 50 are needed to judge them one by one",
                "Wait for more traffic, or judge over a longer requests.window.",
            ),
        )
        assert found.acceptance_quantiles["0.1"] == 0.38
        assert judged(sixty_forty()[:50]).mixed is True

    def test_requests_without_drafts_do_not_count(self) -> None:
        """They neither gain nor lose."""
        found = judged([*sixty_forty()[:49], *[request(0, record=None)] * 100, *[request(0, 0, 0)] * 100])

        assert (found.window_requests, found.mixed) == (49, None)

    def test_requests_without_a_record(self) -> None:
        """From a fifth of them on it is said that judgement is on the others, and what to change."""
        unseen = [request(0, record=None)]
        action = (
            "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics detailed. Streams have a "
            "record only with their usage: set --tap.ask-for-usage true, or include_usage in the requests."
        )
        few, some = judged([*alike(80, 82), *unseen * 19]), judged([*alike(80, 82), *unseen * 20])

        assert (few.window_unrecorded_requests, few.findings) == (19, ())
        assert some.findings == (
            Finding(
                Severity.HINT,
                "20 of 100 requests in the last 30m (20%) had no record of speculation: what is said is of "
                "the others",
                action,
            ),
        )
        assert judged(unseen).findings == (
            Finding(
                Severity.HINT, "1 of 1 requests in the last 30m (100%) had no record of speculation", action
            ),
        )
        assert [finding.text for finding in judged([*alike(10, 82), *unseen * 10]).findings] == [
            "10 requests in the last 30m had something drafted, 50 are needed to judge them one by one",
            "10 of 20 requests in the last 30m (50%) had no record of speculation",
        ]

    @pytest.mark.parametrize(
        ("limit", "unseen", "told"), [(0.5, 79, False), (0.5, 80, True), (0.0, 0, False), (0.0, 1, True)]
    )
    def test_the_operators_limit_on_requests_without_a_record(
        self, limit: float, unseen: int, told: bool
    ) -> None:
        """The share from which on it is said can be moved; that all requests have a record is never said."""
        thresholds = Thresholds().with_values({"unrecorded_requests_ratio": limit})
        found = judged([*alike(80, 82), *[request(0, record=None)] * unseen], thresholds)

        assert any("had no record" in finding.text for finding in found.findings) is told

    def test_the_gravest_comes_first(self) -> None:
        """Problems before hints, whatever else is to be said."""
        found = judged([*sixty_forty(), *[request(0, record=None)] * 100])
        severities = [finding.severity for finding in found.findings]

        assert severities == [Severity.PROBLEM] * 2 + [Severity.HINT] * 2

    def test_the_operators_number(self) -> None:
        """Groups need two fifths of it."""
        thresholds = Thresholds().with_values({"minimum_requests": 5})
        found = judged([*alike(3, 82, "code"), *alike(2, 38), *alike(1, 38, "rag")], thresholds)

        assert [group.judged for group in found.groups] == [True, True, False]
        assert found.mixed is True


class TestUntyped:
    ACTION = (
        "Nothing tells them apart, so nobody can route them by type. Name their types: in the header of "
        "requests.type-header, by rules of requests.type, or as request_type in a push; a name has up to 64 "
        "letters, digits and _.:/-."
    )

    def hints(self, *requests: list[Observation]) -> list[tuple[str, str]]:
        found = judged(one for group in requests for one in group)
        return [(f.text, f.action) for f in found.findings if f.severity is Severity.HINT]

    def test_losing_requests_without_a_type(self) -> None:
        """What cannot be routed is not named as what to route; it is said how to tell types apart."""
        assert self.hints(alike(150, 82), alike(50, 38, OTHER)) == [
            ("requests without a type of their own (type other) lose: 25% of the requests", self.ACTION)
        ]

    def test_beside_a_type_that_loses(self) -> None:
        """That one is to be routed away, and the hint is of it alone."""
        first, second = self.hints(alike(100, 82), alike(50, 38, "rag"), alike(50, 38, OTHER))

        assert first[0].startswith("requests of type rag lose: 25% of the requests, ")
        assert second[0] == "requests without a type of their own (type other) lose: 25% of the requests"

    def test_where_some_of_them_gain(self) -> None:
        """By temperature they can be routed, and are."""
        hot = [replace(one, temperature=1.5) for one in alike(50, 38, OTHER)]
        ((text, _),) = self.hints(alike(100, 82, OTHER), hot)

        assert text.startswith("requests at temperature 1+ lose: 33% of the requests, ")

    def test_requests_that_name_no_temperature(self) -> None:
        """The name of their bucket says little by itself."""
        unset = [replace(one, temperature=None) for one in alike(50, 38)]
        ((text, _),) = self.hints(alike(100, 82), unset)

        assert text.startswith("requests at temperature unset (that name none) lose: 33% of the requests, ")


class TestMixed:
    @pytest.mark.parametrize(
        ("gain", "lose", "mixed"),
        [(80, 20, True), (81, 19, False), (20, 80, True), (19, 81, False), (100, 0, False)],
    )
    def test_a_fifth_on_either_side(self, gain: int, lose: int, mixed: bool) -> None:
        """Some gain and some lose, each at least a fifth of all."""
        assert judged([*alike(gain, 82), *alike(lose, 38)]).mixed is mixed

    def test_near_break_even_is_neither(self) -> None:
        """Requests in between belong to neither side."""
        assert judged([*alike(50, 60), *alike(50, 38)]).mixed is False
        assert judged([*alike(60, 60), *alike(20, 38), *alike(20, 82)]).mixed is True

    def test_a_mean_that_does_not_look_healthy(self) -> None:
        """Then that is not said of it."""
        texts = [finding.text for finding in judged([*alike(30, 82), *alike(70, 38)]).findings]

        assert (
            "the workload is mixed: 30% of the requests gain and 70% lose; their mean of 51% describes "
            "neither"
        ) in texts

    def test_the_operators_share(self) -> None:
        """From 0.01 up: with none at all, traffic that only gains would be mixed."""
        thresholds = Thresholds().with_values({"mixed_requests_ratio": 0.01})

        assert judged([*alike(99, 82), *alike(1, 38)], thresholds).mixed is True
        assert judged(alike(100, 82), thresholds).mixed is False
        with pytest.raises(ValueError, match="mixed_requests_ratio") as error:
            Thresholds().with_values({"mixed_requests_ratio": 0.0})
        assert str(error.value) == "threshold mixed_requests_ratio is 0; allowed: between 0.01 and 0.5"


class TestTail:
    def test_healthy(self) -> None:
        """Where nobody loses, nothing is found."""
        found = judged(alike(100, 82))

        assert (found.findings, found.routing, found.mixed) == ((), None, False)

    @pytest.mark.parametrize(("losing", "told"), [(9, False), (10, True)])
    def test_a_tenth(self, losing: int, told: bool) -> None:
        """A tenth of the requests that lose is a problem, less is not."""
        found = judged([*alike(100 - losing, 82), *alike(losing, 38)])

        assert any(finding.severity is Severity.PROBLEM for finding in found.findings) is told

    def test_on_the_limit(self) -> None:
        """P10 is a problem below its limit, not on it."""
        found = judged([*alike(5, 38), *alike(10, 50), *alike(85, 82)])

        assert (found.acceptance_quantiles["0.1"], found.losing_requests_ratio) == (0.5, 0.05)
        assert found.findings == ()

    def test_just_below_the_limit(self) -> None:
        """A share that would be rounded to the limit is written with the digits that it takes."""
        found = judged([request(1249, 2500) for _ in range(100)])

        assert found.losing_requests_ratio == 1
        (tail,) = found.findings
        assert tail.text == (
            "a tenth of the requests has an acceptance of 49.9% or less (P10, limit 50.0%): 100% of the "
            "requests lose"
        )

    @pytest.mark.parametrize(("losing", "told"), [(1, False), (9, False), (10, True)])
    def test_a_tenth_by_the_operators_zones(self, losing: int, told: bool) -> None:
        """With zones for a cheap drafter P10 is held against them, and not against those of a draft model."""
        zones = {"disable_acceptance_ratio": 0.3, "break_even_acceptance_ratio": 0.4}
        found = judged([*alike(100 - losing, 45), *alike(losing, 20)], Thresholds().with_values(zones))

        assert found.gaining_requests_ratio == (100 - losing) / 100
        assert any(finding.severity is Severity.PROBLEM for finding in found.findings) is told

    def test_a_limit_above_the_zone_of_losing(self) -> None:
        """A tenth below the limit is none that loses: where fewer do, nothing is said."""
        thresholds = Thresholds().with_values({"poor_request_acceptance_ratio": 0.7})
        found = judged([*alike(80, 82), *alike(15, 60), *alike(5, 38)], thresholds)

        assert (found.acceptance_quantiles["0.1"], found.losing_requests_ratio) == (0.6, 0.05)
        assert found.findings == ()

    @pytest.mark.parametrize(
        ("limits", "told"),
        [
            ({}, True),
            ({"poor_request_acceptance_ratio": 0.3}, False),
            ({"disable_acceptance_ratio": 0.3}, False),
        ],
    )
    def test_the_operators_limits(self, limits: dict[str, float], told: bool) -> None:
        """P10 may have a lower limit; and where no request loses by its zone, none is said to."""
        findings = judged([*alike(85, 82), *alike(15, 38)], Thresholds().with_values(limits)).findings

        assert any("P10" in finding.text for finding in findings) is told


class TestCheapDrafters:
    NGRAM = thresholds_for(for_method("ngram"), 4)

    def test_what_loses_with_a_draft_model_gains_with_n_grams(self) -> None:
        """N-grams cost next to nothing: an acceptance of 38 % is a gain, and no part of the traffic loses."""
        found = judged(sixty_forty(), self.NGRAM)

        assert (found.losing_requests_ratio, found.gaining_requests_ratio) == (0.0, 1.0)
        assert (found.mixed, found.findings, found.routing) == (False, (), None)

    def test_requests_that_never_repeat_themselves(self) -> None:
        """With n-grams only those lose of which next to nothing is accepted, and the limit is theirs."""
        found = judged([*alike(70, 40), *alike(30, 0, "prose")], self.NGRAM, batch=8.0)

        tail, mixed, routing = (finding.text for finding in found.findings)

        assert tail == (
            "a tenth of the requests has an acceptance of 0.0% or less (P10, limit 0.4%): 30% of the "
            "requests lose"
        )
        assert mixed == (
            "the workload is mixed: 70% of the requests gain and 30% lose; their mean of 28% looks healthy "
            "and describes neither"
        )
        assert routing == (
            "requests of type prose lose: 30% of the requests, and 42% of the drafted tokens that were "
            "verified for nothing"
        )

    @pytest.mark.parametrize("method", ["ngram", "eagle3", "mtp"])
    def test_each_by_its_own_break_even(self, method: str) -> None:
        """On either side of the drafter's own limit, not of the one for draft models."""
        thresholds = thresholds_for(for_method(method), 3)
        limit = round(thresholds.disable_acceptance_ratio * 10_000)
        below = judged([request(limit - 1, 10_000, 3_000) for _ in range(60)], thresholds)
        above = judged([request(limit, 10_000, 3_000) for _ in range(60)], thresholds)

        assert (below.losing_requests_ratio, above.losing_requests_ratio) == (1.0, 0.0)
        assert [finding.severity for finding in below.findings] == [Severity.PROBLEM]
        assert above.findings == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from("abc"), st.sampled_from([0.0, 0.6, 2.0])), max_size=80
    )
)
def test_shares_add_up(requests: list[tuple[int, str, float]]) -> None:
    """Whatever comes in: groups are parts of the whole, and findings are said only of enough requests."""
    book = Book(RequestSettings(), Thresholds(), (Source.TAP,))
    for accepted, kind, temperature in requests:
        book.add(request(accepted, request_type=kind, temperature=temperature), Source.TAP, 0.0)
    for found in book.result(0.0, {}).models:
        rejected = sum(100 - accepted for accepted, *_ in requests)

        assert sum(group.requests for group in found.groups) == found.window_requests == len(requests)
        assert sum(group.requests_ratio for group in found.groups) == pytest.approx(1)
        assert sum(group.rejected_ratio or 0 for group in found.groups) == pytest.approx(1 if rejected else 0)
        assert (found.mixed is None) is (len(requests) < 50)
        assert found.acceptance_ratio == pytest.approx(sum(a for a, *_ in requests) / len(requests) / 100)
        assert [group.requests for group in found.groups] == sorted(
            (group.requests for group in found.groups), reverse=True
        )
        quantiles = list(found.acceptance_quantiles.values())
        assert quantiles == sorted(quantiles)
        assert all(0 <= value <= 1 for value in quantiles)


def test_the_worst_requests_come_sorted() -> None:
    """The worst first, of which the server's name leads to its log; none that does not lose is among them."""
    requests = [replace(request(n), request_id=f"cmpl-{n}") for n in (40, 3, 90, 17, 50, 49)]

    assert [worst.request_id for worst in judged(requests).worst] == [
        "cmpl-3",
        "cmpl-17",
        "cmpl-40",
        "cmpl-49",
    ]
