"""Any requests and any reloads: counters never fall, labels and memory are bounded."""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from per_request.exact import counters, record, request, steps, totals
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import (
    MAX_CLIENT_GROUPS,
    MAX_MODELS,
    MAX_TYPES,
    OTHER,
    Classification,
    RequestSettings,
    Temperatures,
)
from vllm_specdec_exporter.per_request.observation import ROUTES, Source
from vllm_specdec_exporter.per_request.recent_window import MAX_WORST, SLICES

#: Names as clients send them: of a few, of ever new ones, and of such as break labels.
NAMES = (
    st.sampled_from(["", "m", "chat", "acme", OTHER, "unset", "0", 'a"b', "a\nb", "x" * 500, "\ud800", "é"])
    | st.integers(0, 60).map("n{}".format)
    | st.text(max_size=6)
)
TENANTS = ("acme", "globex", "n7", "é")
RECORDS = (
    st.none()
    | steps(k=4, most=12).map(record)
    | st.integers(1, 500).flatmap(lambda d: st.builds(totals, st.integers(0, d), st.just(d)))
)
OBSERVATIONS = st.builds(
    request,
    st.just(0),
    record=RECORDS,
    model_name=NAMES,
    request_type=NAMES,
    tenant=NAMES,
    temperature=st.none() | st.floats(0, 3),
    completion_tokens=st.none() | st.integers(0, 5000),
    ttft_seconds=st.none() | st.floats(0, 100),
    tpot_seconds=st.none() | st.floats(0, 1),
    malformed=st.booleans(),
)
SETTINGS = st.builds(
    RequestSettings,
    classification=st.sets(st.sampled_from(TENANTS)).map(lambda t: Classification(tenants=frozenset(t))),
    temperatures=st.sampled_from([Temperatures(), Temperatures((0.5,)), Temperatures((0.0, 1.0), 0.7)]),
    window_seconds=st.sampled_from([60.0, 1800.0]),
)
THRESHOLDS = st.sampled_from([Thresholds(), replace(Thresholds(), disable_acceptance_ratio=0.2)])
#: Names of all buckets that the settings above have.
BUCKETS = {"0", "0-0.5", "0.5-0.7", "0.7-1", "1+", "0.5+", "0-1", "unset"}


class Reloading(RuleBasedStateMachine):
    """A book that is filled, asked, and replaced by one with other settings, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.book = RequestAggregator(RequestSettings(), Thresholds(), (Source.TAP,))
        self.before: dict[Any, float] = {}
        self.seen = 0
        self.tenants = {OTHER}

    @rule(observation=OBSERVATIONS, source=st.sampled_from([Source.TAP, Source.PUSH]))
    def observe(self, observation: Any, source: Source) -> None:
        self.book.add(observation, source, self.time)
        self.seen += 1

    @rule(observation=OBSERVATIONS, first=st.integers(0, 60))
    def flood(self, observation: Any, first: int) -> None:
        for number in range(first, first + 25):
            name = f"n{number}"
            one = replace(observation, model_name=name, request_type=name, tenant=name)
            self.observe(one, Source.TAP)

    @rule(seconds=st.floats(0, 4000))
    def wait(self, seconds: float) -> None:
        self.time += seconds

    @rule(count=st.integers(0, 3))
    def reject(self, count: int) -> None:
        self.book.push_rejected_total += count

    @rule(new=SETTINGS, thresholds=THRESHOLDS)
    def reload(self, new: RequestSettings, thresholds: Thresholds) -> None:
        after = RequestAggregator(new, thresholds, (Source.TAP,))
        after.adopt(self.book)
        if (new, thresholds) != (self.book.settings, self.book.thresholds):
            self.before = {}  # the counts start anew
        self.book = after
        self.tenants |= new.classification.tenants

    @invariant()
    def counters_never_fall_and_names_are_bounded(self) -> None:
        found = self.book.result(self.time, {})
        counted = counters(found)
        for place, value in self.before.items():
            assert counted[place] >= value, place
        self.before = counted
        assert sum(one.requests for one in found.observations) == self.seen

        models = {model.model_name for model in found.models} | {group.model_name for group in found.groups}
        types = {group.request_type for group in found.groups}
        own = {OTHER, *ROUTES.values()}
        assert len(models - {OTHER}) <= MAX_MODELS
        assert len(types - own) <= MAX_TYPES
        assert sum(group.request_type not in own for group in found.groups) <= MAX_CLIENT_GROUPS
        assert all(len(name) <= 256 and name.isprintable() for name in models | types)
        assert {group.temperature for group in found.groups} <= BUCKETS
        assert {tenant.tenant for tenant in found.tenants} <= self.tenants
        assert {tenant.model_name for tenant in found.tenants} <= models

        for window in self.book._windows.values():
            parts = window._until(self.time)
            assert len(parts) <= SLICES
            assert len(window.since_start.steps) <= 15
            assert all(len(part.worst) <= MAX_WORST for part in parts)
        assert all(len(model.worst) <= MAX_WORST for model in found.models)


TestReloading = Reloading.TestCase
TestReloading.settings = settings(stateful_step_count=20)


def sizes(book: RequestAggregator) -> dict[str, int]:
    """How much of everything a book holds."""
    windows = [part for window in book._windows.values() for _, part in window._slices]
    return {
        "groups": len(book._totals),
        "tenants": len(book._tenants),
        "models": len(book._windows),
        "steps": sum(len(window.since_start.steps) for window in book._windows.values()),
        "slices": len(windows),
        "groups of slices": sum(len(part.groups) for part in windows),
        "ratios": sum(len(group.ratios) for part in windows for group in part.groups.values()),
        "worst": sum(len(part.worst) for part in windows),
    }


def test_it_holds_no_more_of_more_requests() -> None:
    """Once every group was seen in every slice, further requests and further names take no room."""
    settings = RequestSettings(classification=Classification(tenants=frozenset(TENANTS)))
    book = RequestAggregator(settings, Thresholds(), (Source.TAP,))
    # After so many requests everything below has come round, slices of the window too.
    period = 97 * 60
    kept = []
    for number in range(3 * period):
        name = f"n{number % 97}" if number < 2 * period else f"new{number}"
        one = request(
            0,
            model_name=name,
            request_type=name,
            tenant=name,
            temperature=(0.0, 2.0)[number % 2],
            record=record([(4, number % 5), (2, number % 3)] * 3),
        )
        book.add(one, Source.TAP, number * 0.5)
        if (number + 1) % period == 0:
            kept.append(sizes(book))

    assert kept[0] == kept[1]
    assert all(kept[2][what] <= held for what, held in kept[1].items())
    models = MAX_MODELS + 1  # with `other`
    assert [kept[1][what] for what in ("models", "groups", "tenants")] == [models, 2 * models, models]
