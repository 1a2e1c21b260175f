"""Measures: by hand, against the drafts behind the counters, and in their ranges."""

import math
from itertools import accumulate, pairwise
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import Draft, count, drafts_of, increase, sample, torn_lives
from support.copies import replace
from vllm_specdec_exporter.economics.statistics import CLUSTERING
from vllm_specdec_exporter.measures.history import Delta, Sample, delta
from vllm_specdec_exporter.measures.measures import Measures, derive, derive_lifetime

#: What drafts of K tokens were accepted, and K.
some_drafts = st.integers(1, 6).flatmap(
    lambda k: st.tuples(st.just(k), drafts_of(k, least=1))
)

torn_increases = torn_lives().map(
    lambda life: (
        delta(Sample(0, life[0]), Sample(5, life[-1])) if len(life) > 1 else increase(0)
    )
)


def counted(
    drafts: list[Draft], k: int, *, span: float = 10.0, plain_tokens: int = 0
) -> Delta:
    """What happens in a window in which an engine makes exactly these drafts."""
    end = Sample(span, count(drafts, k, plain_tokens=plain_tokens))
    return delta(sample(0, 0), end)


class TestByHand:
    def test_a_window(self) -> None:
        """Every measure of 100 drafts of 4 tokens in 10 seconds, computed by hand."""
        expected = Measures(
            window="30s",
            span_seconds=10.0,
            drafts=100,
            acceptance_ratio=0.5,
            mean_acceptance_length=3.0,
            mean_acceptance_length_error=pytest.approx(
                (CLUSTERING * 2 / 100) ** 0.5
            ),  # 0 to 4 accepted, equally likely
            position_acceptance_ratio=(0.8, 0.6, 0.4, 0.2),
            position_conditional_acceptance_ratio=(
                0.8,
                pytest.approx(0.75),
                pytest.approx(2 / 3),
                pytest.approx(0.5),
            ),
            expected_tokens_per_step=pytest.approx(3.0),
            mean_acceptance_length_at=pytest.approx((1.8, 2.4, 2.8, 3.0)),
            mean_draft_length=4.0,
            position_decay_ratio=pytest.approx((0.75 * 2 / 3 * 0.5) ** (1 / 3)),
            coverage_ratio=0.75,
            undelivered_ratio=0.0,
            drafts_per_second=10.0,
            draft_tokens_per_second=40.0,
            accepted_tokens_per_second=20.0,
            generation_tokens_per_second=40.0,
        )

        assert expected == derive(
            "30s", increase(100, [80, 60, 40, 20], generation=400)
        )

    @given(some_drafts)
    def test_the_error_without_positions_is_never_less_than_with_them(
        self, some: tuple[int, list[Draft]]
    ) -> None:
        """It is as large as that of as many full drafts of which all tokens or none are
        accepted.
        """
        k, drafts = some
        shown = counted([(k, accepted) for _, accepted in drafts], k)
        hidden = derive("30s", replace(shown, accepted_tokens_per_position=()))
        assert (
            hidden.mean_acceptance_length_error
            >= derive("30s", shown).mean_acceptance_length_error - 1e-9
        )
        every = sum(accepted for _, accepted in drafts) / len(drafts)
        largest = (CLUSTERING * every * (k - every) / len(drafts)) ** 0.5
        assert hidden.mean_acceptance_length_error == pytest.approx(largest, abs=1e-6)

    @pytest.mark.parametrize(
        ("positions", "decay"),
        [
            ([90, 85, 78, 70], (70 / 90) ** (1 / 3)),
            ([40, 15, 5, 1], (1 / 40) ** (1 / 3)),
            ([50, 50], 1.0),
            ([50, 0], 0.0),
            ([50, 0, 0, 0], 0.0),
            ([50], None),
            ([0, 0, 0], None),
            ([], None),
        ],
    )
    def test_decay(self, positions: list[float], decay: float | None) -> None:
        """The decay is the geometric mean of the conditional ratios behind position 0
        that exist.
        """
        measured = derive("5m", increase(100, positions)).position_decay_ratio
        assert measured == pytest.approx(decay)


