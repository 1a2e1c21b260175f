"""Panels of what is observed at all, and of tenants."""

from __future__ import annotations

from . import vllm
from .field import colored, fixed, named
from .palette import BLUE, GREY, ORANGE, SKY, VERMILION
from .panel import Panel, TimeSeries
from .per_request import (
    EXPORTER,
    MODEL,
    OBSERVED,
    PREFIX,
    TENANT,
    TENANT_ACCEPTED,
    TENANT_DRAFT_TOKENS,
    TENANT_REQUESTS,
    TENANT_TOKENS,
    acceptance,
    counted,
    flow,
    losing,
)
from .promql import renamed
from .table import Column, joined
from .target import over_time
from .tiles import A_MINUTE, RATIO

UNOBSERVED = "no tap and no push"
NO_TAP = "no tap"
NO_TENANTS = "no tenants: see --requests.tenant-header"
#: What answers tell, in words, and a colour each.
RECORDS = {
    "detailed": ("detailed", BLUE),
    "summary": ("summary", SKY),
    "not_drafted": ("nothing drafted", GREY),
    "none": ("no record", ORANGE),
    "malformed": ("malformed", VERMILION),
}


def of_exporter(name: str, by: str = "") -> str:
    """Return the flow of one of the exporter's own counters."""
    return flow(PREFIX + name, by, EXPORTER)


observed: list[Panel] = [
    TimeSeries(
        title="Is all traffic observed?",
        description=(
            "Requests per second that the exporter observed (`vllm_specdec_request_observations_total`), and that "
            "vLLM finished (`vllm:request_success_total`, of the selection). If vLLM finishes more, some clients "
            "bypass the tap: make the tap's Service the only one."
        ),
        targets=[
            over_time(flow(OBSERVED, "", EXPORTER), "observed"),
            over_time(vllm.counted("request_success_total"), "finished by vLLM"),
        ],
        unit="reqps",
        least=0,
        overrides=colored({"observed": BLUE, "finished by vLLM": GREY}),
        no_value=f"{UNOBSERVED}; vLLM itself is not scraped",
        width=8,
    ),
    TimeSeries(
        title="Which records do answers have?",
        description=(
            "Share of the observed requests by kind of record, from `vllm_specdec_request_observations_total`. No "
            "record: vLLM runs without --per-request-spec-decode-metrics, or the request streamed without "
            "include_usage (see --tap.ask-for-usage), or had several answers. Summaries have no positions: start "
            "vLLM with `detailed`."
        ),
        targets=[
            over_time(
                renamed(
                    f"{counted(OBSERVED, 'record', EXPORTER)} / ignoring (record) group_left () ({counted(OBSERVED, '', EXPORTER)} > 0)",
                    "record",
                    {record: word for record, (word, _) in RECORDS.items()},
                ),
                "{{record}}",
            )
        ],
        **RATIO,
        stack=True,
        fill=25,
        overrides=colored(dict(RECORDS.values())),
        no_value=UNOBSERVED,
        width=8,
    ),
    TimeSeries(
        title="Why is a request not observed?",
        description=(
            "Requests per minute that the tap relayed but could not read, by reason "
            "(`vllm_specdec_tap_unobserved_total`), and rejected pushed observations "
            "(`vllm_specdec_push_rejected_total`). The reasons are listed in docs/reference/metrics.md. If pushes "
            "are rejected, see the responses in the gateway's log."
        ),
        targets=[
            over_time(f"60 * ({of_exporter('tap_unobserved_total', 'reason')} > 0)", "{{reason}}"),
            over_time(f"60 * ({of_exporter('push_rejected_total')} > 0)", "pushed, not usable"),
        ],
        **A_MINUTE,
        overrides=colored({"pushed, not usable": ORANGE}),
        no_value="every request is, or there is no tap",
        width=8,
    ),
    TimeSeries(
        title="Requests and connections of the tap",
        description=(
            "Requests per minute that the tap relayed (`vllm_specdec_tap_requests_total`), new connections per "
            "minute (`vllm_specdec_tap_connections_total`), and on the right open connections "
            "(`vllm_specdec_tap_open_connections`). If there are nearly as many new connections as requests, use "
            "keep-alive in the clients."
        ),
        targets=[
            over_time(f"60 * {of_exporter('tap_requests_total')}", "requests"),
            over_time(f"60 * {of_exporter('tap_connections_total')}", "new connections"),
            over_time(f"sum({PREFIX}tap_open_connections{{{EXPORTER}}})", "open connections"),
        ],
        unit="suffix:/min",
        decimals=0,
        least=0,
        overrides=[
            *colored({"requests": BLUE, "new connections": ORANGE}),
            named(
                "open connections",
                unit="short",
                color=fixed(GREY),
                custom__axisPlacement="right",
                custom__fillOpacity=15,
                custom__lineWidth=1,
            ),
        ],
        no_value=NO_TAP,
    ),
    TimeSeries(
        title="Why do connections to vLLM fail?",
        description=(
            "Failed connections of the tap to vLLM per minute, by reason "
            "(`vllm_specdec_tap_upstream_errors_total`); their clients got status 502. refused: vLLM loads or is "
            "down; unreachable: see --tap.upstream; timeout: it is overloaded. The reasons are listed in "
            "docs/reference/metrics.md."
        ),
        targets=[over_time(f"60 * ({of_exporter('tap_upstream_errors_total', 'reason')} > 0)", "{{reason}}")],
        **A_MINUTE,
        no_value="none does, or there is no tap",
    ),
]

tenants: list[Panel] = [
    joined(
        "Whose requests lose?",
        (
            "Requests by tenant (--requests.tenant-header, --requests.tenant; all others are *other*), most "
            "losing first, from `vllm_specdec_tenant_requests_total` and "
            "`vllm_specdec_tenant_accepted_tokens_total`. If only one tenant loses: route it to a server without "
            "speculation."
        ),
        {TENANT: "Tenant"},
        [
            Column("Requests", f"{counted(TENANT_REQUESTS, TENANT, MODEL)} > 0", "reqps", 2, 100),
            Column("Tokens", counted(TENANT_TOKENS, TENANT, MODEL), "suffix:tokens/s", 0, 115),
            Column("Lose", losing(TENANT_REQUESTS, TENANT, MODEL), "percentunit", 0, 75),
            Column("Losing tokens", losing(TENANT_TOKENS, TENANT, MODEL), "percentunit", 0, 120),
            Column(
                "Acceptance",
                acceptance(TENANT, MODEL, TENANT_DRAFT_TOKENS, TENANT_ACCEPTED),
                "percentunit",
                0,
                105,
            ),
        ],
        no_value="-",
        sort=("Lose", True),
        width=12,
        rows=9,
    ),
    TimeSeries(
        title="Which tenant loses, and since when?",
        description=(
            "Share of losing requests by tenant, from `vllm_specdec_tenant_requests_total`. If one rises alone: "
            "ask for changes, such as prompts or temperature."
        ),
        targets=[over_time(losing(TENANT_REQUESTS, TENANT, MODEL), "{{tenant}}")],
        **RATIO,
        no_value=NO_TENANTS,
        width=12,
        rows=9,
    ),
]
