"""Per-request series: what the tap, or a gateway that pushes, tells of single requests.

Histograms and counters are those of groups of requests: a model, a bucket of temperature, a type. Requests come
in at a server, before anybody knows which engine serves them, so none of these series has an engine.

Ratios and quantiles are over `$over`, flows over what suits the zoom: in a minute there are too few requests for
a tenth of them to mean anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import promql, variables
from .promql import INTERVAL
from .variables import TARGET_LABELS, selector

if TYPE_CHECKING:
    from .field import Json

PREFIX = "vllm_specdec_"
ACCEPTANCE = f"{PREFIX}request_acceptance_ratio"
PER_DRAFT = f"{PREFIX}request_accepted_tokens_per_draft"
TPOT = f"{PREFIX}request_time_per_output_token_seconds"
TTFT = f"{PREFIX}request_time_to_first_token_seconds"
#: Requests, and the tokens that they generated, by what speculation did to them: `loses`, `break_even`, `gains`.
REQUESTS = f"{PREFIX}request_outcomes_total"
TOKENS = f"{PREFIX}request_generation_tokens_total"
DRAFT_TOKENS = f"{PREFIX}request_draft_tokens_total"
ACCEPTED = f"{PREFIX}request_accepted_tokens_total"
#: Drafts that had a position drafted, and accepted; of a model.
DRAFTED_AT = f"{PREFIX}request_drafted_per_position_total"
ACCEPTED_AT = f"{PREFIX}request_accepted_per_position_total"
TENANT_REQUESTS = f"{PREFIX}tenant_requests_total"
TENANT_TOKENS = f"{PREFIX}tenant_generation_tokens_total"
TENANT_DRAFT_TOKENS = f"{PREFIX}tenant_draft_tokens_total"
TENANT_ACCEPTED = f"{PREFIX}tenant_accepted_tokens_total"
#: Of an exporter: all requests that it saw, by what their answers told.
OBSERVED = f"{PREFIX}request_observations_total"

TEMPERATURE, TYPE, TENANT = "temperature", "request_type", "tenant"
OUTCOMES = {"gains": "gains", "break_even": "break-even", "loses": "loses"}
#: Labels by which records of speculation differ from answers without one.
WITHOUT_RECORD = "none|malformed"

#: What selects series of a model or a tenant, of a group, and of an exporter.
MODEL = selector((*TARGET_LABELS, "model_name"))
GROUP = f"{MODEL},{selector((TEMPERATURE, TYPE))}"
EXPORTER = variables.TARGET

#: Over how long ratios are.
OVER = "$over"
CHOICES, DEFAULT = ("5m", "30m", "1h", "6h", "1d"), "30m"


def flow(name: str, by: str = "", select: str = GROUP, **matchers: str) -> str:
    """Return the rate of a counter, summed, over what suits the zoom."""
    return promql.counted(name, select, by, **matchers)


def counted(name: str, by: str = "", select: str = GROUP, **matchers: str) -> str:
    """Return the rate of a counter, summed, over `$over`."""
    return promql.counted(name, select, by, over=OVER, **matchers)


def quantile(name: str, share: float, by: str = "") -> str:
    """Return a quantile of a histogram of groups over `$over`; of the native one where no other is scraped."""
    native = f"histogram_quantile({share:g}, {counted(name, by)})"
    return f"{promql.quantile(name, GROUP, share, by, over=OVER)} or {native} >= 0"


def buckets_of(name: str) -> str:
    """Return how many requests fell into each cumulative bucket of a histogram since the point before."""
    return f"sum by (le) (increase({name}_bucket{{{GROUP}}}[{INTERVAL}]))"


def by_outcome(name: str) -> str:
    """Return the flow of a counter by outcome, in words."""
    return promql.renamed(flow(name, "outcome"), "outcome", OUTCOMES)


def losing(name: str, by: str = "", select: str = GROUP) -> str:
    """Return the share of what is counted by outcome that falls to requests which lose."""
    return f"{counted(name, by, select, outcome='loses')} / ({counted(name, by, select)} > 0)"


def acceptance(
    by: str = "", select: str = GROUP, drafted: str = DRAFT_TOKENS, accepted: str = ACCEPTED
) -> str:
    """Return accepted over drafted tokens of all requests together."""
    return f"{counted(accepted, by, select)} / ({counted(drafted, by, select)} > 0)"


def where_drafted(position: int | None = None) -> str:
    """Return how often a position was accepted in the drafts that had it drafted; lines for all, or one number."""
    if position is None:
        parts = (flow(name, "position", MODEL) for name in (ACCEPTED_AT, DRAFTED_AT))
    else:
        parts = (counted(name, "", MODEL, position=str(position)) for name in (ACCEPTED_AT, DRAFTED_AT))
    accepted, drafted = parts
    return f"{accepted} / ({drafted} > 0)"


def reach(position: int) -> str:
    """Return the share of drafts that had a position drafted: all have the first."""
    here, first = (counted(DRAFTED_AT, "", MODEL, position=str(at)) for at in (position, 0))
    return f"{here} / ({first} > 0)"


def of_all_drafts(position: int) -> str:
    """Return the share of all drafts in which a position was accepted, as `/metrics` of vLLM counts."""
    return promql.survival(position, over=OVER)


def judged(series: str, by: str, **matchers: str) -> str:
    """Return what the exporter judges of a model over its own window."""
    own = "".join(f',{label}="{value}"' for label, value in matchers.items())
    return f"max by ({by}) ({PREFIX}{series}{{{MODEL}{own}}})"


def with_record(by: str = "") -> str:
    """Return the rate of observed requests whose answers had a usable record."""
    matching = f'{EXPORTER},record!~"{WITHOUT_RECORD}"'
    return counted(OBSERVED, by, matching)


def choices() -> list[Json]:
    """Return the variables of a dashboard of requests."""
    models = [
        f"count by (model_name) (last_over_time({PREFIX}{name}{{{select}}}[$__range]))"
        for name, select in (("info", variables.SERVER), ("window_requests", EXPORTER))
    ]
    # An adapter, or an alias that clients use, is a model of its own, which no engine names.
    model = variables.query(
        "model_name",
        "Model",
        f"query_result({' or '.join(models)})",
        every=variables.LABELS["model_name"][1],
        regex='/model_name="([^"]+)"/',
    )
    usual = [model if one["name"] == "model_name" else one for one in variables.usual(windowed=False)]
    kinds = []
    before = MODEL
    for label, heading in ((TEMPERATURE, "Temperature"), (TYPE, "Type")):
        expr = f"label_values({REQUESTS}{{{before}}}, {label})"
        kinds.append(variables.query(label, heading, expr, every=".*"))
        before += f",{selector((label,))}"
    return [*usual, *kinds, variables.choice("over", "Ratios over", CHOICES, DEFAULT)]


def only(title: str, label: str, column: str) -> Json:
    """Return a data link from a column to the same dashboard with this value of its label alone."""
    kept = [f"${{{one['name']}:queryparam}}" for one in choices() if one["name"] != label]
    # A plus in an address is a blank unless it is encoded.
    value = f"var-{label}=${{__data.fields.{column}:percentencode}}"
    parts = ("${__url_time_range}", *kept, value)
    return {"targetBlank": False, "title": title, "url": f"/d/vllm-specdec-requests?{'&'.join(parts)}"}
