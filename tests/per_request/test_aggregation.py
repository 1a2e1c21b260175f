"""Aggregation: counts by source, group and tenant, limits of labels, and what a reload
keeps.
"""

from collections.abc import Iterable
from itertools import product
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from per_request.exact import counters, real_records, record, request, steps, totals
from support.builders import final_answer, requests
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.per_request.acceptance import BatchCost
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import (
    MAX_CLIENT_GROUPS,
    MAX_MODELS,
    MAX_TYPES,
    OTHER,
    Classification,
    RequestSettings,
    Temperatures,
    parse_rule,
)
from vllm_specdec_exporter.per_request.observation import (
    Observation,
    RecordState,
    Source,
)
from vllm_specdec_exporter.per_request.recent_window import MAX_WORST, SLICES
from vllm_specdec_exporter.per_request.records import DraftRecord
from vllm_specdec_exporter.per_request.routes import ROUTES
from vllm_specdec_exporter.per_request.summary import GroupResult, RequestsResult

TENANTS = RequestSettings(
    classification=Classification(tenants=frozenset({"acme", "globex"}))
)


def book(
    *observations: Observation, settings: RequestSettings = TENANTS, time: float = 0.0
) -> RequestAggregator:
    aggregator = RequestAggregator(settings, Thresholds(), (Source.TAP,))
    for observation in observations:
        aggregator.add(observation, Source.TAP, time)
    return aggregator


def reloaded(
    previous: RequestAggregator,
    settings: RequestSettings = TENANTS,
    thresholds: Thresholds | None = None,
) -> RequestAggregator:
    aggregator = RequestAggregator(settings, thresholds or Thresholds(), (Source.TAP,))
    aggregator.adopt(previous)
    return aggregator


def judged_requests(groups: Iterable[GroupResult]) -> int:
    return sum(map(sum, (group.outcomes.values() for group in groups)))


def result(
    *observations: Observation, settings: RequestSettings = TENANTS
) -> RequestsResult:
    return book(*observations, settings=settings).result(0.0, {})


class TestCounting:
    def test_by_source_and_record(self) -> None:
        """Each request is counted once, by its source and record; all combinations
        start at 0.
        """
        aggregator = RequestAggregator(TENANTS, Thresholds(), (Source.TAP, Source.PUSH))
        detailed = request(0, record=record([(4, 2)]))
        for observation in (detailed, detailed, request(50), request(0, record=None)):
            aggregator.add(observation, Source.TAP, 0.0)
        for observation in (request(0, 0, 0), request(0, record=None, malformed=True)):
            aggregator.add(observation, Source.PUSH, 0.0)
        counted = {
            (o.source, o.record): o.requests
            for o in aggregator.result(0.0, {}).observations
        }

        assert counted == {
            **dict.fromkeys(product(("tap", "push"), RecordState), 0),
            ("tap", "detailed"): 2,
            ("tap", "summary"): 1,
            ("tap", "none"): 1,
            ("push", "not_drafted"): 1,
            ("push", "malformed"): 1,
        }

    def test_groups(self) -> None:
        """By model, bucket of temperature and type, in order."""
        first, second, third = result(
            request(82, temperature=0.6, completion_tokens=100),
            request(38, temperature=0.7, completion_tokens=30),
            request(82, request_type="code"),
            request(60, model_name="a", temperature=None),
        ).groups

        assert first.model_name == "a"
        assert first.temperature == "unset"
        assert first.request_type == "chat"
        assert second.model_name == "m"
        assert second.temperature == "0"
        assert second.request_type == "code"
        assert third.model_name == "m"
        assert third.temperature == "0.5-0.7"
        assert third.request_type == "chat"
        assert third.outcomes == {"loses": 1, "break_even": 0, "gains": 1}
        assert third.generation_tokens == {"loses": 30, "break_even": 0, "gains": 100}
        assert third.drafts == 40
        assert third.draft_tokens == 200
        assert third.accepted_tokens == 120

    @pytest.mark.parametrize("nothing", [None, DraftRecord(0, 0, 0), totals(0, 0, 4)])
    def test_requests_without_drafts(self, nothing: DraftRecord | None) -> None:
        """They have times, but no outcome; they are not judged, and their tenant is not
        counted.
        """
        published = result(
            request(
                0, record=nothing, tenant="acme", completion_tokens=7, ttft_seconds=0.1
            )
        )
        (group,) = published.groups
        assert group.time_to_first_token_seconds is not None
        assert not any((*group.outcomes.values(), *group.generation_tokens.values()))
        assert [model.window_requests for model in published.models] in ([], [0])
        assert published.tenants == ()

    def test_judgement_is_cached_for_a_second(self) -> None:
        """Counters are always current; the judgement, which is slower, at most a second
        old.
        """
        aggregator = book(request(82))
        first = aggregator.result(10.0, {})
        aggregator.add(request(38), Source.TAP, 10.0)
        same = aggregator.result(10.9, {})
        later = aggregator.result(11.0, {})

        assert [judged_requests(r.groups) for r in (first, same, later)] == [1, 2, 2]
        assert [r.models[0].window_requests for r in (first, same, later)] == [1, 1, 2]
        aggregator.add(request(38), Source.TAP, 11.0)
        assert aggregator.result(5.0, {}).models[0].window_requests == 3

    def test_an_empty_window(self) -> None:
        """Without traffic there is no judgement; counters stay."""
        aggregator = book(request(0, record=record([(4, 2)] * 5)))
        aggregator.result(0.0, {})
        (model,) = aggregator.result(1e6, {}).models

        assert model.window_requests == 0
        assert model.acceptance_quantiles == {}
        assert model.acceptance_ratio is None
        assert model.losing_requests_ratio is None
        assert model.mixed is None
        assert model.groups == ()
        assert model.worst == ()
        assert model.drafted_per_position == (5,) * 4
        assert model.accepted_per_position == (5, 5, 0, 0)
        assert [finding.text for finding in model.findings] == [
            (
                "0 requests in the last 30m had something drafted, 50 are needed to "
                "judge them one by one"
            )
        ]


