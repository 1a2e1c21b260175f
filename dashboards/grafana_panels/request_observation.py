"""Panels of what is observed at all, and of tenants."""

from . import promql
from .field import A_MINUTE, RATIO, colored
from .palette import BLUE, GREY, ORANGE, SKY, VERMILION
from .panel import Panel, lines, over_time
from .promql import renamed
from .request_series import (
    ABSENT,
    OBSERVED,
    PREFIX,
    TENANT,
    TENANT_ACCEPTED,
    TENANT_DRAFT_TOKENS,
    TENANT_REQUESTS,
    TENANT_TOKENS,
    a_second,
    acceptance,
    growth,
    losing,
)
from .table import Column, joined_table
from .variables import TARGETS

UNOBSERVED = "no tap and no push"
#: What answers have, in words, and a colour each.
RECORDS = {
    "detailed": ("detailed", BLUE),
    "summary": ("summary", SKY),
    "not_drafted": ("nothing drafted", GREY),
    "none": ("no record", ORANGE),
    "malformed": ("malformed", VERMILION),
}


#: Of the observed requests, by what their answers have.
_SHARES = (
    f"{growth(OBSERVED, 'record', TARGETS)} / on () group_left () "
    f"({growth(OBSERVED, '', TARGETS)} > 0)"
)


def _a_minute(name: str, by: str = "") -> str:
    """Return the rate of one of the exporter's own counters, by the minute."""
    return f"60 * ({promql.summed_rate(PREFIX + name, TARGETS, by)} > 0)"


_SEEN = promql.summed_rate(OBSERVED, TARGETS)
_FINISHED = promql.summed_rate("«vllm»request_success_total", TARGETS)
_UNREAD = promql.summed_rate(f"{PREFIX}tap_unobserved_total", TARGETS)
#: What went through a tap or was pushed, whether it could be read or not.
_TAPPED = f"({_SEEN} + {_UNREAD})"


observed: list[Panel] = [
    lines(
        "Observed and finished requests",
        "If vLLM finishes more, clients bypass the tap: make its Service the only one.",
        {
            "observed": (_SEEN, BLUE),
            "finished by vLLM": (_FINISHED, GREY),
            "past the tap": (
                f"clamp_min({_FINISHED} - ({_TAPPED} or {_SEEN}), 0)",
                ORANGE,
            ),
        },
        unit="reqps",
        least=0,
        no_value=f"{UNOBSERVED}; vLLM itself is not scraped",
        width=8,
    ),
    lines(
        "Records in answers",
        (
            "No record: --per-request-spec-decode-metrics is missing, or streams lack "
            "include_usage. Summaries have no positions."
        ),
        {},
        others=[
            over_time(
                renamed(
                    _SHARES, "record", {key: word for key, (word, _) in RECORDS.items()}
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
    lines(
        "Requests of the tap that it could not read or send",
        (
            "By reason, as the metrics reference has them. Those past the tap: on the "
            "left."
        ),
        {},
        others=[
            over_time(
                _a_minute("tap_unobserved_total", "reason"), "not read: {{reason}}"
            ),
            over_time(_a_minute("push_rejected_total"), "push rejected"),
            over_time(
                _a_minute("tap_upstream_errors_total", "reason"),
                "no connection: {{reason}}",
            ),
        ],
        **A_MINUTE,
        no_value="none, or there is no tap",
        width=8,
    ),
]

tenants = joined_table(
    "Requests by tenant",
    "Tenants of --requests.tenant-header, most losing first; all others are *other*.",
    {TENANT: "Tenant"},
    [
        Column(
            "Requests",
            f"{a_second(TENANT_REQUESTS, TENANT)} > 0",
            unit="reqps",
            decimals=2,
            width=100,
        ),
        Column(
            "Tokens",
            a_second(TENANT_TOKENS, TENANT),
            unit="suffix:tokens/s",
            decimals=0,
            width=115,
        ),
        Column(
            "Lose",
            losing(TENANT_REQUESTS, TENANT),
            unit="percentunit",
            decimals=0,
            width=75,
        ),
        Column(
            "Losing tokens",
            losing(TENANT_TOKENS, TENANT),
            unit="percentunit",
            decimals=0,
            width=120,
        ),
        Column(
            "Acceptance",
            acceptance(TENANT, TENANT_DRAFT_TOKENS, TENANT_ACCEPTED),
            unit="percentunit",
            decimals=0,
            width=105,
        ),
    ],
    no_value=ABSENT,
    sort=("Lose", True),
    rows=7,
)
