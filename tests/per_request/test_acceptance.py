"""Judgement of single requests: the losing minority, what is said of it, and whom to
send away.
"""

from collections.abc import Iterable
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from per_request.exact import record, request
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.judgement.findings import Finding, Severity
from vllm_specdec_exporter.per_request.acceptance import BatchCost
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import OTHER, RequestSettings
from vllm_specdec_exporter.per_request.observation import Observation, Source
from vllm_specdec_exporter.per_request.summary import (
    GroupWindow,
    ModelRequests,
    Outcome,
    Routing,
)

PROFILE = for_method("draft_model")
#: 25 drafts of four tokens each: 82, and 38, of the hundred are accepted.
WELL = record([(4, 4)] * 20 + [(4, 2)] + [(4, 0)] * 4)
BADLY = record([(4, 4)] * 9 + [(4, 2)] + [(4, 0)] * 15)


def judged(
    requests: Iterable[Observation],
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - it is frozen
    batch: float | None = None,
) -> ModelRequests:
    book = RequestAggregator(RequestSettings(), thresholds, (Source.TAP,))
    for observation in requests:
        book.add(observation, Source.TAP, 0.0)
    (model,) = book.result(
        0.0, {} if batch is None else {"m": BatchCost(batch, PROFILE)}
    ).models
    return model


COOL = 0.2
HOT = 1.5


def alike(
    requests: int, accepted: int, kind: str = "chat", temperature: float | None = COOL
) -> list[Observation]:
    """Requests of a kind that had so many of their hundred drafted tokens accepted."""
    observation = request(
        accepted,
        request_type=kind,
        temperature=temperature,
        completion_tokens=accepted + 21,
    )
    return [observation] * requests


def sixty_forty() -> list[Observation]:
    """60 % of the requests with 82 % of their tokens accepted, 40 % with 38 %, as they
    may come in.
    """
    code = request(0, record=WELL, request_type="code", completion_tokens=108)
    chat = request(0, record=BADLY, temperature=1.2, completion_tokens=64)
    requests = [code] * 60 + [chat] * 40
    Random(1).shuffle(requests)
    return requests


def group(kind: str, temperature: str, *, requests: int, accepted: int) -> GroupWindow:
    """What is told of `requests` of the hundred, each with 25 drafts of four tokens of
    which `accepted` were.
    """
    loses = accepted < 50
    length = 1 + accepted / 25
    return GroupWindow(
        temperature,
        kind,
        requests=requests,
        requests_ratio=requests / 100,
        acceptance_ratio=accepted / 100,
        p10=accepted / 100,
        p50=accepted / 100,
        mean_acceptance_length=length,
        outcome=Outcome.LOSES if loses else Outcome.GAINS,
        losing_requests_ratio=float(loses),
        rejected_ratio=requests * (100 - accepted) / (40 * 62 + 60 * 18),
        estimated_speedup=length / PROFILE.step_cost(4, 8),
        judged=True,
    )


class TestTheLosingMinority:
    def test_four_of_ten_lose(self) -> None:
        """By request the two kinds are plain: P10 loses, and most others gain."""
        judgement = judged(sixty_forty(), batch=8.0)
        code, chat = judgement.groups
        tokens = 40 * 64 + 60 * 108

        assert (judgement.window, judgement.window_requests) == ("30m", 100)
        assert judgement.acceptance_quantiles == {"0.1": 0.38, "0.5": 0.82, "0.9": 0.82}
        assert judgement.losing_requests_ratio == 0.4
        assert judgement.gaining_requests_ratio == 0.6
        assert judgement.losing_tokens_ratio == pytest.approx(40 * 64 / tokens)
        assert judgement.mixed is True
        # Each group with its share of the requests and of the rejected tokens, the
        # largest first.
        assert code == group("code", "0", requests=60, accepted=82)
        assert chat == group("chat", "1+", requests=40, accepted=38)

    def test_losing_requests_that_are_slower(self) -> None:
        """Where the losing requests really are slower, that is said instead."""
        (*_, hint) = judged(sixty_forty(), batch=400.0).findings
        speedup = (1 + 38 / 25) / PROFILE.step_cost(4, 400)

        assert speedup < 1
        assert hint.action == (
            "Send them to a server without speculation: acceptance here would rise "
            "from 64% to 82%. By the "
            f"cost profile they now run {speedup:.2f} times as fast as without."
        )


