"""Results of a poll. Immutable, and the only input of every publisher.

`/api/v1/snapshot` returns them as JSON, and `vllm_specdec_exporter.get_metrics()`
decodes that. ``None`` and empty tuples (JSON: ``null`` and empty lists) mean: does not
exist or is not known.
"""

from collections.abc import Iterable

from msgspec import Struct, field

# Imported at run time: annotations are read to decode and document the JSON.
from ..economics.step_time import EngineSteps, StepFit
from ..engines.reading import Counters, EngineKey, Load
from ..judgement.activity import Activity
from ..judgement.advice import Advice
from ..judgement.findings import Finding
from ..judgement.payoff import Payoff
from ..judgement.quality import Quality
from ..judgement.state import StateCode
from ..measures.measures import Distribution, Measures
from ..per_request.summary import RequestsResult

#: Why a poll can fail: every value of the `reason` label, with what it means.
REASONS = {
    "refused": "nothing listens at the address: usual while a model loads",
    "unreachable": "the address cannot be resolved or reached",
    "reset": "the connection was closed before a response came",
    "timeout": "no complete response within the poll timeout",
    "tls": "no trusted TLS connection",
    "redirect": "the response is a redirect that is not followed",
    "http_status": "the response has another status than 200",
    "too_large": (
        "the response is larger than 16 MiB, or there is no memory for the samples of "
        "its engines"
    ),
    "malformed": (
        "the response is cut off or is no metrics text, or has impossible values"
    ),
    "unrecognized": (
        "the response is metrics, but of no supported server, or of several of "
        "different kinds; also of each poll that is left out because reading empties "
        "the server's /metrics (TensorRT-LLM)"
    ),
    "credentials": "the bearer token file cannot be read",
    "stale": (
        "the exporter itself was blocked or had too little processor time: the poll "
        "was left out, or its last result is too old to serve"
    ),
    "internal": "a defect of the exporter; its log has the traceback",
}


class Deployment(Struct, frozen=True):
    """What is known of an engine's deployment; an empty string where nothing is.

    Attributes:
        method: how drafts are made, from the speculative config: its method, or what
            vLLM derives from the drafter's name; else as the server says.
        draft_model: the model that makes them, from the speculative config.
        dialect: how the server writes its metrics.
        upstream_version: what the server says on `/version`.
        cost_profile: name of the cost profile.
    """

    method: str = ""
    draft_model: str = ""
    dialect: str = ""
    upstream_version: str = ""
    cost_profile: str = ""


class LearnedSteps(Struct, frozen=True):
    """The time of the engine's steps over the batch size, as learned from its
    inter-token latency.

    Attributes:
        num_speculative_tokens: tokens drafted for each request in these steps, 0
            without drafts.
        fit: the line; ``None`` if there is none yet.
        refused: why there is none, empty if nothing was observed.
    """

    num_speculative_tokens: int = 0
    fit: StepFit | None = None
    refused: str = ""


def learned(steps: EngineSteps, time: float) -> LearnedSteps:
    """Return the line that is in use at `time`: of steps with drafts, else of steps
    without.
    """
    kind = steps.drafting
    if steps.plain.bins and not steps.drafting.bins:
        kind = steps.plain
    fit = kind.fit(time)
    if not isinstance(fit, str):
        return LearnedSteps(kind.k, fit)
    refused = fit if kind.bins or kind.refused else ""
    return LearnedSteps(kind.k, refused=refused)


