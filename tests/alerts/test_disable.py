"""The law of the bundle: nobody is told to disable what pays, and everybody to disable
what is hopeless.

Random models are run through promtool together. Their phases say themselves when
speculation is beneficial on all engines of a model, and when it is so bad that the
alert must be there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from alerts.promtool import History, Query, verify
from alerts.world import Phase, World
from vllm_specdec_exporter.config.thresholds import Thresholds

ALERT = "VLLMSpecDecodeDisable"
MODELS = 14
MINUTES = 110
#: Rule groups run side by side: what one has just found, another may see a minute
#: later.
LAG = 1
#: Drafts in twenty of thirty minutes, a gauge that is looked back at for three, fifteen
#: minutes of `for`.
CERTAIN = 40
THRESHOLDS = Thresholds()

BAD = (0.0, 0.01, 0.05, 0.1, 0.15)
ANY = (0.0, 0.05, 0.12, 0.2, 0.3, 0.45, 0.5, 0.53, 0.6, 0.75, 0.9, 1.0)
SPEEDUPS = (None, 0.6, 0.89, 0.95, 1.0, 1.02, 1.1, 1.19, 1.2, 1.21, 1.3, 2.0)


def phase(draw: random.Random, positions: int, *, bad: bool = False) -> Phase:
    """Draw some minutes of an engine; where it is bad, hardly anything is accepted for
    long.
    """
    acceptance = sorted(draw.choices(BAD if bad else ANY, k=positions), reverse=True)
    scale = 0.18 / max(0.18, sum(acceptance)) if bad else 1.0
    action, recommended = draw.choice(
        [("disable", 0), ("keep", positions), ("insufficient_data", None)]
    )
    return Phase(
        minutes=draw.randint(40, 60) if bad else draw.randint(1, 40),
        drafts=draw.choice([200, 1000] if bad else [0, 30, 120, 200, 1000]),
        acceptance=tuple(scale * ratio for ratio in acceptance),
        plain_tokens=draw.choice([0, 100]),
        speedup=draw.choice(SPEEDUPS),
        basis=draw.choice(["modelled", "observed", "measured"]),
        action=action,
        recommended_k=recommended,
        restart=draw.random() < 0.25,
    )


def life(draw: random.Random) -> tuple[Phase, ...]:
    """Draw the phases of an engine, until the time is over."""
    positions = draw.randint(1, 4)
    if draw.random() < 0.5:
        found = [phase(draw, positions, bad=True)]
    else:
        found = []
    while (left := MINUTES - sum(one.minutes for one in found)) > 0:
        one = phase(draw, positions)
        found.append(replace(one, minutes=min(one.minutes, left)))
    return tuple(found)


#: Whatever is drawn, the law has something to say of these.
HOPELESS = Phase(MINUTES, drafts=1000, acceptance=(0.1, 0.0, 0.0), speedup=None)
PAYING = Phase(MINUTES, drafts=1000, speedup=1.3)


@dataclass
class Engine:
    """What is known of an engine at every minute."""

    at: list[Phase] = field(default_factory=list)  # its phase
    #: Drafts since the minute before, of which a restart shows none.
    drafts: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)  # accepted tokens likewise

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
    return all(
        one is not None and one > THRESHOLDS.beneficial_speedup for one in speedups
    )


def hopeless(model: list[Engine], minute: int) -> bool:
    """Return whether hardly anything is accepted of many drafts, and nothing has shown
    that it helps.
    """
    last = slice(minute - 4, minute + 1)
    drafts = sum(sum(engine.drafts[last]) for engine in model)
    accepted = sum(sum(engine.accepted[last]) for engine in model)
    if drafts < 1.02 * THRESHOLDS.advice_minimum_drafts:
        return False
    if 1 + accepted / drafts > 0.999 * THRESHOLDS.disable_mean_acceptance_length:
        return False
    now = [engine.at[minute] for engine in model]
    if any(one.speedup is not None for one in now):
        known = now
    else:
        known = [p for e in model for p in e.at[:minute]]
    for phase in known:
        if phase.speedup is not None and phase.speedup >= THRESHOLDS.harmful_speedup:
            return False
    return True


def must_be_silent(model: list[Engine], minute: int) -> bool:
    """Return whether the law forbids the alert."""
    return all(pays(model, minute - lag) for lag in range(LAG + 1))


def must_fire(model: list[Engine], minute: int) -> bool:
    """Return whether the alert must be there."""
    return minute > CERTAIN + 5 and all(
        hopeless(model, minute - back) for back in range(CERTAIN + 1)
    )


def _query(minute: int, names: list[str], value: float | None) -> Query:
    # Where an estimate says that it pays, it may be said that this is to be measured.
    action = "disable" if value is None else ".+"
    expr = (
        f'max by (model_name) (ALERTS{{alertname="{ALERT}", alertstate="firing", '
        f'action=~"{action}", '
        f'model_name=~"{"|".join(names)}"}})'
    )
    if value is None:
        samples = {}
    else:
        samples = {f'{{model_name="{name}"}}': value for name in names}
    return Query(minute, expr, samples)


@pytest.mark.full
def test_nobody_is_told_to_disable_what_pays_and_everybody_what_is_hopeless(
    tmp_path: Path,
) -> None:
    draw = random.Random(1)
    drawn = [[life(draw) for _ in range(draw.randint(1, 2))] for _ in range(MODELS)]
    world = World(THRESHOLDS)
    known = {}
    lives = {}
    for index, model in enumerate([*drawn, [(HOPELESS,)], [(PAYING,)]]):
        name = f"model-{index}"
        lives[name], known[name] = model, [Engine.of(lived) for lived in model]
        for number, lived in enumerate(model):
            world.engine(
                *lived,
                model=name,
                instance=f"{name}:9850",
                engine=str(number),
                exporter=number == 0,
            )
    queries = []
    assert any(must_fire(model, MINUTES - 1) for model in known.values())
    assert any(must_be_silent(model, MINUTES - 1) for model in known.values())
    for minute in range(20, MINUTES):
        for rule, value in ((must_be_silent, None), (must_fire, 1.0)):
            if names := [name for name, model in known.items() if rule(model, minute)]:
                queries.append(_query(minute, names, value))
    complaint = verify(
        tmp_path, History("law", world, queries), rules={ALERT}, texts=False
    )
    wrong = [
        f"{name}: {model}" for name, model in lives.items() if f'"{name}"' in complaint
    ]
    assert complaint == "", "\n".join([complaint, *wrong])