class TestEnough:
    def test_fewer_requests_than_the_minimum_are_not_judged(self) -> None:
        """One request short of `minimum_requests` nothing is judged, and it is said how
        many it takes.
        """
        judgement = judged(sixty_forty()[:49])

        assert (judgement.mixed, judgement.routing) == (None, None)
        assert judgement.findings == (
            Finding(
                Severity.HINT,
                (
                    "49 requests in the last 30m had something drafted, 50 are needed "
                    "to judge them one by one"
                ),
                "Wait for more traffic, or judge over a longer requests.window.",
            ),
        )
        assert judgement.acceptance_quantiles["0.1"] == 0.38
        assert judged(sixty_forty()[:50]).mixed is True

    def test_requests_without_a_record(self) -> None:
        """From a fifth of them on it is said that judgement is on the others, and what
        to change.
        """
        unseen = [request(0, record=None)]
        action = (
            "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics "
            "detailed. Streams have a "
            "record only with their usage: set --enable-force-include-usage (clients "
            "that read choices[0] of each event must first test whether there are "
            "choices), or include_usage in the requests. SGLang's records lack the "
            "drafted tokens of trees and of a K that changes."
        )
        few = judged([*alike(80, 82), *unseen * 19])
        some = judged([*alike(80, 82), *unseen * 20])

        assert (few.window_unrecorded_requests, few.findings) == (19, ())
        assert some.findings == (
            Finding(
                Severity.HINT,
                "20 of 100 requests in the last 30m (20%) had no record of "
                "speculation: the results cover "
                "only the others",
                action,
            ),
        )
        assert judged(unseen).findings == (
            Finding(
                Severity.HINT,
                "1 of 1 requests in the last 30m (100%) had no record of speculation",
                action,
            ),
        )
        assert [
            finding.text for finding in judged([*alike(10, 82), *unseen * 10]).findings
        ] == [
            (
                "10 requests in the last 30m had something drafted, 50 are needed to "
                "judge them one by one"
            ),
            "10 of 20 requests in the last 30m (50%) had no record of speculation",
        ]

    @pytest.mark.parametrize(
        ("limit", "unseen", "told"),
        [(0.5, 79, False), (0.5, 80, True), (0.0, 0, False), (0.0, 1, True)],
    )
    def test_the_operators_limit_on_requests_without_a_record(
        self, limit: float, unseen: int, told: bool
    ) -> None:
        """The share from which on it is said can be moved; that all requests have a
        record is never said.
        """
        thresholds = Thresholds().with_values({"unrecorded_requests_ratio": limit})
        judgement = judged(
            [*alike(80, 82), *[request(0, record=None)] * unseen], thresholds
        )
        texts = [finding.text for finding in judgement.findings]
        assert any("had no record" in text for text in texts) is told


def test_requests_without_a_type() -> None:
    """What cannot be routed is not named as what to route; it is said how to tell types
    apart.

    A type that loses beside them is routed away, and so is a temperature at which they
    lose.
    """
    action = (
        "They cannot be routed by type. Name their types: in the header of "
        "requests.type-header, by rules of "
        "requests.type, or as request_type in a push; a name has up to 64 letters, "
        "digits and _.:/-."
    )
    untyped = (
        "requests without a type of their own (type other) lose: 25% of the requests"
    )

    def hints(*groups: list[Observation]) -> list[tuple[str, str]]:
        judgement = judged(chain(*groups))
        return [
            (f.text, f.action)
            for f in judgement.findings
            if f.severity is Severity.HINT
        ]

    assert hints(alike(150, 82), alike(50, 38, OTHER)) == [(untyped, action)]
    first, second = hints(alike(100, 82), alike(50, 38, "rag"), alike(50, 38, OTHER))
    assert first[0].startswith("requests of type rag lose: 25% of the requests, ")
    assert second[0] == untyped
    for temperature, kind, named in (
        (1.5, OTHER, "1+"),
        (None, "chat", "unset (not in the request)"),
    ):
        ((text, _),) = hints(alike(100, 82, kind), alike(50, 38, kind, temperature))
        assert text.startswith(
            f"requests at temperature {named} lose: 33% of the requests, "
        ), (temperature, kind, named)


