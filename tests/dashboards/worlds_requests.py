"""Requests one by one, as an exporter's tap sees them: what each drafted, had accepted
and waited for.

The counting is the exporter's own, from the observation on. A world is made of kinds of
requests that share a server: code, whose drafts are good, and stories, whose drafts are
bad when hot.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dashboards.worlds_traffic import Samples
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import Classification, RequestSettings
from vllm_specdec_exporter.per_request.observation import Observation, Source
from vllm_specdec_exporter.per_request.records import DraftRecord
from vllm_specdec_exporter.per_request.summary import RequestsResult, TapResult
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED
from vllm_specdec_exporter.serve.tap.relay import ERRORS


@dataclass(frozen=True)
class Kind:
    """Requests that are alike."""

    request_type: str  # what they ask for
    temperature: float | None  # theirs, None where they name none
    per_minute: float  # how many
    #: That a drafted token is accepted once those before it are, on average over
    #: requests.
    chance: float
    tokens: int  # generated for each, on average
    per_token: float  # seconds per output token
    first_token: float = 0.1  # seconds to the first token
    tenant: str = "acme"  # whose they are
    adapter: str = ""  # the model that they name, if it is not the server's own


#: An adapter that clients name as their model: no engine does.
ADAPTER = "support-lora"
#: Of a server whose drafts are long: acceptance is a ratio of 0.8, of 0.6, and of 0.3
#: with K=16.
KINDS = (
    Kind(
        "code",
        temperature=0.0,
        per_minute=28,
        chance=0.975,
        tokens=300,
        per_token=0.008,
        first_token=0.08,
    ),
    Kind(
        "code",
        temperature=0.8,
        per_minute=8,
        chance=0.95,
        tokens=300,
        per_token=0.012,
        first_token=0.08,
    ),
    Kind(
        "extraction",
        temperature=0.0,
        per_minute=12,
        chance=0.985,
        tokens=120,
        per_token=0.007,
        first_token=0.3,
        tenant="globex",
    ),
    Kind(
        "chat",
        temperature=None,
        per_minute=16,
        chance=0.945,
        tokens=350,
        per_token=0.014,
        tenant="globex",
    ),
    Kind(
        "chat",
        temperature=0.7,
        per_minute=12,
        chance=0.93,
        tokens=350,
        per_token=0.015,
        tenant="initech",
    ),
    Kind(
        "story",
        temperature=0.9,
        per_minute=18,
        chance=0.84,
        tokens=220,
        per_token=0.028,
        first_token=0.15,
        tenant="initech",
    ),
    Kind(
        "story",
        temperature=1.3,
        per_minute=6,
        chance=0.68,
        tokens=220,
        per_token=0.034,
        first_token=0.15,
        tenant="somebody",
    ),
    Kind(
        "support",
        temperature=0.2,
        per_minute=5,
        chance=0.95,
        tokens=200,
        per_token=0.012,
        adapter=ADAPTER,
    ),
)
#: How many requests have what in their answers: a record with steps, one without, one
#: of nothing, none.
RECORDED = {
    "detailed": 0.86,
    "summary": 0.06,
    "not_drafted": 0.03,
    "none": 0.04,
    "malformed": 0.01,
}
#: The same of a server that was not told to give records.
UNRECORDED = {"none": 1.0}
#: Requests that one in so many is: pushed, passed on without being looked at, and
#: pushed in vain.
_PUSHED = 12
_ABORTED = 40
_REJECTED = 150
#: Seconds between two times at which the server refuses connections, as while it loads.
_GONE_EVERY = 2700.0
_TENANTS = frozenset({"acme", "globex", "initech"})


@dataclass(frozen=True)
class RequestTraffic:
    """What a server is asked."""

    kinds: tuple[Kind, ...] = KINDS  # kinds of requests
    #: Relative frequency of drafts of 1, 2, 3 ... tokens.
    lengths: tuple[float, ...] = (*(0.0,) * 15, 1.0)
    #: Share of the requests by what their answers tell
    answers: Mapping[str, float] = field(default_factory=lambda: RECORDED)
    seed: int = 1  # of its randomness


class Seen:
    """What an exporter's tap has seen of a server."""

    def __init__(
        self, traffic: RequestTraffic, model: str, thresholds: Thresholds
    ) -> None:
        tenants = Classification(tenant_header="x-tenant", tenants=_TENANTS)
        self.book = RequestAggregator(
            RequestSettings(classification=tenants), thresholds
        )
        self._traffic = traffic
        self._model = model
        self._random = np.random.default_rng(traffic.seed)
        self._steps = _steps(traffic.lengths)
        self._number = 0
        self._unobserved = dict.fromkeys(UNOBSERVED, 0)
        self._errors = dict.fromkeys(ERRORS, 0)

    def go_on(self, seconds: float, clock: float, wall: float) -> None:
        """Let seconds pass, until the exporter's clock and the wall clock show these
        times.
        """
        for observation in self._requests(seconds, wall):
            self._number += 1
            if self._number % _ABORTED == 0:
                self._unobserved["aborted"] += 1
                continue
            source = Source.TAP if self._number % _PUSHED else Source.PUSH
            self.book.add(observation, source, clock)
            self.book.push_rejected_total += self._number % _REJECTED == 0
        if clock % _GONE_EVERY < seconds:
            self._errors["refused"] += 3

    def result(self, clock: float) -> RequestsResult:
        """Return what the exporter knows of requests."""
        tap = TapResult(
            address=":9851",
            upstream="127.0.0.1:8000",
            connections=12 + self._number % 7,
            connections_total=self._number // 6 + sum(self._errors.values()),
            requests_total=self._number - self._number // _PUSHED,
            upstream_errors_total=dict(self._errors),
            unobserved_total=dict(self._unobserved),
        )
        return self.book.result(clock, {}, tap)

    def _requests(self, seconds: float, wall: float) -> Iterator[Observation]:
        for kind in self._traffic.kinds:
            for _ in range(self._random.poisson(kind.per_minute * seconds / 60)):
                yield self._request(kind, wall)

    def _request(self, kind: Kind, wall: float) -> Observation:
        random = self._random
        answers = self._traffic.answers
        state = str(random.choice(list(answers), p=list(answers.values())))
        tokens = max(2, int(random.gamma(4, kind.tokens / 4)))
        return Observation(
            time=wall,
            model_name=kind.adapter or self._model,
            temperature=kind.temperature,
            request_type=kind.request_type,
            tenant=kind.tenant,
            stream=True,
            completion_tokens=tokens,
            record=self._record(kind, state, tokens),
            malformed=state == "malformed",
            ttft_seconds=random.lognormal(np.log(kind.first_token), 0.3),
            tpot_seconds=random.lognormal(np.log(kind.per_token), 0.3),
        )

    def _record(self, kind: Kind, state: str, tokens: int) -> DraftRecord | None:
        if state in ("none", "malformed"):
            return None
        if state == "not_drafted":
            return DraftRecord(0, 0, 0)
        # Requests of a kind differ in the tokens that are refused, not in those that
        # are accepted.
        refused = self._random.gamma(12, (1 - kind.chance) / 12)
        drafted, accepted = self._steps
        chances = _chances(1 - min(0.98, refused), self._traffic.lengths, self._steps)
        drafts = max(1, round(tokens / (1 + float(chances @ accepted))))
        counts = self._random.multinomial(drafts, chances)
        steps = {}
        if state == "detailed":
            for at in np.flatnonzero(counts):
                steps[int(drafted[at]), int(accepted[at])] = int(counts[at])
        return DraftRecord(
            drafts,
            int(counts @ drafted),
            int(counts @ accepted),
            steps=steps,
        )


Steps = tuple["NDArray[np.int64]", "NDArray[np.int64]"]


def _steps(lengths: Sequence[float]) -> Steps:
    """Return all that can happen to a draft: how many tokens it has, and how many are
    accepted.
    """
    k = len(lengths)
    drafted, accepted = np.nonzero(np.tri(k + 1, dtype=int))
    return drafted[1:], accepted[1:]


def _chances(chance: float, lengths: Sequence[float], steps: Steps) -> Samples:
    """Return how often each of these happens."""
    drafted, accepted = steps
    of_length = np.array(lengths)[drafted - 1] / sum(lengths)
    refused = np.where(accepted < drafted, 1 - chance, 1.0)
    chances: Samples = of_length * chance**accepted * refused
    return chances / chances.sum()