class EngineResult(Struct, frozen=True):
    """One engine of a target after a successful poll.

    As polled, quality and payoff have no reasons, advice that follows from an undecided
    payoff is empty, and of the findings there are those on the configuration alone:
    `pipeline.explained` adds the rest.

    Attributes:
        model_name: the server's label, empty where it has none.
        engine: the server's label, empty where it has none, and other labels that
            separate engines.
        deployment: what is known of how it was started.
        activity: its activity state, with the reason.
        quality: how good its acceptance is; without a level unless it is active.
        payoff: whether speculation is worth it; without a verdict unless it is active.
        advice: which K it should have, and why.
        findings: what is wrong and what to do about it.
        state_code: its state as a number, the worst first: 2 harmful, 3 likely harmful,
            4 bypassed, 5 unknown, 6 marginal, 7 likely beneficial, 8 beneficial, 9 not
            judged, 10 warming up, 11 idle, 12 off.
        advised_speedup_ratio: estimated speedup with the advised K over that with the
            present one; ``None`` without both.
        judged_window: the window that quality and payoff look at: a shorter one while
            it shows the opposite.
        num_speculative_tokens: K: the highest position plus one.
        scheduled_num_speculative_tokens: the K that the configured schedule has for the
            present batch.
        counters: cumulative values as the server gave them.
        load: load gauges as the server gave them.
        drafts_reaching_position: at index i, the drafts that got to position i: of the
            engine's life, or, if it counts the drafts that had a token at i, since the
            exporter first saw it.
        accepted_tokens_per_draft: the exact distribution since the engine started.
        windows: derived values, one entry per window that holds two samples.
        steps: learned step times.
        uptime_decay_ratio: lost share of the acceptance length since the first hours
            that were seen of this run, 0 unless it was lost little by little.
        engine_resets_total: detected resets of its counters.
        inconsistent_samples_total: number of its inconsistent samples.
        defects: what was inconsistent in the newest sample.
    """

    model_name: str
    engine: str
    activity: Activity = Activity()
    deployment: Deployment = Deployment()
    quality: Quality = Quality()
    payoff: Payoff = Payoff()
    advice: Advice = Advice()
    findings: tuple[Finding, ...] = ()
    state_code: int = StateCode.NOT_JUDGED.value
    advised_speedup_ratio: float | None = None
    judged_window: str = ""
    num_speculative_tokens: int | None = None
    scheduled_num_speculative_tokens: int | None = None
    counters: Counters = Counters()
    load: Load = Load()
    drafts_reaching_position: tuple[float, ...] = ()
    accepted_tokens_per_draft: Distribution | None = None
    windows: tuple[Measures, ...] = ()
    steps: LearnedSteps = LearnedSteps()
    uptime_decay_ratio: float | None = None
    engine_resets_total: int = 0
    inconsistent_samples_total: int = 0
    defects: tuple[str, ...] = ()

    @property
    def key(self) -> EngineKey:
        """The engine's identity."""
        return EngineKey(self.model_name, self.engine)

    def window(self, name: str) -> Measures | None:
        """Return the measures of the window called `name`, where it is published."""
        return next((m for m in self.windows if m.window == name), None)


class PollFailure(Struct, frozen=True):
    """Why a poll failed: the `reason` label of `poll_errors_total`, and a sentence for
    people.
    """

    reason: str
    message: str


class TargetResult(Struct, frozen=True):
    """One server after a poll, successful or not. After a failure it has no engines:
    nothing is stale.

    Attributes:
        target: the server's address, without secrets.
        up: whether the last poll succeeded.
        failure: why not.
        poll_duration_seconds: how long the last poll took; ``None`` before the first.
        last_success_timestamp_seconds: Unix time of the last successful poll.
        poll_errors_total: failed polls by reason.
        engines: one result per engine, sorted by identity.
    """

    target: str
    up: bool = False
    failure: PollFailure | None = None
    poll_duration_seconds: float | None = None
    last_success_timestamp_seconds: float | None = None
    poll_errors_total: dict[str, int] = field(default_factory=dict)
    engines: tuple[EngineResult, ...] = ()


class Discovered(Struct, frozen=True):
    """A name that is resolved to servers at each poll interval.

    Attributes:
        name: the name, as configured.
        up: whether the last resolution gave servers.
        targets: number of its servers that are polled; the last known ones for five
            minutes if there is no answer.
        failure: why there is no answer.
    """

    name: str
    up: bool = False
    targets: int = 0
    failure: str = ""


class Reload(Struct, frozen=True):
    """How the last reading of the configuration ended.

    Attributes:
        successful: whether the configuration in force is the newest one.
        success_timestamp_seconds: Unix time at which the configuration in force was
            read.
    """

    successful: bool = True
    success_timestamp_seconds: float = 0.0


class ExporterResult(Struct, frozen=True):
    """All that the exporter knows.

    Attributes:
        version: of the exporter.
        timestamp_seconds: Unix time of this result.
        targets: one result per server, in the order of the configuration.
        thresholds: every threshold in force by name.
        model_thresholds: the same by model, if the exporter watches several: PromQL
            cannot join several thresholds with several models.
        reload: how the last reading of the configuration ended.
        requests: what is known of single requests, if there is a tap or pushes.
        discoveries: one result per name that is resolved to servers.
    """

    version: str
    timestamp_seconds: float
    targets: tuple[TargetResult, ...] = ()
    thresholds: dict[str, float] = field(default_factory=dict)
    model_thresholds: dict[str, dict[str, float]] = field(default_factory=dict)
    reload: Reload = Reload()
    requests: RequestsResult | None = None
    discoveries: tuple[Discovered, ...] = ()

    @property
    def several_targets(self) -> bool:
        """Whether series need the label `target`; always if servers come and go."""
        return len(self.targets) > 1 or bool(self.discoveries)


def thresholds_by_model(
    targets: Iterable[TargetResult], thresholds: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Return the thresholds in force for each model that the targets serve; nothing for
    a single one.
    """
    models = {engine.model_name for target in targets for engine in target.engines}
    if len(models) < 2:
        return {}
    return dict.fromkeys(sorted(models), thresholds)
