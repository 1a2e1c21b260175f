"""The law of the bundle: nobody is told to disable what pays.

Random worlds are run through promtool, several models at a time. Their phases say themselves when speculation
is beneficial on all engines of a model, and when it is so bad that the alert must be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st

from alerts.promtool import Query, verify
from alerts.world import Phase, World
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from pathlib import Path

MODELS = 8
MINUTES = 80
#: Rule groups run side by side: what one has just found, another may see a minute later.
LAG = 1
#: Five minutes that ratios are over, a gauge that is looked back at for three, fifteen minutes of `for`.
CERTAIN = 22
THRESHOLDS = Thresholds()

BAD = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.15])
ANY = st.sampled_from([0.0, 0.05, 0.12, 0.2, 0.3, 0.45, 0.5, 0.53, 0.6, 0.75, 0.9, 1.0])
SPEEDUPS = st.sampled_from([None, 0.6, 0.89, 0.95, 1.0, 1.02, 1.1, 1.19, 1.2, 1.21, 1.3, 2.0])


@st.composite
def phases(draw: st.DrawFn, positions: int, *, bad: bool = False) -> Phase:
    """Draw some minutes of an engine; where it is bad, hardly anything is accepted for long."""
    acceptance = draw(st.lists(BAD if bad else ANY, min_size=positions, max_size=positions))
    scale = 0.18 / max(0.18, sum(acceptance)) if bad else 1.0
    action, recommended = draw(
        st.sampled_from([("disable", 0), ("keep", positions), ("insufficient_data", None)])
    )
    return Phase(
        minutes=draw(st.integers(20, 40) if bad else st.integers(1, 40)),
        drafts=draw(st.sampled_from([200, 1000] if bad else [0, 30, 120, 200, 1000])),
        acceptance=tuple(sorted((scale * ratio for ratio in acceptance), reverse=True)),
        plain_tokens=draw(st.sampled_from([0, 100])),
        speedup=draw(SPEEDUPS),
        basis=draw(st.sampled_from(["estimated", "measured"])),
        action=action,
        recommended_k=recommended,
        restart=draw(st.booleans()) and draw(st.booleans()),
    )


@st.composite
def engines(draw: st.DrawFn) -> tuple[Phase, ...]:
    """Draw an engine: its phases, until the time is over."""
    positions = draw(st.integers(1, 4))
    found = [draw(phases(positions, bad=True))] if draw(st.booleans()) else []
    while (left := MINUTES - sum(phase.minutes for phase in found)) > 0:
        phase = draw(phases(positions))
        found.append(replace(phase, minutes=min(phase.minutes, left)))
    return tuple(found)


MODEL = st.lists(engines(), min_size=1, max_size=2)
#: Whatever is drawn, the law has something to say of these.
HOPELESS = Phase(MINUTES, drafts=1000, acceptance=(0.1, 0.0, 0.0), speedup=None)
PAYING = Phase(MINUTES, drafts=1000, speedup=1.3)


@dataclass
class Engine:
    """What is known of an engine at every minute.

    Attributes:
        at: its phase.
        drafts: drafts since the minute before, of which a restart shows none.
        accepted: accepted tokens likewise.
    """

    at: list[Phase] = field(default_factory=list)
    drafts: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, lived: tuple[Phase, ...]) -> Engine:
        """Return what is known of an engine that lived through these phases."""
        engine = cls()
        for phase in lived:
            for minute in range(phase.minutes):
                seen = bool(engine.at) and not (phase.restart and minute == 0)
                engine.drafts.append(engine.at[-1].drafts if seen else 0.0)
                engine.accepted.append(engine.at[-1].accepted if seen else 0.0)
                engine.at.append(phase)
        return engine


def pays(model: list[Engine], minute: int) -> bool:
    """Return whether the payoff of all engines of a model is beneficial."""
    speedups = [engine.at[minute].speedup for engine in model]
    return all(one is not None and one > THRESHOLDS.beneficial_speedup for one in speedups)


def hopeless(model: list[Engine], minute: int) -> bool:
    """Return whether hardly anything is accepted of many drafts, and nothing shows that it helps."""
    last = slice(minute - 4, minute + 1)
    drafts = sum(sum(engine.drafts[last]) for engine in model)
    accepted = sum(sum(engine.accepted[last]) for engine in model)
    if drafts < 1.02 * THRESHOLDS.advice_minimum_drafts:
        return False
    if 1 + accepted / drafts > 0.999 * THRESHOLDS.disable_mean_acceptance_length:
        return False
    for phase in (engine.at[minute] for engine in model):
        best = THRESHOLDS.harmful_speedup if phase.basis == "measured" else THRESHOLDS.beneficial_speedup
        if phase.speedup is not None and phase.speedup >= best:
            return False
    return True


def must_be_silent(model: list[Engine], minute: int) -> bool:
    """Return whether the law forbids the alert."""
    return all(pays(model, minute - lag) for lag in range(LAG + 1))


def must_fire(model: list[Engine], minute: int) -> bool:
    """Return whether the alert must be there, by mean acceptance length."""
    return minute > CERTAIN + 5 and all(hopeless(model, minute - back) for back in range(CERTAIN + 1))


def _query(minute: int, names: list[str], matchers: str, value: float | None) -> Query:
    expr = (
        'max by (model_name) (ALERTS{alertname="VLLMSpecDecodeDisable", alertstate="firing", '
        f'{matchers}model_name=~"{"|".join(names)}"}})'
    )
    samples = {} if value is None else {f'{{model_name="{name}"}}': value for name in names}
    return Query(minute, expr, samples)


@settings(
    max_examples=4,
    phases=[Stage.explicit, Stage.reuse, Stage.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(MODEL, min_size=MODELS, max_size=MODELS))
def _the_law_holds(folder: Path, models: list[list[tuple[Phase, ...]]]) -> None:
    world, known = World(THRESHOLDS), {}
    for index, lives in enumerate([*models, [(HOPELESS,)], [(PAYING,)]]):
        name = f"model-{index}"
        known[name] = [Engine.of(lived) for lived in lives]
        for number, lived in enumerate(lives):
            note(f"{name}, engine {number}: {lived}")
            world.engine(
                *lived, model=name, instance=f"{name}:9850", engine=str(number), exporter=number == 0
            )
    queries = []
    assert any(must_fire(model, MINUTES - 1) for model in known.values())
    assert any(must_be_silent(model, MINUTES - 1) for model in known.values())
    for minute in range(20, MINUTES):
        for rule, matchers, value in (
            (must_be_silent, "", None),
            (must_fire, 'reason="mean_acceptance_length", ', 1.0),
        ):
            if names := [name for name, model in known.items() if rule(model, minute)]:
                queries.append(_query(minute, names, matchers, value))
    complaint = verify(folder, world, queries)
    assert complaint == "", complaint


@pytest.mark.full
def test_nobody_is_told_to_disable_what_pays_and_everybody_to_disable_what_is_hopeless(
    tmp_path: Path,
) -> None:
    _the_law_holds(tmp_path)


# --- that it fires at all, for each of its reasons

REJECTED = Phase(40, acceptance=(0.6, 0.3, 0.0), speedup=1.1)


@pytest.mark.parametrize(
    ("phase", "reasons"),
    [
        (replace(REJECTED, acceptance=(0.1, 0.0, 0.0)), {"mean_acceptance_length", "acceptance_ratio"}),
        (REJECTED, {"acceptance_ratio"}),
        (
            replace(REJECTED, acceptance=(0.9, 0.7, 0.5), speedup=0.9, action="disable", recommended_k=0),
            {"payoff"},
        ),
    ],
    ids=["mean-acceptance-length", "acceptance-ratio", "payoff"],
)
def test_it_fires_for_each_of_its_reasons(phase: Phase, reasons: set[str], tmp_path: Path) -> None:
    world = World()
    world.engine(phase)
    expr = 'max by (reason) (ALERTS{alertname="VLLMSpecDecodeDisable", alertstate="firing"})'
    query = Query(38, expr, {f'{{reason="{reason}"}}': 1.0 for reason in reasons})
    complaint = verify(tmp_path, world, [query])
    assert complaint == "", complaint


@pytest.mark.parametrize(
    "phase",
    [
        replace(REJECTED, speedup=1.21),
        replace(REJECTED, speedup=1.21, basis="measured"),
        replace(REJECTED, speedup=1.3, action="disable", recommended_k=0),
    ],
    ids=["estimated", "measured", "advised-off"],
)
def test_it_never_fires_while_speculation_is_beneficial(phase: Phase, tmp_path: Path) -> None:
    world = World()
    world.engine(phase)
    query = Query(38, 'count_over_time(ALERTS{alertname="VLLMSpecDecodeDisable"}[38m])', {})
    complaint = verify(tmp_path, world, [query])
    assert complaint == "", complaint


def test_it_ends_when_a_measurement_gives_way_to_a_beneficial_estimate(tmp_path: Path) -> None:
    world = World()
    world.engine(
        replace(REJECTED, minutes=30, speedup=0.8, basis="measured"),
        replace(REJECTED, minutes=10, speedup=1.5),
    )
    expr = 'max by (reason) (ALERTS{alertname="VLLMSpecDecodeDisable", alertstate="firing"})'
    before = Query(29, expr, {'{reason="acceptance_ratio"}': 1.0})
    complaint = verify(tmp_path, world, [before, Query(30 + LAG, expr, {})])
    assert complaint == "", complaint