#: Increases, and what follows from them where something is 0 or not known.
INCOMPLETE: dict[str, tuple[Delta, dict[str, object]]] = {
    "tokens without drafts are no part of speculation": (
        increase(0, [0, 0], generation=50),
        {
            "coverage_ratio": 0.0,
            "acceptance_ratio": None,
            "generation_tokens_per_second": 5.0,
        },
    ),
    "there is no share of no generated tokens": (
        increase(10, [5], generation=0),
        {"coverage_ratio": None},
    ),
    (
        "without draft tokens there is no ratio, and no length of drafts, let alone "
        "one of 0"
    ): (
        replace(increase(100, [80, 60]), draft_tokens=None),
        {
            "acceptance_ratio": None,
            "mean_draft_length": None,
            "draft_tokens_per_second": None,
            "drafts_vary": False,
            "mean_acceptance_length": pytest.approx(2.4),
        },
    ),
    (
        "without accepted tokens nothing is said of acceptance, least of all that "
        "there was none"
    ): (
        replace(increase(100, [80, 60]), accepted_tokens=None),
        {
            "acceptance_ratio": None,
            "mean_acceptance_length": None,
            "coverage_ratio": None,
            "accepted_tokens_per_second": None,
            "position_acceptance_ratio": (0.8, 0.6),
        },
    ),
    (
        "where nothing was drafted there is no conditional ratio, and of no drafts "
        "none at all"
    ): (
        replace(increase(0, [0, 0]), drafted_tokens_per_position=(0, 0)),
        {"position_acceptance_ratio": (), "position_conditional_acceptance_ratio": ()},
    ),
    "where no draft got there is no conditional ratio, not one of 0": (
        increase(10, [5, 0, 0]),
        {"position_conditional_acceptance_ratio": (0.5, 0.0, None)},
    ),
    "without position series the totals still tell ratio and length": (
        increase(10, [], draft_tokens=40, accepted=20),
        {
            "acceptance_ratio": 0.5,
            "mean_acceptance_length": 3.0,
            "expected_tokens_per_step": None,
            "mean_acceptance_length_at": (),
        },
    ),
    "a span of 0 has no rates": (
        increase(10, [5], span=0),
        {"drafts_per_second": None},
    ),
    "what was not drafted does not vary": (increase(0, [0, 0]), {"drafts_vary": False}),
    **{
        f"{tokens} draft tokens of 400: below 95 % of K drafts vary": (
            increase(100, [9, 5, 2, 1], draft_tokens=tokens),
            {"drafts_vary": vary},
        )
        for tokens, vary in ((400, False), (380, False), (379, True), (0, True))
    },
}


class TestWhatIsNotKnown:
    @pytest.mark.parametrize(
        ("happened", "expected"), INCOMPLETE.values(), ids=INCOMPLETE
    )
    def test_increases(self, happened: Delta, expected: dict[str, object]) -> None:
        measures = derive("30s", happened)
        assert {name: getattr(measures, name) for name in expected} == expected

    def test_nothing_happened(self) -> None:
        """Without drafts no ratio exists; every rate and the sample size are zero."""
        fields = Measures.__struct_fields__
        rates = {name: 0.0 for name in fields if name.endswith("_per_second")}
        nothing = replace(
            increase(0, [0, 0]), prefix_cache_queries=0.0, prefix_cache_hits=0.0
        )

        assert derive("30s", nothing) == Measures("30s", 10.0, 0.0, **rates)

    def test_drafts_are_not_known(self) -> None:
        """Without a series of drafts (V0, or no speculation) nothing is claimed of
        their share.
        """
        expected = Measures("30s", 10.0, drafts=0.0, generation_tokens_per_second=0.7)

        assert derive("30s", increase(generation=7)) == expected