@pytest.mark.parametrize("scenario", ["ngram-phases", "dp2"])
def test_sums_equal_those_of_a_real_server(scenario: str) -> None:
    """Over all groups and positions, the counts of requests equal the counters in
    /metrics.
    """
    engines = [engine.counters for engine in read(final_answer(scenario)).engines]
    answered = [*zip(real_records(scenario), requests(scenario), strict=True)]
    published = result(
        *(
            request(
                0,
                record=each,
                temperature=row["temperature"],
                completion_tokens=row["usage"]["completion_tokens"],
                ttft_seconds=row["ttft"],
            )
            for each, row in answered
        )
    )
    (model,) = published.models
    undrafted = [
        row["usage"]["completion_tokens"]
        for each, row in answered
        if not each.draft_tokens
    ]
    generated = sum(map(attrgetter("generation_tokens"), engines))
    times = [g.time_to_first_token_seconds for g in published.groups]

    for counter in ("drafts", "draft_tokens", "accepted_tokens"):
        counted = attrgetter(counter)
        assert sum(map(counted, published.groups)) == sum(map(counted, engines)), (
            counter
        )
    tokens = (sum(group.generation_tokens.values()) for group in published.groups)
    assert sum(tokens) == generated - sum(undrafted)
    assert judged_requests(published.groups) == len(answered) - len(undrafted)
    assert sum(model.drafted_per_position) == sum(
        map(attrgetter("draft_tokens"), engines)
    )
    positions = map(attrgetter("accepted_tokens_per_position"), engines)
    assert model.accepted_per_position == tuple(map(sum, zip(*positions, strict=True)))
    assert sum(time.count for time in times if time) == len(answered)


