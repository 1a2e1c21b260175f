"""Panels of histograms in a Prometheus 3 that converts them into native ones: what
shows the same, and what the page says is missing.

Three jobs scrape one server, each into a namespace: classic histograms, converted ones,
and both.
"""

import math
import re
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from alerts.lint.bundle import names, selector_name
from alerts.lint.series import SPELLINGS
from dashboards.test_queries import QUERIES, Query
from scaling.servers import all_rules
from support.newer import newer
from support.prometheus import PrometheusServer, Series
from support.repository import text_of

pytestmark = pytest.mark.full

OVER = 8
JOBS = {
    "classic": {},
    "converted": {"convert_classic_histograms_to_nhcb": True},
    "both": {
        "convert_classic_histograms_to_nhcb": True,
        "always_scrape_classic_histograms": True,
    },
}
_PART = re.compile(r"^(.+)_(?:bucket|sum|count)$")
_OTHERS = tuple(prefix for prefixes in SPELLINGS for prefix in prefixes[1:])
_LABELS = 'model_name="m",engine="0",request_type="chat",temperature="0"'


def _of_histograms(query: Query) -> set[str]:
    """Return the histograms that a query reads, in the first spelling."""
    parts = {_PART.match(selector_name(one)) for one in query.selectors}
    names = {part[1] for part in parts if part}
    return {
        name
        for name in names
        if name.startswith("vllm_specdec_") or not name.startswith(_OTHERS)
    }


READ = [query for query in QUERIES if _of_histograms(query)]
HISTOGRAMS = sorted(set().union(*map(_of_histograms, READ)))


class _Page(BaseHTTPRequestHandler):
    """Every observation is one of ten, so that shares and means stay."""

    def do_GET(self) -> None:
        """Answer with counts that grow evenly."""
        tens = int(10 * time.monotonic())
        lines = []
        for name in HISTOGRAMS:
            lines.append(f"# TYPE {name} histogram")
            for bound, share in (("0.5", 2), ("1.0", 5), ("2.0", 9), ("+Inf", 10)):
                count = tens * share
                lines.append(f'{name}_bucket{{{_LABELS},le="{bound}"}} {count}')
            lines.append(f"{name}_sum{{{_LABELS}}} {12.5 * tens}")
            lines.append(f"{name}_count{{{_LABELS}}} {10 * tens}")
        lines.append(f"vllm_specdec_request_outcomes_total{{{_LABELS}}} {10 * tens}")
        body = "\n".join([*lines, ""]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def prometheus() -> Iterator[PrometheusServer]:
    """A Prometheus 3 that has scraped for a while."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    Thread(target=server.serve_forever, daemon=True).start()
    jobs = [
        {
            "job_name": name,
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{server.server_port}"],
                    "labels": {"namespace": name},
                }
            ],
            **settings,
        }
        for name, settings in JOBS.items()
    ]
    with PrometheusServer(
        config={"scrape_configs": jobs},
        flags=("--enable-feature=native-histograms",),
        program=newer("prometheus"),
    ) as running:
        running.wait_for(f"min(count_over_time(up[1m])) > {OVER + 2}")
        yield running
    server.shutdown()
    server.server_close()


def _asked(server: PrometheusServer, query: str, namespace: str) -> dict[Series, float]:
    """Return what a query gives in a namespace, with everything else chosen."""
    chosen = re.sub(r'namespace(=~?)"\$\w+"', f'namespace="{namespace}"', query)
    chosen = re.sub(r'=~?"\$[\w{}:]+"', '=~".*"', chosen)
    chosen = re.sub(r"\[\$__rate_interval\]|\[\d+m\]", f"[{OVER}s]", chosen)
    found = server.query(chosen)
    return {
        tuple(pair for pair in labels if pair[0] != "namespace"): value
        for labels, value in found.items()
        if not math.isnan(value)
    }


def test_what_is_read_of_either_kind_is_the_same_and_the_page_names_the_rest(
    prometheus: PrometheusServer,
) -> None:
    """Percentiles are the same; what needs buckets, sums or counts is there as soon as
    classic histograms are scraped too.
    """
    lacking = set()
    for query in READ:
        classic, converted, both = (_asked(prometheus, query.expr, job) for job in JOBS)
        assert classic, query
        assert both.keys() == classic.keys(), query
        # Counts of a heat map depend on when it is asked for.
        if query.source != "Acceptance of requests":
            assert both == pytest.approx(classic, rel=1e-6), query
        if converted:
            assert "histogram_quantile" in query.expr
            assert converted == pytest.approx(classic, rel=1e-6), query
        else:
            lacking.add(query.source)
    assert lacking == {
        "Accepted tokens per draft",
        "Acceptance of requests",
        "End-to-end latency",
        "Time in the queue",
        "Time per output token",
        "Time to first token",
    }
    page = text_of("dashboards/README.md")
    for words in ("means", "heat maps", "*Accepted tokens per draft*"):
        assert words in page


def test_one_record_reads_sums_and_counts() -> None:
    """It is the time per output token by setting, which the page names."""
    reading = {
        rule.name
        for rule in all_rules()
        if any(_PART.match(name) for name in names(rule.tree))
    }
    assert reading == {"model:vllm_specdec_set:tpot"}
    assert "the time per output token by setting" in " ".join(
        text_of("dashboards/README.md").split()
    )
