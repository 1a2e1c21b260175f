"""Grouping: buckets of temperature, and label sets that do not grow without end."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from vllm_specdec_exporter.requests.grouping import OTHER, UNSET, LabelLimiter, Temperatures

#: Any bounds that the options let through, also such as differ only in their last digit.
BOUNDS = st.lists(
    st.floats(0, 4)
    | st.sampled_from([0.0, -0.0, 1e-9, 1e-300, 0.1234567, 0.1234568, 0.1234569, 1e22, 1e300]),
    min_size=1,
    max_size=40,
    unique=True,
).map(lambda bounds: tuple(sorted(bounds)))


class TestTemperatures:
    def test_by_default(self) -> None:
        """Greedy requests are by themselves, and a bound belongs to the bucket below it."""
        for bucket, temperatures in {
            "0": (0,),
            "0-0.5": (1e-9, 0.5),
            "0.5-0.7": (math.nextafter(0.5, 1), 0.7),
            "0.7-1": (0.8, 1.0),
            "1+": (math.nextafter(1, 2), 2, 1e300),
            UNSET: (None,),
        }.items():
            assert [Temperatures().bucket(t) for t in temperatures] == [bucket] * len(temperatures)

    def test_the_servers_default(self) -> None:
        """A request that names none is sampled with the server's; one that names one is not."""
        for default, bucket in ((0.0, "0"), (0.6, "0.5-0.7"), (1.5, "1+")):
            buckets = Temperatures(default=default)
            assert (buckets.bucket(None), buckets.bucket(0.1)) == (bucket, "0-0.5")

    def test_every_bucket_has_a_name(self) -> None:
        """The coolest first; bounds that are hard to tell apart are written out."""
        for bounds, names in (
            ((0.0, 0.5, 0.7, 1.0), "0 0-0.5 0.5-0.7 0.7-1 1+"),
            ((0.5, 1.0), "0-0.5 0.5-1 1+"),
            ((0.0,), "0 0+"),
            ((-0.0, 1.0), "0 0-1 1+"),
            ((1e-9,), "0-1e-09 1e-09+"),
            ((1000000.0, 12345678.0), "0-1000000 1000000-12345678 12345678+"),
            ((0.1234567, 0.1234568), "0-0.1234567 0.1234567-0.1234568 0.1234568+"),
        ):
            assert Temperatures(bounds).names == (*names.split(), UNSET)

    @given(BOUNDS)
    @example((0.1234567, 0.1234568, 0.1234569))
    def test_no_two_buckets_share_a_name(self, bounds: tuple[float, ...]) -> None:
        """Whatever the bounds: as many names as buckets, all different, and in order."""
        buckets = Temperatures(bounds)
        edges = [*bounds, math.inf]

        assert len(set(buckets.names)) == len(buckets.names) == len(bounds) + 2
        assert buckets.names == (*map(buckets.bucket, edges), UNSET)

    @given(BOUNDS, st.lists(st.floats(0, allow_nan=False), min_size=2))
    def test_a_hotter_request_is_in_no_cooler_bucket(
        self, bounds: tuple[float, ...], temperatures: list[float]
    ) -> None:
        """Two temperatures share a bucket if and only if no bound lies between them."""
        buckets = Temperatures(bounds)
        for cooler, hotter in pairwise(sorted(temperatures)):
            between = any(cooler <= bound < hotter for bound in bounds)
            places = [buckets.names.index(buckets.bucket(t)) for t in (cooler, hotter)]

            assert places == sorted(places)
            assert (places[0] != places[1]) is between


class TestLabelLimiter:
    def test_who_has_a_name(self) -> None:
        """Those that came first keep their name for good, all later ones share one.

        That one takes no place; neither do those that the operator or the API gave, whom nobody keeps out.
        """
        for admission, names, shown in (
            (LabelLimiter(2), "abcabd", ["a", "b", OTHER, "a", "b", OTHER]),
            (LabelLimiter(1), (OTHER, "a", OTHER, "b"), [OTHER, "a", OTHER, OTHER]),
            (
                LabelLimiter(1, frozenset({"chat", "rag"})),
                ("chat", "a", "b", "rag", "a"),
                ["chat", "a", OTHER, "rag", "a"],
            ),
        ):
            assert [admission.admit(name) for name in names] == shown

    def test_who_follows_another(self) -> None:
        """Names that were told apart before still are, and as many in all."""
        before, after = LabelLimiter(2), LabelLimiter(2)
        for name in "abc":
            before.admit(name)
        after.adopt(before)

        assert [after.admit(name) for name in "cba"] == [OTHER, "b", "a"]

    @given(st.lists(st.text(max_size=3)), st.integers(0, 5))
    def test_never_more(self, names: list[str], most: int) -> None:
        """However many values come, there are at most so many and one; each stays what it first was."""
        admission = LabelLimiter(most)
        first = {name: admission.admit(name) for name in names}

        assert len(set(first.values()) - {OTHER}) <= most
        assert {name: admission.admit(name) for name in names} == first
        assert all(shown in (name, OTHER) for name, shown in first.items())