class TestNames:
    def test_models_and_types_that_overflow(self) -> None:
        """The first keep their names, later ones are `other`, for groups, models and
        tenants.
        """
        detailed = request(82, tenant="acme", record=record([(4, 3)] * 5))
        many = [
            replace(detailed, model_name=f"m{n}", request_type=f"t{n}")
            for n in range(30)
        ]
        aggregator = book(*many, *many)
        names = {OTHER, *map("m{}".format, range(MAX_MODELS))}
        published = aggregator.result(0.0, {})

        assert {group.model_name for group in published.groups} == names
        assert {model.model_name for model in published.models} == names
        assert {tenant.model_name for tenant in published.tenants} == names
        assert set(aggregator.shapes(0.0)) == names
        assert {g.request_type for g in published.groups} == {
            OTHER,
            *map("t{}".format, range(MAX_TYPES)),
        }
        others = [group for group in published.groups if group.model_name == OTHER]
        assert judged_requests(others) == 20
        (model,) = (each for each in published.models if each.model_name == OTHER)
        assert model.window_requests == 20

    def test_types_of_rules_and_routes_are_always_admitted(self) -> None:
        """Many types named by clients do not displace those of rules and routes."""
        ruled = replace(
            TENANTS,
            classification=Classification(rules=(parse_rule("code=field:tools"),)),
        )
        heats = (0.0, 0.3, 0.6, 0.9, 1.5, None)
        admitted = ("code", *ROUTES.values())
        junk = list(map("junk{}".format, range(40)))
        sent = [
            request(82, request_type=kind, temperature=temperature)
            for kind, temperature in product((*junk, *admitted), heats)
        ]
        groups = {
            (g.temperature, g.request_type)
            for g in result(*sent, settings=ruled).groups
        }

        buckets = map(Temperatures().bucket, heats)
        assert set(product(buckets, admitted)) <= groups
        assert {kind for _, kind in groups} <= {OTHER, *admitted, *junk[:MAX_TYPES]}

    def test_groups_that_overflow(self) -> None:
        """Above the limit of groups with types that only clients name, the type is
        `other`.
        """
        buckets = replace(
            TENANTS, temperatures=Temperatures(tuple(n / 10 for n in range(16)))
        )
        many = [
            request(82, model_name=model, request_type=kind, temperature=n / 10)
            for n, model, kind in product(range(17), "ab", "xyz")
        ]
        published = book(*many, *many, settings=buckets).result(0.0, {})
        others = {
            (g.model_name, g.temperature)
            for g in published.groups
            if g.request_type == OTHER
        }

        assert (
            sum(group.request_type != OTHER for group in published.groups)
            == MAX_CLIENT_GROUPS
            < len(many)
        )
        assert others == {("b", "1.5+")}
        assert judged_requests(published.groups) == 2 * len(many)

    def test_tenants(self) -> None:
        """Configured ones by name, others as `other`; requests without a tenant are not
        counted.
        """
        published = result(
            request(82, tenant="acme", completion_tokens=108),
            request(38, tenant="ada@example.org"),
            request(38, tenant="bob"),
            request(38, tenant=""),
        )

        assert {t.tenant: sum(t.outcomes.values()) for t in published.tenants} == {
            "acme": 1,
            OTHER: 2,
        }
        assert published.tenants[0].draft_tokens == 100
        assert published.tenants[0].accepted_tokens == 82
        assert published.tenants[0].generation_tokens == {
            "loses": 0,
            "break_even": 0,
            "gains": 108,
        }
        assert "ada" not in repr(published)

    def test_requests_gain_by_what_reached_their_answer(self) -> None:
        """Of an answer of 2 tokens a draft gives the second one, whatever was
        accepted.
        """
        (short,) = result(request(82, completion_tokens=2)).groups
        (long,) = result(request(82, completion_tokens=108)).groups
        assert (short.outcomes["loses"], short.accepted_tokens) == (1, 82)
        assert long.outcomes["gains"] == 1


def test_load_of_a_model() -> None:
    """A model is judged at the load of its own server, an adapter at that of the only
    one; else at none.
    """
    profile = for_method("draft_model")

    def speedups(**batches: float) -> list[float | None]:
        loads = {model: BatchCost(batch, profile) for model, batch in batches.items()}
        published = book(request(82), request(82, model_name="adapter")).result(
            0.0, loads
        )
        return [model.groups[0].estimated_speedup for model in published.models]

    four, sixty_four = (5.1 / profile.step_cost(5, batch) for batch in (4, 64))
    assert speedups(m=4, adapter=64) == pytest.approx([sixty_four, four])
    assert speedups(base=4) == pytest.approx([four, four])
    assert speedups(a=4, b=8) == speedups() == [None, None]


#: Settings of which a reload changes how requests are grouped or judged, or nothing.
CHANGES = {
    "window": replace(TENANTS, window_seconds=600.0),
    "default temperature": replace(TENANTS, temperatures=Temperatures(default=1.0)),
    "types": replace(
        TENANTS,
        classification=replace(
            TENANTS.classification, rules=(parse_rule("x=model:*"),)
        ),
    ),
    "tenants": replace(
        TENANTS, classification=Classification(tenants=frozenset({"initech"}))
    ),
    "nothing": TENANTS,
}


class TestReload:
    SEEN = (
        request(
            82, record=record([(4, 4), (4, 1)] * 5), tenant="acme", completion_tokens=35
        ),
        request(
            38, request_type="rag", temperature=1.2, ttft_seconds=0.2, tpot_seconds=0.1
        ),
        request(0, record=None),
    )

    @pytest.mark.parametrize("change", CHANGES)
    def test_counters_and_the_window_after_a_change(self, change: str) -> None:
        """They continue, unless requests are grouped in another way: then they start
        anew.

        Observations by source and rejected pushes are not grouped, so they always
        continue.
        """
        previous = book(*self.SEEN)
        previous.push_rejected_total = 4
        expected = previous.result(0.0, {})
        aggregator = reloaded(previous, CHANGES[change])
        published = aggregator.result(0.0, {})

        assert published.observations == expected.observations
        assert published.push_rejected_total == 4
        if change == "nothing":
            assert published == expected
        else:
            assert published.groups == ()
            assert published.tenants == ()
            assert published.models == ()
        for observation in self.SEEN:
            aggregator.add(observation, Source.TAP, 0.0)
        (model,) = aggregator.result(10.0, {}).models
        assert model.window_requests == (4 if change == "nothing" else 2)
        assert model.window == ("10m" if change == "window" else "30m")

    @pytest.mark.parametrize(
        ("threshold", "value", "kept"),
        [
            ("disable_acceptance_ratio", 0.3, []),
            ("break_even_acceptance_ratio", 0.9, []),
            ("minimum_requests", 2, [2]),
            ("poor_request_acceptance_ratio", 0.2, [2]),
            ("mixed_requests_ratio", 0.4, [2]),
        ],
    )
    def test_other_thresholds(
        self, threshold: str, value: float, kept: list[int]
    ) -> None:
        """Other zones start anew; other limits judge the same requests."""
        thresholds = Thresholds().with_values({threshold: value})
        models = (
            reloaded(book(*self.SEEN), thresholds=thresholds).result(0.0, {}).models
        )
        assert [model.window_requests for model in models] == kept


