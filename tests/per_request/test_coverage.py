"""Coverage: recent requests that could not be observed, or whose labels became `other`."""

from dataclasses import replace
from html import escape

import pytest

from per_request.exact import request
from per_request.results import RESULTS
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.findings import Severity
from vllm_specdec_exporter.publish.status_page.requests import requests_section
from vllm_specdec_exporter.requests.aggregation import RequestAggregator
from vllm_specdec_exporter.requests.grouping import MOST_MODELS, MOST_TYPES, RequestSettings, Temperatures
from vllm_specdec_exporter.requests.observation import Source
from vllm_specdec_exporter.requests.result import TapResult
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED

WINDOW = RequestSettings().window_seconds


def book(
    observed: int = 0, source: Source = Source.TAP, thresholds: Thresholds | None = None
) -> RequestAggregator:
    found = RequestAggregator(RequestSettings(), thresholds or Thresholds(), (source,))
    for _ in range(observed):
        found.add(request(82), source, 0.0)
    return found


def told(found: RequestAggregator, time: float = 0.0, **unobserved: int) -> list[str]:
    result = found.result(
        time, {}, TapResult(unobserved_total={**dict.fromkeys(UNOBSERVED, 0), **unobserved})
    )
    assert {finding.severity for finding in result.findings} <= {Severity.HINT}
    return [finding.text for finding in result.findings]


class TestUnobserved:
    def test_from_a_fifth_on(self) -> None:
        """The threshold is that of requests without a record; a single defect of the tap is always told.

        Clients that disconnect, and requests that the server refuses, are no gap.
        """
        half = Thresholds().with_values({"unrecorded_requests_ratio": 0.5})
        for thresholds, unobserved, said in (
            (None, 19, False),
            (None, 20, True),
            (half, 79, False),
            (half, 80, True),
        ):
            assert bool(told(book(80, thresholds=thresholds), connection=unobserved)) is said
        assert told(book(1), aborted=1000, refused=1000) == []
        assert told(book(500), internal=1) == [
            "1 request in the last 30m met a defect of the tap, and could not be observed"
        ]

    def test_every_other_reason_has_its_remedy(self) -> None:
        """Each reason has a text; without observed requests, the others are not mentioned."""
        for reason in set(UNOBSERVED) - {"aborted", "refused"}:
            finding = book().result(0.0, {}, TapResult(unobserved_total={reason: 3})).findings[-1]
            assert finding.text.endswith(f"could not be observed ({reason} 3)")
            assert finding.action.endswith(f" ({reason}).")

    def test_lately_not_since_the_start(self) -> None:
        """Only what the tap counted within the window is reported."""
        found = book(10)

        assert told(found, 0.0, connection=90, internal=3) != []
        assert told(found, WINDOW - 61, connection=90, internal=3) != []
        assert told(found, WINDOW, connection=90, internal=3) == []
        for _ in range(10):
            found.add(request(82), Source.TAP, WINDOW)
        assert told(found, WINDOW, connection=92, internal=3) == []
        assert told(found, WINDOW, connection=93, internal=3)[0].startswith(
            "3 of 13 requests through the tap"
        )

    @pytest.mark.parametrize("seconds", [WINDOW, 600.0])
    def test_a_reload(self, seconds: float) -> None:
        """Counts are not reported twice; a new length of the window resets them."""
        before = book(10)
        first = told(before, connection=90)
        after = RequestAggregator(
            replace(RequestSettings(), window_seconds=seconds), Thresholds(), (Source.TAP,)
        )
        after.adopt(before)

        assert told(after, connection=90) == (first if seconds == WINDOW else [])


@pytest.mark.parametrize("name", ["unobserved", "crowded"])
def test_the_page_says_so_above_all_numbers(name: str) -> None:
    """Findings on all models come before the models."""
    found = RESULTS[name]
    page = str(requests_section(found, 0.0))

    assert found.findings
    for finding in found.findings:
        for text in (finding.text, finding.action):
            assert 0 < page.index(str(escape(text))) < page.index("<article")


class TestCrowded:
    def test_types(self) -> None:
        """The finding has the number of affected requests and the remedy."""
        found = book(70)
        for number in range(MOST_TYPES + 10):
            crowded = found.add(request(82, request_type=f"t{number}"), Source.PUSH, 0.0)
            assert crowded == (("type",) if number >= MOST_TYPES else ())
        (finding,) = found.result(0.0, {}).findings

        assert finding.severity is Severity.HINT
        assert finding.text == (
            "10 of 100 requests in the last 30m count as type other, because the limit of types is reached"
        )
        assert finding.action.startswith("The limit is 20 types that only clients name, in 100 groups.")
        assert found.result(WINDOW, {}).findings == ()

    def test_models(self) -> None:
        """Likewise; the type of such a request may be `other` too."""
        found = book()
        for number in range(MOST_MODELS + 1):
            crowded = found.add(
                request(82, model_name=f"m{number}", request_type=f"t{number}"), Source.PUSH, 0.0
            )
        assert crowded == ("model", "type")
        assert [finding.text for finding in found.result(0.0, {}).findings] == [
            f"1 of {MOST_MODELS + 1} requests in the last 30m count as {what} other, because the limit of "
            f"{what}s is reached"
            for what in ("type", "model")
        ]

    def test_fewer_models_where_each_has_many_groups(self) -> None:
        """Each admitted model has room for all its groups: 5 types in 26 buckets leave four models."""
        fine = replace(RequestSettings(), temperatures=Temperatures(tuple(n / 10 for n in range(24))))
        found = RequestAggregator(fine, Thresholds())
        crowded = [found.add(request(82, model_name=f"m{n}"), Source.PUSH, 0.0) for n in range(6)]

        assert crowded == [(), (), (), (), ("model",), ("model",)]
