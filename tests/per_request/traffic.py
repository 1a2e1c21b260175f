"""Requests of a known kind: drafted step by step with a chance of acceptance, and what
is known of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.per_request.acceptance import BatchCost
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import RequestSettings
from vllm_specdec_exporter.per_request.observation import Observation, Source
from vllm_specdec_exporter.per_request.records import DraftRecord
from vllm_specdec_exporter.per_request.summary import RequestsResult, TapResult

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
NOW = 1_790_000_000.0
PROFILE = for_method("draft_model")


class Kind(Struct, frozen=True):
    """Requests that are alike."""

    requests: int  # how many
    chance: float  # that a drafted token is accepted once those before it are
    temperature: float | None = 0.0  # None where they name none
    request_type: str = "code"
    tenant: str = ""
    lengths: tuple[int, ...] = (4,)  # of drafts; each is drawn from these
    drafts: int = 40  # of each request
    details: bool = True  # whether their records have the steps
    model: str = MODEL


#: 60 % of the requests with 82 % of their tokens accepted, 40 % with 38 %: together
#: they look healthy.
CODE = Kind(600, 0.922, tenant="acme")
CHAT = Kind(400, 0.65, 1.2, "chat", tenant="globex")
MIXED = (CODE, CHAT)


def steps_of(kind: Kind, random: Random) -> list[tuple[int, int]]:
    """Return the drafted and the accepted tokens of each step of a request."""
    steps = []
    for _ in range(kind.drafts):
        drafted = random.choice(kind.lengths)
        accepted = next(
            (n for n in range(drafted) if random.random() >= kind.chance), drafted
        )
        steps.append((drafted, accepted))
    return steps


def one_by_one(kinds: Iterable[Kind]) -> Iterator[Kind]:
    """Yield the kind of each request."""
    return chain(*([kind] * kind.requests for kind in kinds))


def observations(kinds: Iterable[Kind], seed: int = 1) -> Iterator[Observation]:
    """Yield the requests, one kind after the other."""
    random = Random(seed)
    for number, kind in enumerate(one_by_one(kinds)):
        steps = steps_of(kind, random)
        accepted = sum(step[1] for step in steps)
        yield Observation(
            time=NOW - 1.0 * number,
            model_name=kind.model,
            temperature=kind.temperature,
            request_type=kind.request_type,
            tenant=kind.tenant,
            stream=True,
            request_id=f"chatcmpl-{number:032x}",
            completion_tokens=1 + accepted + len(steps),
            record=DraftRecord(
                len(steps),
                sum(step[0] for step in steps),
                accepted,
                steps=dict(Counter(steps)) if kind.details else {},
            ),
            ttft_seconds=0.08,
            tpot_seconds=0.012,
        )


def record_of(
    steps: Sequence[tuple[int, int]], *, details: bool = True
) -> dict[str, Any]:
    """Return vLLM's own record of these steps."""
    record = {
        "num_spec_steps": len(steps),
        "num_draft_tokens": sum(drafted for drafted, _ in steps),
        "num_accepted_draft_tokens": sum(accepted for _, accepted in steps),
    }
    if details:
        record["per_step_drafted"] = [drafted for drafted, _ in steps]
        record["per_step_accepted"] = [accepted for _, accepted in steps]
    return record


def pairs(kinds: Iterable[Kind] = MIXED) -> Iterator[dict[str, Any]]:
    """Yield the same requests as `observations`, each with its answer, as a gateway
    might log them.
    """
    random = Random(1)
    for number, kind in enumerate(one_by_one(kinds)):
        steps = steps_of(kind, random)
        body = {"model": kind.model, "messages": []}
        if kind.temperature is not None:
            body["temperature"] = kind.temperature
        yield {
            "request": {
                "url": "/v1/chat/completions",
                "headers": {"x-kind": kind.request_type, "x-tenant": kind.tenant},
                "body": body,
            },
            "response": {
                "id": f"chatcmpl-{number:032x}",
                "object": "chat.completion",
                "created": int(NOW - number),
                "model": kind.model,
                "choices": [{"index": 0, "finish_reason": "stop"}],
                "usage": {
                    "completion_tokens": 1 + sum(step[1] for step in steps) + len(steps)
                },
                "metrics": {
                    "speculative_decoding": record_of(steps, details=kind.details)
                },
            },
        }


def known(
    kinds: Iterable[Kind] = MIXED,
    *,
    batch: float | None = 8.0,
    tap: TapResult | None = None,
    more: Iterable[Observation] = (),
    later: float = 0.0,
) -> RequestsResult:
    """Return what an exporter knows of requests through a tap, and of `more` pushed
    ones, `later` seconds on.

    `batch` is the requests in the batch, None where that is not known.
    """
    tenants = frozenset(kind.tenant for kind in kinds if kind.tenant)
    classification = replace(RequestSettings().classification, tenants=tenants)
    settings = RequestSettings(classification=classification)
    book = RequestAggregator(settings, Thresholds(), (Source.TAP, Source.PUSH))
    for observation in observations(kinds):
        book.add(observation, Source.TAP, 0.0)
    for observation in more:
        book.add(observation, Source.PUSH, 0.0)
    models = {kind.model for kind in kinds}
    if batch is None:
        loads = {}
    else:
        loads = {model: BatchCost(batch, PROFILE) for model in models}
    return book.result(later, loads, tap)