# --- any requests and any reloads


#: Names as clients send them: of a few, of ever new ones, and of such as break labels.
NAMES = (
    st.sampled_from(
        [
            "",
            "m",
            "chat",
            "acme",
            OTHER,
            "unset",
            "0",
            'a"b',
            "a\nb",
            "x" * 500,
            "\ud800",
            "é",
        ]
    )
    | st.integers(0, 60).map("n{}".format)
    | st.text(max_size=6)
)
NAMED_TENANTS = ("acme", "globex", "n7", "é")
RECORDS = (
    st.none()
    | steps(k=4, most=12).map(record)
    | st.integers(1, 500).flatmap(
        lambda d: st.builds(totals, st.integers(0, d), st.just(d))
    )
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
    classification=st.sets(st.sampled_from(NAMED_TENANTS)).map(
        lambda t: Classification(tenants=frozenset(t))
    ),
    temperatures=st.sampled_from(
        [Temperatures(), Temperatures((0.5,)), Temperatures((0.0, 1.0), 0.7)]
    ),
    window_seconds=st.sampled_from([60.0, 1800.0]),
)
THRESHOLDS = st.sampled_from([Thresholds(), Thresholds(disable_acceptance_ratio=0.2)])
#: Names of all buckets that the settings above have.
BUCKETS = {"0", "0-0.5", "0.5-0.7", "0.7-1", "1+", "0.5+", "0-1", "unset"}


class Reloading(RuleBasedStateMachine):
    """A book that is filled, asked, and replaced by one with other settings, in any
    order.
    """

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
            renamed = replace(
                observation, model_name=name, request_type=name, tenant=name
            )
            self.observe(renamed, Source.TAP)

    @rule(seconds=st.floats(0, 4000))
    def wait(self, seconds: float) -> None:
        self.time += seconds

    @rule(count=st.integers(0, 3))
    def reject(self, count: int) -> None:
        self.book.push_rejected_total += count

    @rule(new=SETTINGS, thresholds=THRESHOLDS)
    def reload(self, new: RequestSettings, thresholds: Thresholds) -> None:
        successor = RequestAggregator(new, thresholds, (Source.TAP,))
        successor.adopt(self.book)
        if (new, thresholds) != (self.book.settings, self.book.thresholds):
            self.before = {}  # the counts start anew
        self.book = successor
        self.tenants |= new.classification.tenants

    @invariant()
    def counters_never_fall_and_names_are_bounded(self) -> None:
        published = self.book.result(self.time, {})
        counted = counters(published)
        for labels, value in self.before.items():
            assert counted[labels] >= value, labels
        self.before = counted
        assert sum(row.requests for row in published.observations) == self.seen

        models = {model.model_name for model in published.models} | {
            group.model_name for group in published.groups
        }
        types = {group.request_type for group in published.groups}
        always_admitted = {OTHER, *ROUTES.values()}
        assert len(models - {OTHER}) <= MAX_MODELS
        assert len(types - always_admitted) <= MAX_TYPES
        assert (
            sum(group.request_type not in always_admitted for group in published.groups)
            <= MAX_CLIENT_GROUPS
        )
        assert all(len(name) <= 256 and name.isprintable() for name in models | types)
        assert {group.temperature for group in published.groups} <= BUCKETS
        assert {tenant.tenant for tenant in published.tenants} <= self.tenants
        assert {tenant.model_name for tenant in published.tenants} <= models

        for name, window in self.book._windows.items():
            parts = window._until(self.time)
            assert len(parts) <= SLICES, name
            assert len(window.since_start.steps) <= 15, name
            assert max((len(part.worst) for part in parts), default=0) <= MAX_WORST, (
                name
            )
        assert all(len(model.worst) <= MAX_WORST for model in published.models)


TestReloading = Reloading.TestCase
TestReloading.settings = settings(stateful_step_count=20)