@pytest.mark.parametrize(
    ("gain", "between", "lose", "mixed"),
    [
        (80, 0, 20, True),
        (81, 0, 19, False),
        (20, 0, 80, True),
        (19, 0, 81, False),
        (100, 0, 0, False),
        (0, 50, 50, False),
        (20, 60, 20, True),
    ],
)
def test_mixed_means_a_fifth_gains_and_a_fifth_loses(
    gain: int, between: int, lose: int, mixed: bool
) -> None:
    """Some gain and some lose, each at least a fifth of all; requests in between belong
    to neither.
    """
    assert (
        judged([*alike(gain, 82), *alike(between, 60), *alike(lose, 38)]).mixed is mixed
    )


class TestTail:
    def test_a_share_below_the_limit_is_not_rounded_up_to_it(self) -> None:
        """A share that would be rounded to the limit is written with the digits that it
        takes.
        """
        judgement = judged([request(1249, 2500)] * 100)

        assert judgement.losing_requests_ratio == 1
        (tail,) = judgement.findings
        assert tail.text == (
            "a tenth of the requests has an acceptance of 49.9% or less (P10, limit "
            "50.0%): 100% of the "
            "requests lose"
        )

    def test_a_tenth_of_losing_requests_is_a_problem(self) -> None:
        """A tenth of the requests that lose is a problem, less is not; so by the
        operator's limits.

        A tenth below a limit above the zone of losing is none that loses.
        """
        cheap = {"disable_acceptance_ratio": 0.3, "break_even_acceptance_ratio": 0.4}
        higher = {"poor_request_acceptance_ratio": 0.7}
        for limits, counts, expected in (
            ({}, {82: 91, 38: 9}, []),
            ({}, {82: 90, 38: 10}, [True]),
            (cheap, {45: 91, 20: 9}, []),
            (cheap, {45: 90, 20: 10}, [True]),
            ({"poor_request_acceptance_ratio": 0.38}, {82: 85, 38: 15}, []),
            ({"disable_acceptance_ratio": 0.3}, {82: 85, 38: 15}, []),
            (higher, {82: 80, 60: 15, 38: 5}, []),
        ):
            requests = chain(*(alike(counts[ratio], ratio) for ratio in counts))
            findings = judged(requests, Thresholds().with_values(limits)).findings
            problems = [f.text for f in findings if f.severity is Severity.PROBLEM]
            assert ["P10" in text for text in problems] == expected, (limits, counts)
            assert len(findings) == len(problems), (limits, counts)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100),
            st.sampled_from("abc"),
            st.sampled_from([0.0, 0.6, 2.0]),
        ),
        min_size=1,
        max_size=80,
    )
)
def test_shares_add_up(requests: list[tuple[int, str, float]]) -> None:
    """Whatever comes in: groups are parts of the whole, and findings are said only of
    enough requests.
    """
    judgement = judged(
        request(a, request_type=kind, temperature=t) for a, kind, t in requests
    )
    rejected = sum(100 - accepted for accepted, *_ in requests)
    sizes = [group.requests for group in judgement.groups]
    quantiles = list(judgement.acceptance_quantiles.values())

    assert sum(sizes) == judgement.window_requests == len(requests)
    assert sizes == sorted(sizes, reverse=True)
    assert sum(group.requests_ratio for group in judgement.groups) == pytest.approx(1)
    assert sum(
        group.rejected_ratio or 0 for group in judgement.groups
    ) == pytest.approx(1 if rejected else 0)
    assert (judgement.mixed is None) is (len(requests) < 50)
    assert judgement.acceptance_ratio == pytest.approx(
        sum(a for a, *_ in requests) / len(requests) / 100
    )
    assert quantiles == sorted(quantiles)
    assert all(0 <= value <= 1 for value in quantiles)


