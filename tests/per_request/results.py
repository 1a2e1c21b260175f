"""What may be known of single requests, in every state that a publisher has to show."""

from itertools import product

from msgspec.structs import replace

from per_request.traffic import CHAT, CODE, NOW, Kind, known
from vllm_specdec_exporter.judgement.findings import Finding, Severity
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.records import DraftRecord
from vllm_specdec_exporter.per_request.summary import RequestsResult, TapResult
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED
from vllm_specdec_exporter.serve.tap.relay import ERRORS

#: What a label may hold where nobody looked at it before.
HOSTILE = "<script>alert(1)</script>\x1b[31m\n\u202e&\"'"

TAP = TapResult(
    address="0.0.0.0:9851",
    upstream="http://127.0.0.1:8000",
    connections=3,
    connections_total=120,
    requests_total=1003,
    upstream_errors_total={**dict.fromkeys(ERRORS, 0), "refused": 2},
    unobserved_total={**dict.fromkeys(UNOBSERVED, 0), "too_large": 1, "aborted": 2},
)
_PUSHED = (
    *(Observation(NOW, model_name=CODE.model) for _ in range(5)),
    Observation(NOW, model_name=CODE.model, malformed=True),
    Observation(NOW, model_name=CODE.model, record=DraftRecord(0, 0, 0)),
)


def few(kind: Kind, requests: int) -> Kind:
    return replace(kind, requests=requests)


def _hostile() -> RequestsResult:
    published = known((few(CODE, 60), few(CHAT, 60)))
    (model,) = published.models
    model = replace(
        model,
        model_name=HOSTILE,
        groups=tuple(
            replace(g, temperature=HOSTILE, request_type=HOSTILE) for g in model.groups
        ),
        worst=tuple(
            replace(w, request_id=HOSTILE, request_type=HOSTILE) for w in model.worst
        ),
        findings=(*model.findings, Finding(Severity.PROBLEM, HOSTILE, HOSTILE)),
        routing=replace(model.routing, request_types=(HOSTILE,))
        if model.routing
        else None,
    )
    return replace(
        published,
        models=(model,),
        tenants=tuple(
            replace(t, tenant=HOSTILE, model_name=HOSTILE) for t in published.tenants
        ),
        observations=tuple(
            replace(o, source=HOSTILE, record=HOSTILE) for o in published.observations
        ),
        tap=replace(
            TAP, address=HOSTILE, upstream=HOSTILE, upstream_errors_total={HOSTILE: 1}
        ),
    )


#: By name.
RESULTS: dict[str, RequestsResult] = {
    "mixed": known(tap=TAP, more=_PUSHED),
    "gaining": known((few(CODE, 200),), batch=None),
    "losing": known((few(CHAT, 200),), batch=60.0),
    "partly-losing": known((few(CODE, 500), few(CHAT, 90))),
    "break-even": known((replace(CODE, requests=200, chance=0.81),)),
    "quiet": known((few(CODE, 60),), later=7200.0),
    "few": known((few(CODE, 12), few(CHAT, 4))),
    "varying": known(
        (replace(CODE, requests=200, lengths=(1, 2, 4, 4)), few(CHAT, 30))
    ),
    "summary": known((replace(CODE, requests=200, details=False),)),
    "unrecorded": known(
        (), more=_PUSHED[:5], tap=replace(TAP, unobserved_total={"aborted": 2})
    ),
    "nothing": known(
        (), tap=replace(TAP, connections_total=0, requests_total=0, unobserved_total={})
    ),
    "rejected": replace(known((few(CODE, 60),)), push_rejected_total=7),
    "two-models": known(
        (few(CODE, 100), replace(CHAT, requests=60, model="an-adapter"))
    ),
    "many-groups": known(
        tuple(
            Kind(8 + 2 * n, 0.9 - 0.02 * n, temperature, f"type-of-request-{n}")
            for n, temperature in product(range(12), (0.0, 0.6))
        )
    ),
    "unset": known((replace(CODE, requests=60, temperature=None),)),
    "hostile": _hostile(),
}