@pytest.mark.parametrize(
    ("acceptance", "efficiency", "k", "ratio", "length"),
    [
        (0.6, 0.5, 5, 0.6, 3.0),
        (0.6, 0.5, None, 0.6, None),
        (None, 0.5, 3, None, 2.0),
        (0.0, 0.0, 3, 0, 1.0),
        (1.2, 1.2, 3, 1, 4.0),
        (None, None, 3, None, None),
    ],
)
def test_v0s_efficiency_is_the_share_of_the_k_plus_1_tokens_of_a_draft(
    acceptance: float | None,
    efficiency: float | None,
    k: int | None,
    ratio: float | None,
    length: float | None,
) -> None:
    assert derive_lifetime(acceptance, efficiency, k) == Measures(
        "lifetime", acceptance_ratio=ratio, mean_acceptance_length=length
    )


@given(some_drafts, st.integers(0, 100), st.floats(0.5, 1000))
def test_every_measure_is_that_of_the_drafts_behind_it(
    case: tuple[int, list[Draft]], plain: int, span: float
) -> None:
    """Every measure, for any drafts of any length; at a smaller K' they are cut to K'
    tokens.
    """
    k, drafts = case
    measures = derive("5m", counted(drafts, k, span=span, plain_tokens=plain))

    n = len(drafts)
    lengths = [1 + accepted for _, accepted in drafts]

    def length_at(shorter: int) -> float:
        return sum(1 + min(accepted, shorter) for _, accepted in drafts) / n

    def reaching(position: int) -> int:
        return sum(accepted > position for _, accepted in drafts)

    cut = [length_at(shorter) for shorter in range(1, k + 1)]
    products = accumulate(
        (r or 0.0 for r in measures.position_conditional_acceptance_ratio), mul
    )
    assert pytest.approx(cut) == list(measures.mean_acceptance_length_at)
    assert (
        pytest.approx(measures.mean_acceptance_length)
        == measures.expected_tokens_per_step
    )
    assert pytest.approx(list(products)) == list(measures.position_acceptance_ratio)
    reached = [reaching(position) for position in range(k)]
    conditional = [
        there / earlier if earlier else None
        for earlier, there in pairwise([n, *reached])
    ]
    assert n == measures.drafts
    assert pytest.approx(sum(lengths) / n) == measures.mean_acceptance_length
    assert (
        pytest.approx(sum(length for length, _ in drafts) / n)
        == measures.mean_draft_length
    )
    assert (
        pytest.approx(
            sum(accepted for _, accepted in drafts)
            / sum(length for length, _ in drafts)
        )
        == measures.acceptance_ratio
    )
    assert pytest.approx([r / n for r in reached]) == list(
        measures.position_acceptance_ratio
    )
    assert pytest.approx(conditional) == list(
        measures.position_conditional_acceptance_ratio
    )
    assert (
        pytest.approx(sum(lengths) / (sum(lengths) + plain)) == measures.coverage_ratio
    )
    assert pytest.approx(n / span) == measures.drafts_per_second
    assert (
        pytest.approx((sum(lengths) + plain) / span)
        == measures.generation_tokens_per_second
    )


@given(torn_increases)
def test_whatever_the_counters_say_a_measure_stays_in_its_range(
    happened: Delta,
) -> None:
    """Torn or not: ratios from 0 to 1, lengths from 1 to K + 1 that rise with K ever
    less, finite rates.
    """
    m = derive("5m", happened)
    k = len(happened.accepted_tokens_per_position)
    ratios = [m.acceptance_ratio, m.coverage_ratio, m.position_decay_ratio]
    ratios += [*m.position_acceptance_ratio, *m.position_conditional_acceptance_ratio]
    assert all(0 <= ratio <= 1 for ratio in ratios if ratio is not None), m
    rates = [m.drafts_per_second, m.draft_tokens_per_second]
    rates += [m.accepted_tokens_per_second, m.generation_tokens_per_second]
    assert all(0 <= rate < math.inf for rate in rates if rate is not None), m
    gains = [
        longer - shorter
        for shorter, longer in pairwise((1.0, *m.mean_acceptance_length_at))
    ]
    assert all(gain >= 0 for gain in gains)
    assert all(b <= a + 1e-9 for a, b in pairwise(gains))
    if k:
        lengths = [m.mean_acceptance_length, m.expected_tokens_per_step]
        assert all(1 <= n <= k + 1 + 1e-9 for n in lengths if n is not None), m
        assert m.mean_draft_length is None or 0 <= m.mean_draft_length <= k