# --- routing

#: Requests that a group needs to be judged: two fifths of those that a model needs.
LEAST = 20


def routing(*groups: list[Observation], batch: float | None = None) -> Routing | None:
    return judged(chain(*groups), batch=batch).routing


CODE = alike(60, 82, "code")
#: Groups by (requests, accepted of 100, type, temperature), and the types and
#: temperatures to send away.
GROUPS: dict[
    str, tuple[list[list[Observation]], tuple[tuple[str, ...], tuple[str, ...]] | None]
] = {
    "a type at any temperature": (
        [CODE, alike(30, 38, "chat"), alike(30, 30, "chat", HOT)],
        (("chat",), ()),
    ),
    "several types in order": (
        [CODE, alike(30, 38, "rag"), alike(30, 30, "chat")],
        (("chat", "rag"), ()),
    ),
    "a temperature, if no type loses as a whole": (
        [
            CODE,
            alike(30, 80, "chat"),
            alike(30, 38, "code", HOT),
            alike(30, 30, "chat", HOT),
        ],
        ((), ("1+",)),
    ),
    "a type rather than a temperature": (
        [CODE, alike(40, 38, "chat", HOT)],
        (("chat",), ()),
    ),
    "not the type of all others": ([CODE, alike(40, 38, OTHER)], None),
    "the others by their temperature": (
        [CODE, alike(40, 38, OTHER, HOT)],
        ((), ("1+",)),
    ),
    "none loses": ([CODE, alike(40, 50, "chat")], None),
    "all lose": ([alike(60, 38, "code"), alike(40, 30, "chat")], None),
    "all lose that can be judged": (
        [alike(60, 38, "code"), alike(LEAST - 1, 95, "chat")],
        None,
    ),
    "too few requests": ([alike(29, 82, "code"), alike(20, 38, "chat")], None),
    "just enough requests": (
        [alike(30, 82, "code"), alike(20, 38, "chat")],
        (("chat",), ()),
    ),
    "too few that lose": ([CODE, alike(LEAST - 1, 38, "chat")], None),
    "just enough that lose": ([CODE, alike(LEAST, 38, "chat")], (("chat",), ())),
    "the others would be no better": (
        [
            alike(LEAST, 55, "code"),
            alike(LEAST, 49, "chat"),
            *(alike(LEAST - 1, 5, kind) for kind in "abcd"),
        ],
        None,
    ),
}


@pytest.mark.parametrize(("groups", "expected"), GROUPS.values(), ids=GROUPS)
def test_routed_groups(
    groups: list[list[Observation]],
    expected: tuple[tuple[str, ...], tuple[str, ...]] | None,
) -> None:
    """Types of which all judged groups lose, else temperatures; none if that would not
    help.
    """
    routed = routing(*groups)
    assert (routed and (routed.request_types, routed.temperatures)) == expected


def test_a_small_group_is_routed_with_its_type() -> None:
    """A group too small to be judged goes where the judged ones of its type go."""
    routed = routing(CODE, alike(40, 38, "chat"), alike(LEAST - 1, 82, "chat", HOT))

    assert routed.request_types == ("chat",)
    assert routed.requests_ratio == (40 + LEAST - 1) / (100 + LEAST - 1)


@pytest.mark.parametrize(
    ("batch", "speedup"),
    [(8.0, (1 + 38 / 20) / PROFILE.step_cost(100 / 20, 8)), (None, None)],
)
def test_the_numbers_of_a_routing(batch: float | None, speedup: float | None) -> None:
    """60 requests accept 82 of 100 tokens, 40 accept 38; a speedup needs the load."""
    routed = routing(CODE, alike(40, 38, "chat"), batch=batch)
    assert routed.requests_ratio == 0.4
    assert routed.rejected_ratio == pytest.approx(40 * 62 / (40 * 62 + 60 * 18))
    assert (routed.acceptance_before, routed.acceptance_after) == pytest.approx(
        (0.644, 0.82)
    )
    assert routed.speedup == pytest.approx(speedup)
