"""The pipeline: from the state and the newest reading of an engine to its published
result.

`judge_reading` takes each engine of a response through four steps: the state with the
new sample (`state`), what follows from its windows (`polled_engine`), the judgement of
that (`judgement.judge`), and the result (`result`). It leaves out reasons and findings,
which `explained` adds when they are read.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..engines.reading import EngineKey, EngineReading, Reading
from ..judgement.activity import ActivityState
from ..judgement.advice import Advice
from ..judgement.case import Case
from ..judgement.findings import Verdicts
from ..judgement.judge import Judgement, explain, judge_engine
from ..judgement.state import state_code
from ..measures.measures import DraftShape
from .polled_engine import PolledEngine, PolledServer
from .result import Deployment, EngineResult, TargetResult, learned
from .settings import Settings
from .state import EngineState


class JudgedEngine(Struct, frozen=True):
    """An engine after a poll, and what the reasons of its result are made from."""

    #: As polled, see `EngineResult`.
    result: EngineResult
    case: Case

    def explained(self) -> EngineResult:
        """Return the result with all reasons and findings."""
        decided = Verdicts(self.result.quality, self.result.payoff, self.result.advice)
        judgement = explain(self.case, decided)
        return replace(
            self.result,
            quality=judgement.quality,
            payoff=judgement.payoff,
            advice=judgement.advice,
            findings=judgement.findings,
        )


def explained(target: TargetResult, judged: Sequence[JudgedEngine]) -> TargetResult:
    """Return the result of a target with all reasons and findings; `judged` are its
    engines at its last successful poll.
    """
    if not target.engines:  # it is too old
        return target
    return replace(target, engines=tuple(engine.explained() for engine in judged))


def judge_reading(
    states: Mapping[EngineKey, EngineState],
    reading: Reading,
    time: float,
    settings: Settings,
    upstream_version: str = "",
    shapes: Mapping[str, DraftShape] | None = None,
    models: Collection[str] = (),
) -> tuple[dict[EngineKey, EngineState], tuple[JudgedEngine, ...]]:
    """Return the states and results of every engine in `reading`, taken at `time`
    seconds.

    `shapes` has draft lengths by model, from records of single requests; `models` are
    those of other servers with the same settings. The state of an engine that is no
    longer in the reading is dropped, so memory is bounded.
    """
    server = PolledServer(reading, upstream_version, shapes or {})
    served = {engine.key.model_name for engine in reading.engines}.union(models)
    new_states: dict[EngineKey, EngineState] = {}
    judged = []
    for engine in reading.engines:
        earlier = states.get(engine.key, EngineState())
        own_settings = settings.of_model(engine.key.model_name, served)
        polled = _poll(earlier, engine, time, settings=own_settings, server=server)
        judgement, current_advice = judge_engine(
            polled.case,
            polled.state.current_advice,
            time,
            settings.judged.seconds,
        )
        # What this judgement shows bounds the next one, so it is kept with the samples.
        new_states[engine.key] = replace(
            polled.state,
            current_advice=current_advice,
            opposite_at=time if polled.opposite else polled.state.opposite_at,
            overruled=polled.overruled,
            context_tokens=polled.context_tokens,
            trials=polled.trials,
        )
        judged.append(JudgedEngine(_result(polled, judgement), polled.case))
    return new_states, tuple(judged)


def interrupt(states: Mapping[EngineKey, EngineState]) -> dict[EngineKey, EngineState]:
    """Return the states after a failed poll: no window spans the interruption."""
    return {key: state.interrupt() for key, state in states.items()}


def _poll(
    earlier: EngineState,
    engine: EngineReading,
    time: float,
    *,
    settings: Settings,
    server: PolledServer,
) -> PolledEngine:
    """Return an engine at this poll, whose state was `earlier` before it."""
    baseline = settings.baseline
    mismatch = ""
    if baseline is not None:
        mismatch = baseline.why_not(engine.key.model_name, server.version)
    engine, state = earlier.add_reading(
        engine,
        time,
        process=server.reading.process,
        keep=settings.kept_seconds,
        baseline=None if mismatch else baseline,
    )
    return PolledEngine(
        engine=engine,
        state=state,
        time=time,
        settings=settings,
        server=server,
        mismatch=mismatch,
    )


def _result(polled: PolledEngine, judgement: Judgement) -> EngineResult:
    engine = polled.engine
    state = polled.state
    reading = polled.server.reading
    speculation = polled.settings.speculation
    window = polled.settings.judged.name
    if polled.judged:
        window = polled.judged.window
    off = judgement.activity.state is ActivityState.OFF
    speculates = reading.speculative and not off
    scheduled_k = speculation.scheduled_k(engine.load.requests_running)
    return EngineResult(
        model_name=engine.key.model_name,
        engine=engine.key.engine,
        deployment=Deployment(
            method=polled.method,
            draft_model=speculation.draft_model,
            dialect=reading.dialect,
            upstream_version=polled.server.version,
            cost_profile=polled.profile.name,
        ),
        activity=judgement.activity,
        quality=judgement.quality,
        payoff=judgement.payoff,
        advice=judgement.advice,
        findings=judgement.findings,
        state_code=state_code(judgement.activity, judgement.payoff, scheduled_k).value,
        advised_speedup_ratio=_advised_speedup_ratio(judgement.advice, polled.k),
        judged_window=window,
        num_speculative_tokens=polled.k if speculates else None,
        scheduled_num_speculative_tokens=scheduled_k,
        counters=engine.counters,
        load=engine.load,
        drafts_reaching_position=state.reaching,
        accepted_tokens_per_draft=state.distribution,
        windows=polled.windows,
        steps=learned(state.steps, polled.time),
        uptime_decay_ratio=state.uptime.decay_ratio,
        engine_resets_total=state.history.resets,
        inconsistent_samples_total=state.inconsistent_samples,
        defects=state.latest_defects,
    )


def _advised_speedup_ratio(advice: Advice, k: int | None) -> float | None:
    """Return the estimated speedup with the advised K over that with the present K."""
    speedups: dict[int | None, float] = {
        each.num_speculative_tokens: each.speedup for each in advice.options
    }
    advised = speedups.get(advice.num_speculative_tokens)
    present = speedups.get(k)
    if not advised or not present:
        return None
    return advised / present
