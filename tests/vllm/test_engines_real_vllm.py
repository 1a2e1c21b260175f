"""Two vLLM engines behind two API servers, and one exporter beside them."""

import pytest

from support.exporter import Metrics

from .conftest import (
    COUNTERS,
    WHOLE,
    Servers,
    by,
    exporter,
    ngram,
    observe,
    wait_until_up,
)
from .server import drive

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


#: The series of vLLM that each counter passes on.
UPSTREAM = {
    "drafts_total": "vllm:spec_decode_num_drafts_total",
    "draft_tokens_total": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens_total": "vllm:spec_decode_num_accepted_tokens_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
}


def test_engines_are_apart_and_add_up_to_the_records(servers: Servers) -> None:
    """Each has vLLM's own counters and measures of its own; together they are what the
    requests recorded.
    """
    server = servers.new("target", ngram(3), "--data-parallel-size", "2")
    with server, exporter(server) as running:
        metrics_before = wait_until_up(running)
        observation = observe(running, drive(server, 16), metrics_before)
        upstream = Metrics(server.metrics())
    scrape = observation.scrape
    sums = observation.truth
    assert by(scrape, "engine", "num_speculative_tokens") == {"0": 3, "1": 3}
    published = {name: by(scrape, "engine", name) for name in COUNTERS}
    assert published == {
        name: by(upstream, "engine", series) for name, series in UPSTREAM.items()
    }
    totals = [sum(values.values()) for values in published.values()]
    assert totals == sums.counters
    positions = by(scrape, "position", "accepted_tokens_per_position_total")
    assert positions == {
        str(n): accepted for n, accepted in enumerate(sums.accepted_per_position)
    }
    for engine in ("0", "1"):
        drafts, drafted, accepted, generated = (
            published[name][engine] for name in COUNTERS
        )
        assert min(drafts, drafted, accepted, generated) > 0, engine
        labels = {"engine": engine, "window": WHOLE}
        names = ("acceptance_ratio", "mean_acceptance_length")
        measures = [scrape.value(name, **labels) for name in names]
        assert measures[0] == pytest.approx(accepted / drafted, rel=1e-9), engine
        # What the end of an answer cut off counts as accepted and not as delivered.
        counted = 1 + accepted / drafts
        assert 0.9 * counted <= measures[1] <= counted * (1 + 1e-9), engine
