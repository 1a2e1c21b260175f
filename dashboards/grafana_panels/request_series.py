"""Per-request series: what the tap, or a gateway that pushes, reports of single
requests.

Histograms and counters are those of groups of requests: a model, a bucket of
temperature, a type. Requests come in at a server before it is known which engine serves
them, so none of these series has an engine.

Ratios and quantiles are over half an hour, as the exporter and the rules judge: in a
minute there are too few requests. Rates of requests are over Grafana's rate interval.
"""

from . import promql, variables
from .field import Json
from .promql import INTERVAL
from .variables import LABELS, MODELS, TARGETS

UID = "vllm-specdec-requests"
PREFIX = "vllm_specdec_"
ACCEPTANCE = f"{PREFIX}request_acceptance_ratio"
TPOT = f"{PREFIX}request_time_per_output_token_seconds"
#: Requests, and the tokens that they generated, by outcome: `loses`, `break_even`,
#: `gains`.
REQUESTS = f"{PREFIX}request_outcomes_total"
TOKENS = f"{PREFIX}request_generation_tokens_total"
DRAFT_TOKENS = f"{PREFIX}request_draft_tokens_total"
ACCEPTED = f"{PREFIX}request_accepted_tokens_total"
#: Drafts of a model that had a position drafted, and accepted.
DRAFTED_AT = f"{PREFIX}request_drafted_per_position_total"
ACCEPTED_AT = f"{PREFIX}request_accepted_per_position_total"
TENANT_REQUESTS = f"{PREFIX}tenant_requests_total"
TENANT_TOKENS = f"{PREFIX}tenant_generation_tokens_total"
TENANT_DRAFT_TOKENS = f"{PREFIX}tenant_draft_tokens_total"
TENANT_ACCEPTED = f"{PREFIX}tenant_accepted_tokens_total"
#: All requests that an exporter observed, by what their answers had.
OBSERVED = f"{PREFIX}request_observations_total"

TEMPERATURE = "temperature"
TYPE = "request_type"
TENANT = "tenant"
OUTCOMES = {"gains": "gains", "break_even": "break-even", "loses": "loses"}
OVER = "30m"
#: Shown without per-request series.
ABSENT = "no per-request data"


def growth(name: str, by: str = "", select: str = MODELS, **matchers: str) -> str:
    """Return the increase of a counter over half an hour, summed."""
    return promql.growth(name, select, by, over=OVER, **matchers)


def a_second(name: str, by: str) -> str:
    """Return the same by the second."""
    return f"{growth(name, by)} / 1800"


def quantile(name: str, share: float, by: str = "") -> str:
    """Return a quantile of a histogram over half an hour."""
    return promql.quantile(name, share, by=by, over=OVER)


def buckets_of(name: str) -> str:
    """Return how many requests fell into each cumulative bucket of a histogram since
    the point before.
    """
    return f"sum by (le) (increase({name}_bucket{{{MODELS}}}[{INTERVAL}]))"


def losing(name: str, by: str = "") -> str:
    """Return the share of what is counted by outcome that belongs to requests which
    lose.
    """
    return f"{growth(name, by, outcome='loses')} / ({growth(name, by)} > 0)"


def acceptance(
    by: str = "", drafted: str = DRAFT_TOKENS, accepted: str = ACCEPTED
) -> str:
    """Return accepted over drafted tokens of all requests together."""
    return f"{growth(accepted, by)} / ({growth(drafted, by)} > 0)"


def with_record() -> str:
    """Return the number of observed requests whose answers had a usable record."""
    return growth(OBSERVED, "", f'{TARGETS},record!~"none|malformed"')


def of_requests() -> list[Json]:
    """Return the variables: models also have the names that only clients use, such as
    adapters.
    """
    models = " or ".join(
        f"count by (model_name) (last_over_time({PREFIX}{name}{{{TARGETS}}}[$__range]))"
        for name in ("info", "window_requests")
    )
    model = variables.query(
        "model_name",
        LABELS["model_name"],
        f"query_result({models})",
        regex='/model_name="([^"]+)"/',
    )
    return [*variables.of_targets()[:-1], model, variables.filters()]
