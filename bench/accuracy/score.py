"""How true the estimated speedup is: docs/reference/estimate-accuracy.md from
measurements.yaml.

    python bench/accuracy/score.py              write the page
    python bench/accuracy/score.py --check      fail if it is not current, or if an
                                                estimate misses its goal
    python bench/accuracy/score.py --fit        print the overheads that fit best, for
                                                `economics/hardware.py`
    python bench/accuracy/score.py --intervals  print the tables of
                                                `economics/hardware.py`

Each measurement is estimated from what an operator would know, and from its mean
acceptance length:

* modelled: with hardware, the model or its size, method, K and batch size, by the
  roofline model;
* generic: with the method, K and batch size alone, by the shipped profile;
* calibrated: from step times of the same deployment at other batch sizes or other K.

The modelled ones are estimated by overheads fitted without their deployment, and their
intervals are those of the other deployments. Step times that bench/gpu/step_times.py
wrote to bench/gpu/rows are held against the roofline model's.
"""

import contextlib
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import NormalDist, mean, median
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import fields, replace

from vllm_specdec_exporter.economics.calibration import (
    CalibrationError,
    StepTime,
    calibrate,
)
from vllm_specdec_exporter.economics.cost import CostProfile
from vllm_specdec_exporter.economics.hardware import (
    CONTEXT_ERROR,
    METHOD_FAMILIES,
    PLAIN,
    PLAIN_KINDS,
    REGIMES,
    SHARED_ERROR,
    SPEEDUP,
    STEP,
    WIDER_PER_DOUBLING,
    Machine,
    Overheads,
    context_error,
    method_family,
    parse_machine,
    plain_kind,
    regime,
    widening,
)
from vllm_specdec_exporter.economics.known_models import known_model
from vllm_specdec_exporter.economics.model import (
    Model,
    from_architecture,
    from_parameters,
)
from vllm_specdec_exporter.economics.observed_step import (
    ObservedStep,
    with_observed_step,
    without_prompts,
)
from vllm_specdec_exporter.economics.profiles import (
    Hardware,
    for_method,
    hardware_profile,
    is_dated,
)
from vllm_specdec_exporter.economics.sizes import PRECISIONS, accelerators
from vllm_specdec_exporter.economics.speedup import estimate
from vllm_specdec_exporter.economics.statistics import (
    Interval,
    percentile,
    t_expansion,
)
from vllm_specdec_exporter.engines import ENGINES
from vllm_specdec_exporter.judgement.payoff import (
    PayoffVerdict,
    leans,
    loss_probability,
)

HERE = Path(__file__).parent
GPU = HERE.parent / "gpu"
DOCS = HERE.parents[1] / "docs"
PAGE = DOCS / "reference" / "estimate-accuracy.md"

#: The goals, for the measurements that nothing was fitted to.
MEDIAN_GOAL = {"modelled": 0.15, "calibrated": 0.05}
WRONG_GOAL = 0.02
HOLDS_GOAL = 0.88
#: What these two are for.
JUDGED = ("modelled", "observed", "calibrated", "generic")

#: Overheads before fitting, and the weight of the pull towards each in measurements: a
#: few measurements must not turn one of them to nonsense.
PRIOR = Overheads(**yaml.safe_load((HERE / "prior.yaml").read_text("utf-8")))
PULL = 1.0
#: Weight of a deployment in the fit, in measurements, however many it has.
DEPLOYMENT = 3.0
#: Sources are left out in so many parts: each part costs a fit of some seconds.
PARTS = 8
#: Share of the deployments that lie in an interval, the fewest that a class of their
#: own needs, and the least error of a speedup, as a logarithm. Published lengths and
#: times are rounded.
INTERVAL = 0.9
FEWEST = 5
LEAST = 0.15
_SHARES = (
    "bandwidth_quantized",
    "bandwidth_quantized_experts",
    "throughput_4bit",
    "routing",
)
#: Not fitted: bench/gpu measured them, and what is published hardly tells them from the
#: overheads.
_MEASURED = ("bandwidth", "throughput")


def _parameters(billions: float | None) -> float | None:
    if billions is None:
        return None
    return billions * 1e9


class Measurement(Struct, frozen=True):
    """One published speedup, and what it was measured with."""

    source: str  # where it is published
    url: str | None  # its address, None for notes without one
    engine: str  # with its version, if known
    target: str  # the served model
    parameters_billions: float  # of the target
    method: str  # as vLLM calls it
    k: int  # drafted tokens
    batch: int  # requests in the batch
    length: float  # mean acceptance length
    speedup: float  # over the same engine without speculation
    #: Accelerator as `--cost.hardware` has it; empty where it is not published.
    hardware: str = ""
    gpus: int = 1  # accelerators that the target is spread over
    #: Parameters that a token passes through, for a mixture of experts.
    active_billions: float | None = None
    precision: str = "bf16"  # of the weights
    context: float = 1000.0  # mean tokens of context
    data: str = ""  # the prompts
    plain_seconds: float | None = None  # time of a step without speculation
    step_seconds: float | None = None  # time of a step with drafts
    #: Rows of the output layer, where they differ from the usual.
    vocabulary: int | None = None
    #: Parameters of the draft model, for the method `draft_model`.
    draft_billions: float | None = None
    note: str = ""  # what else to know
    #: Mean tokens of a prompt, 0 where prompts are not in the times, or not published.
    prompt: float = 0.0
    output: float = 1.0  # mean tokens of an answer
    draft_share: float = 1.0  # share of the steps that have drafts

    @property
    def prompts_per_token(self) -> float:
        """Prompt tokens for each generated one."""
        return self.prompt / self.output

    @property
    def drafting_seconds(self) -> float:
        """The time of a step with drafts: as published, or by the speedup."""
        return (
            self.step_seconds
            or (self.plain_seconds or math.nan) * self.length / self.speedup
        )

    @property
    def group(self) -> str:
        """Measurements of one deployment, which are not independent of each other."""
        return f"{self.url or self.source} {self.target} {self.method}"

    @property
    def kind(self) -> tuple[str, str]:
        """Family of the method, and regime of the deployment."""
        return method_family(self.method), regime(self.model)

    @property
    def model(self) -> Model:
        """The served model."""
        physical = self.profile().physical
        assert physical is not None
        return physical.target

    def profile(self, overheads: Overheads | None = None) -> CostProfile:
        """Return the roofline model of the deployment, by what an operator would know
        of it.
        """
        profile = roofline(self)
        physical = profile.physical
        if overheads is None or physical is None:
            return profile
        machine = replace(physical.machine, overheads=overheads)
        return replace(profile, physical=replace(physical, machine=machine))

    def prompt_seconds(self, profile: CostProfile) -> tuple[float, float]:
        """Return the time of the prompts in a step without drafts, and for as many
        tokens in one with drafts.
        """
        physical = profile.physical
        assert physical is not None
        computed = self.batch * self.prompts_per_token
        plain = computed * physical.prompt_token_seconds()
        return plain, plain + computed * physical.draft_prompt_token_seconds()


@cache  # a fit asks for each thousands of times, with other overheads
def roofline(row: Measurement) -> CostProfile:
    """Return the roofline model of a measurement's deployment."""
    precision = PRECISIONS[row.precision]
    parameters = row.parameters_billions * 1e9
    published = known_model(row.target, parameters)
    if published is not None:
        target = from_architecture(published.architecture, precision)
    else:
        target = from_parameters(
            parameters, precision, _parameters(row.active_billions)
        )
    if row.vocabulary:
        target = replace(target, vocabulary=row.vocabulary)
    name, _, version = row.engine.partition(" ")
    engine = next((each for each in ENGINES if each.name == name), None)
    machine = Machine(parse_machine(row.hardware)[1].accelerator, row.gpus)
    profile = hardware_profile(
        for_method(row.method),
        Hardware(row.hardware, machine, target),
        method=row.method,
        draft_parameters=_parameters(row.draft_billions),
        dated=is_dated(engine, version),
        unsplit=engine is None or not engine.splits_attention,
    )
    assert profile is not None, row
    prompts = (row.prompts_per_token, row.prompts_per_token)
    return profile.at_context(row.context).with_prompts(prompts)


class Estimated(Struct, frozen=True):
    """A measurement with its estimate."""

    row: Measurement
    basis: str
    speedup: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The relative error of the estimate."""
        return abs(self.speedup / self.row.speedup - 1)

    @property
    def verdict(self) -> str:
        """Whether the interval lies on the side of 1 that the measurement does."""
        if self.low <= 1 <= self.high:
            return "unknown"
        if (self.low > 1) is (self.row.speedup > 1):
            return "right"
        return "wrong"

    @property
    def side(self) -> PayoffVerdict | None:
        """Which side of 1 is told: that of the verdict, else the one that is likely."""
        if self.verdict != "unknown":
            if self.low > 1:
                return PayoffVerdict.BENEFICIAL
            return PayoffVerdict.HARMFUL
        loss = loss_probability(Interval(self.speedup, self.low, self.high))
        return leans(loss, (self.low, self.high))

    @property
    def side_is_right(self) -> bool:
        """Whether the side that is told was measured."""
        return (self.side is PayoffVerdict.HARMFUL) is (self.row.speedup < 1)

    @property
    def on_the_right_side(self) -> bool:
        """Whether the estimate says gain or loss as the measurement does."""
        return (self.speedup > 1) is (self.row.speedup > 1)

    @property
    def holds(self) -> bool:
        """Whether the measured speedup lies in the interval."""
        return self.low <= self.row.speedup <= self.high


def load(name: str = "measurements.yaml") -> list[Measurement]:
    """Return all measurements of a file."""
    measurements = []
    for entry in yaml.safe_load((HERE / name).read_text("utf-8")):
        rows = entry.pop("rows")
        measurements += [Measurement(**entry, **row) for row in rows]
    return measurements


class LeftOut(Struct, frozen=True):
    """A measurement, modelled by overheads fitted without its deployment; errors are
    logarithms.
    """

    row: Measurement
    profile: CostProfile
    speedup: float  # measured over modelled speedup
    #: Measured over estimated time of a step without drafts, if it was measured.
    plain: float = math.nan
    #: Measured over modelled time of a step with drafts, likewise.
    step: float = math.nan


def deployments(rows: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Return the measurements by deployment, ordered by the checksums of their
    names.
    """
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    # Mixed, and the same from run to run.
    return {name: groups[name] for name in sorted(groups, key=_checksum)}


def _checksum(name: str) -> int:
    return zlib.crc32(name.encode())


def by_step(
    row: Measurement, profile: CostProfile, error: tuple[float, float] | None = None
) -> CostProfile:
    """Return the profile with the measured step with drafts."""
    step = ObservedStep(
        row.drafting_seconds,
        row.batch,
        row.k,
        share=row.draft_share,
        emitted=row.length,
    )
    return with_observed_step(profile, step, error)


def left_out(rows: Sequence[Measurement]) -> list[list[LeftOut]]:
    """Return the errors of each deployment by overheads that its source had no part
    in.
    """
    rows = [row for row in rows if row.hardware]
    sources = sorted({row.source for row in rows}, key=_checksum)
    errors_by_deployment = []
    for part in range(PARTS):
        # Fitted without this part: an estimate must not have seen its measurement.
        omitted = sources[part::PARTS]
        overheads = fit([row for row in rows if row.source not in omitted])
        left = [row for row in rows if row.source in omitted]
        errors_by_deployment += [
            [errors_of(row, overheads) for row in group]
            for group in deployments(left).values()
        ]
    return errors_by_deployment


def errors_of(row: Measurement, overheads: Overheads) -> LeftOut:
    """Return the errors of a measurement by these overheads."""
    profile = row.profile(overheads)
    plain, drafting = profile.step_times(row.k, row.batch)
    prompts, drafted_prompts = row.prompt_seconds(profile)
    # What a step costs by the measured speedup, in plain steps, without prompts.
    cost = row.length * ((plain + prompts) / row.speedup - drafted_prompts) / plain
    speedup = math.log(drafting / plain / max(cost, 0.5))
    of_plain = math.nan
    of_step = math.nan
    if row.plain_seconds:
        step = without_prompts(row.drafting_seconds, drafted_prompts * row.length)
        of_step = math.log(step / drafting)
        observed = by_step(row, profile).step_cost(row.k, row.batch)
        measured = without_prompts(row.plain_seconds, prompts)
        of_plain = math.log(measured / step * observed)
    return LeftOut(row, profile, speedup=speedup, plain=of_plain, step=of_step)


def reach(errors: Sequence[Sequence[float]], centre: float, freedom: int) -> float:
    """Return how far from the centre the error of one more deployment lies in a share
    `INTERVAL` of cases.

    `1 + 1 / n` counts the error of the centre; where that is taken to be 0, the
    interval is a bit too wide.
    """
    # A deployment counts once, however many measurements it has.
    squares = 0.0
    for group in errors:
        squares += mean((error - centre) ** 2 for error in group)
    variance = squares / freedom
    t = t_expansion(NormalDist().inv_cdf((1 + INTERVAL) / 2), freedom)
    return t * math.sqrt(variance * (1 + 1 / len(errors)))


def beyond_context(error: float, row: Measurement) -> float:
    """Return what is left of an error beyond what its context brings, 0 if nothing."""
    left = abs(error) - context_error(row.context)
    return math.copysign(max(0.0, left), error)


def speedup_interval(
    groups: Sequence[Sequence[LeftOut]], kind: tuple[str, str]
) -> float:
    """Return the factor of a speedup's interval: of this kind or of its family; of its
    regime where these have few deployments, but no narrower than their own.
    """
    of_kind = []
    of_family = []
    of_regime = []
    for group in groups:
        errors = [
            beyond_context(error.speedup, error.row) / widening(error.row.batch)
            for error in group
        ]
        group_kind = group[0].row.kind
        if group_kind == kind:
            of_kind.append(errors)
        if group_kind[0] == kind[0]:
            of_family.append(errors)
        if group_kind[1] == kind[1]:
            of_regime.append(errors)
    # Not centred on the mean error of the class, which is that of its few sources and
    # does not carry over to another one: with each source left out, estimates moved by
    # it are worse, and fewer lie inside their intervals.
    # The narrowest class that has enough deployments to show a spread.
    for errors in (of_kind, of_family):
        if len(errors) >= FEWEST:
            return math.exp(max(LEAST, reach(errors, 0.0, len(errors))))
    widest = max(LEAST, reach(of_regime, 0.0, len(of_regime)))
    if len(of_family) > 1:
        widest = max(widest, reach(of_family, 0.0, len(of_family)))
    return math.exp(widest)


def with_steps(groups: Sequence[Sequence[LeftOut]]) -> list[list[LeftOut]]:
    """Return the measurements whose steps are published, by deployment."""
    timed = []
    for group in groups:
        errors = [error for error in group if error.row.plain_seconds]
        if errors:
            timed.append(errors)
    return timed


def plain_interval(
    groups: Sequence[Sequence[LeftOut]], where: str
) -> tuple[float, float]:
    """Return the factors of the interval of the time of a step without drafts, for a
    kind of targets.
    """
    timed = [
        group for group in with_steps(groups) if plain_kind(group[0].row.model) == where
    ]
    errors = [
        [beyond_context(error.plain, error.row) for error in group] for group in timed
    ]
    centre = mean(map(mean, errors))
    far = reach(errors, centre, len(errors) - 1)
    return math.exp(centre - far), math.exp(centre + far)


def intervals(
    groups: Sequence[Sequence[LeftOut]],
) -> tuple[dict[tuple[str, str], float], float, dict[str, tuple[float, float]]]:
    """Return the numbers of `economics/hardware.py`."""
    speedups = {
        kind: round(speedup_interval(groups, kind), 2)
        for kind in product(METHOD_FAMILIES, REGIMES)
    }
    plain = {}
    for where in PLAIN_KINDS:
        low, high = plain_interval(groups, where)
        plain[where] = round(low, 2), round(high, 2)
    steps = [[error.step for error in group] for group in with_steps(groups)]
    return speedups, round(math.exp(reach(steps, 0.0, len(steps))), 2), plain


def modelled(groups: Sequence[Sequence[LeftOut]]) -> list[Estimated]:
    """Return the estimates with hardware and model known, each with the interval of the
    other deployments.
    """
    estimates = []
    for group in groups:
        factor = speedup_interval(_without(groups, group), group[0].row.kind)
        for measured in group:
            profile = replace(measured.profile, uncertainty=factor - 1)
            estimates.append(by_profile(measured.row, "modelled", profile))
    return estimates


def _without(
    groups: Sequence[Sequence[LeftOut]], omitted: Sequence[LeftOut]
) -> list[Sequence[LeftOut]]:
    """Return the deployments of other sources."""
    source = omitted[0].row.source
    return [group for group in groups if group[0].row.source != source]


def by_profile(row: Measurement, basis: str, profile: CostProfile) -> Estimated:
    """Return the estimate of a profile."""
    found = estimate(row.length, row.k, row.batch, profile)
    return Estimated(
        row,
        basis,
        speedup=found.speedup,
        low=found.speedup_low,
        high=found.speedup_high,
    )


def observed(groups: Sequence[Sequence[LeftOut]]) -> list[Estimated]:
    """Return the estimates from the measured step with drafts, and the plain step as
    modelled.
    """
    estimates = []
    measured = with_steps(groups)
    for group in measured:
        kind = plain_kind(group[0].row.model)
        error = plain_interval(_without(measured, group), kind)
        for timed in group:
            profile = by_step(timed.row, timed.profile, error)
            estimates.append(by_profile(timed.row, "observed", profile))
    return estimates


def calibrated(rows: Sequence[Measurement]) -> list[Estimated]:
    """Return the estimates from step times of the same deployment.

    Every second pair of K and batch size calibrates; the others are estimated.
    """
    estimates = []
    for members in deployments([row for row in rows if row.plain_seconds]).values():
        points = sorted({(row.k, row.batch) for row in members})
        chosen = set(points[::2])
        used = [row for row in members if (row.k, row.batch) in chosen]
        times = [StepTime(row.batch, 0, row.plain_seconds or 0.0) for row in used]
        times += [StepTime(row.batch, row.k, row.drafting_seconds) for row in used]
        # too few step times to show an error
        with contextlib.suppress(CalibrationError):
            profile = within(calibrate(times, members[0].method), used)
            estimates += [
                by_profile(row, "calibrated", profile.at_context(row.context))
                for row in members
                if row not in used
            ]
    return estimates


def within(profile: CostProfile, used: Sequence[Measurement]) -> CostProfile:
    """Return the profile with what it was measured with, as `calibrate` writes it."""
    batches = [float(row.batch) for row in used]
    contexts = [row.context for row in used]
    return replace(
        profile,
        batches=(min(batches), max(batches)),
        contexts=(min(contexts), max(contexts)),
    )


def fit(rows: Sequence[Measurement]) -> Overheads:
    """Return the overheads with the least loss, by a search along each of them."""
    weights = {
        name: DEPLOYMENT / len(group) for name, group in deployments(rows).items()
    }

    # Linear beyond 10 %: one wrong publication must not bend the fit.
    def robust(error: float) -> float:
        if abs(error) > 0.1:
            return abs(error)
        return error * error / 0.2 + 0.05

    def loss(overheads: Overheads) -> float:
        total = 0.0
        for row in rows:
            profile = row.profile(overheads)
            plain, drafting = profile.step_times(row.k, row.batch)
            prompts, drafted_prompts = row.prompt_seconds(profile)
            plain += prompts
            drafting += drafted_prompts * row.length
            error = robust(math.log(row.length * plain / drafting / row.speedup))
            if row.plain_seconds:
                error += robust(math.log(row.plain_seconds / plain))
            total += error * weights[row.group]
        ratios = [
            getattr(overheads, f.name) / getattr(PRIOR, f.name)
            for f in fields(Overheads)
        ]
        return total + PULL * sum(math.log(ratio) ** 2 for ratio in ratios)

    # A search along each overhead in turn, since the loss has kinks and no derivative.
    best = PRIOR
    least_loss = loss(PRIOR)
    fitted = [name for name in Overheads.__struct_fields__ if name not in _MEASURED]
    step = 1.5
    while step > 1.01:
        improved = False
        for name in fitted:
            for factor in (step, 1 / step):
                value = getattr(best, name) * factor
                # A share is below 1, and verification costs no less than decoding.
                if (name in _SHARES and value > 0.95) or (
                    name == "verification" and value < 1
                ):
                    continue
                trial = replace(best, **{name: value})
                trial_loss = loss(trial)
                if trial_loss < least_loss - 1e-9:
                    best = trial
                    least_loss = trial_loss
                    improved = True
        if not improved:
            step = step**0.5
    return best


@cache
def decoder(name: str, precision: str) -> Model:
    """Return the layers that bench/gpu/step_times.py measures under this name."""
    shape = json.loads((GPU / "shapes.json").read_text("utf-8"))[name]
    layers = shape["layers"]
    hidden = shape["hidden"]
    size = shape["head_size"]
    experts = shape.get("experts", 0)
    used = shape.get("used", 0)
    mlp = 3 * hidden * shape["intermediate"]
    attention = 2 * hidden * size * (shape["heads"] + shape["kv_heads"])
    routed = layers * experts * mlp
    dense = layers * attention + shape.get("vocabulary", 0) * hidden
    if not experts:
        dense += layers * mlp
    return Model(
        parameters=dense + routed,
        active_parameters=dense + layers * used * mlp,
        precision=PRECISIONS[precision],
        layers=layers,
        hidden=hidden,
        kv_values=layers * 2 * shape["kv_heads"] * size,
        routed_parameters=routed,
        experts=experts,
        used=used,
    )


def step_errors(
    hardware: str, rows: Sequence[dict[str, Any]]
) -> tuple[list[float], list[float]]:
    """Return the relative errors of the roofline model for rows of bench/gpu/rows: of
    times, and of ratios.

    A ratio is that of a step with several tokens of each request to one with a single
    token: the cost of verification, which is all that the speedup takes from the time
    of a pass.
    """
    # Random weights: the tokens of a request choose their experts independently of each
    # other.
    machine = Machine(
        accelerators()[hardware], overheads=replace(Overheads(), routing=1.0)
    )
    times = []
    ratios = []
    for row in rows:
        model = decoder(row["shape"], row["precision"])
        batch = row["batch"]
        plain = row["milliseconds"][1]
        one_token = machine.pass_seconds(model, batch, batch, row["context"]) * 1000
        times.append(abs(one_token / plain - 1))
        for tokens, milliseconds in row["milliseconds"].items():
            if tokens > 1:
                passed = (
                    machine.pass_seconds(model, batch * tokens, batch, row["context"])
                    * 1000
                )
                estimated = passed * machine.overheads.verification
                times.append(abs(estimated / milliseconds - 1))
                ratios.append(abs(estimated / one_token / (milliseconds / plain) - 1))
    return times, ratios


def steps_table() -> str:
    """Return the table of the step times in bench/gpu/rows."""
    lines = [
        (
            "| Device, PyTorch, date | Decoders | Steps | Verification: error | 90 % "
            "below | Time: error |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for path in sorted((GPU / "rows").glob("*.yaml")):
        measured = yaml.safe_load(path.read_text("utf-8"))
        made = f"{measured['device']}, {measured['torch']}, {measured['date']}"
        parts: dict[str, list[dict[str, Any]]] = {}
        for row in measured["rows"]:
            kind = "dense"
            if decoder(row["shape"], row["precision"]).experts:
                kind = "experts"
            parts.setdefault(f"{kind}, {row['precision']}", []).append(row)
        for kind, rows in parts.items():
            times, ratios = step_errors(measured["hardware"], rows)
            errors = (
                f"{median(ratios):.1%} | {percentile(sorted(ratios), 0.9):.0%} | "
                f"{median(times):.0%}"
            )
            lines.append(f"| {made} | {kind} | {len(ratios)} | {errors} |")
    return "\n".join(lines)


def intervals_table() -> str:
    """Return the table of the intervals of `economics/hardware.py`."""
    lines = [f"| | {' | '.join(REGIMES)} |", f"|---|{'---|' * len(REGIMES)}"]
    for method in METHOD_FAMILIES:
        factors = [SPEEDUP[method, where] for where in REGIMES]
        lines.append(
            f"| {method} | {' | '.join(f'{1 / f:.2f} to {f:.2f}' for f in factors)} |"
        )
    plain = " | ".join(
        "{:.2f} to {:.2f}".format(*PLAIN[where]) for where in PLAIN_KINDS
    )
    step = f"{1 / STEP:.2f} to {STEP:.2f}"
    return "\n".join(
        [*lines, f"| plain step | {plain} |", f"| step | {step} | {step} |"]
    )


def share(estimates: Sequence[Estimated], test: Callable[[Estimated], bool]) -> float:
    """Return the share of estimates that pass a test; each source weighs 1."""
    of_sources: dict[str, list[bool]] = {}
    for each in estimates:
        of_sources.setdefault(each.row.source, []).append(test(each))
    return mean(map(mean, of_sources.values()))


def summary(estimates: Sequence[Estimated]) -> dict[str, float]:
    """Return the numbers that the page shows of these estimates."""
    return {
        "number": len(estimates),
        "median": median(each.error for each in estimates),
        "p90": percentile(sorted(each.error for each in estimates), 0.9),
        "side": share(estimates, lambda each: each.on_the_right_side),
        "unknown": share(estimates, lambda each: each.verdict == "unknown"),
        "wrong": share(estimates, lambda each: each.verdict == "wrong"),
        "holds": share(estimates, lambda each: each.holds),
    }


def sides_table(parts: dict[str, list[Estimated]]) -> str:
    """Return the table of what is told where there is no verdict, and of losses."""
    lines = [
        "| Estimate | No verdict, likely | Right | Losses | Harmful | Or likely so |",
        "|---|---|---|---|---|---|",
    ]
    for basis in ("modelled", "observed"):
        estimates = parts[basis]
        leaning = [
            each for each in estimates if each.verdict == "unknown" and each.side
        ]
        losses = [each for each in estimates if each.row.speedup < 1]
        told = share(losses, lambda each: each.side is PayoffVerdict.HARMFUL)
        lines.append(
            f"| {basis} | {len(leaning)} "
            f"| {share(leaning, lambda each: each.side_is_right):.0%} | {len(losses)} "
            f"| {share(losses, lambda each: each.high < 1):.0%} | {told:.0%} |"
        )
    return "\n".join(lines)


def perfect(estimates: Sequence[Estimated], factor: float) -> tuple[float, float]:
    """Return the shares without a verdict, and of the losses that are found, where each
    speedup is estimated as it was measured, with an interval of a factor both ways.
    """
    known = [
        replace(
            each,
            speedup=each.row.speedup,
            low=each.row.speedup / factor,
            high=each.row.speedup * factor,
        )
        for each in estimates
    ]
    losses = [each for each in known if each.row.speedup < 1]
    unknown = share(known, lambda each: each.verdict == "unknown")
    return unknown, share(losses, lambda each: each.high < 1)


def blind_tests() -> dict[str, list[Estimated]]:
    """Return the estimates of blind.yaml, as the exporter ships them."""
    rows = load("blind.yaml")
    return {
        "modelled": [by_profile(row, "modelled", row.profile()) for row in rows],
        "observed": [
            by_profile(row, "observed", by_step(row, row.profile()))
            for row in rows
            if row.plain_seconds
        ],
    }


def blind_row(estimates: Sequence[Estimated]) -> str:
    """Return the numbers of a row of the table of blind tests."""
    numbers = summary(estimates)
    sources = {each.row.source for each in estimates}
    losses = [each for each in estimates if each.row.speedup < 1]
    told_as_losses = sum(each.high < 1 for each in losses)
    return (
        f"{len(estimates)} | {len(sources)} | {numbers['median']:.0%} "
        f"| {numbers['unknown']:.0%} | {numbers['wrong']:.1%} | {numbers['holds']:.0%} "
        f"| {told_as_losses} of {len(losses)}"
    )


def misses(parts: dict[str, list[Estimated]]) -> list[str]:
    """Return the goals that are not reached."""
    missed = []
    for basis, goal in MEDIAN_GOAL.items():
        numbers = summary(parts[basis])
        if numbers["median"] > goal:
            missed.append(
                f"{basis}: median error {numbers['median']:.1%}, goal {goal:.0%}"
            )
    for basis in JUDGED:
        numbers = summary(parts[basis])
        if numbers["wrong"] > WRONG_GOAL:
            missed.append(
                f"{basis}: {numbers['wrong']:.1%} wrong, goal {WRONG_GOAL:.0%}"
            )
        if numbers["holds"] < HOLDS_GOAL:
            missed.append(
                f"{basis}: {numbers['holds']:.0%} in the interval, goal "
                f"{HOLDS_GOAL:.0%}"
            )
    return missed


TITLES = {
    "modelled": "modelled: hardware and model known",
    "observed": "observed: the step with drafts measured, the plain one modelled",
    "calibrated": "calibrated: step times measured",
    "generic": "generic: only the method known",
    "best": "best: observed where the step is published, else modelled",
}


def _size_of(batch: float) -> str:
    if batch == 1:
        return "1"
    if batch <= 8:
        return "2 to 8"
    return "above 8"


def rows_by_kind(estimates: Sequence[Estimated]) -> Iterator[str]:
    """Yield a row of the page for each kind of measurement: number, errors, and the
    share of each verdict.
    """
    kinds: dict[str, Callable[[Measurement], str]] = {
        "Side": lambda row: "gain" if row.speedup > 1 else "loss",
        "Drafts": lambda row: method_family(row.method),
        "Target": lambda row: row.kind[1],
        "GPU": lambda row: row.hardware,
        "GPUs": lambda row: "one" if row.gpus == 1 else "several",
        "Batch": lambda row: _size_of(row.batch),
        "Context": lambda row: "above 1,000" if row.context > 1000 else "to 1,000",
        "Precision": lambda row: row.precision,
    }
    for title, kind in kinds.items():
        by_value: dict[str, list[Estimated]] = {}
        for each in estimates:
            by_value.setdefault(kind(each.row), []).append(each)
        # Numbers of different lengths sort by their size: "2 to 8" before "above 8".
        for value in sorted(by_value, key=lambda text: (len(text), text)):
            members = by_value[value]
            numbers = summary(members)
            gains = share(members, lambda each: each.low > 1)
            losses = share(members, lambda each: each.high < 1)
            verdicts = (
                f"{gains:.0%} | {losses:.0%} "
                f"| {numbers['unknown']:.0%} | {numbers['wrong']:.1%}"
            )
            yield (
                f"| {title}: {value} | {len(members)} | {numbers['median']:.0%} "
                f"| {verdicts} | {numbers['holds']:.0%} |"
            )


def page(rows: Sequence[Measurement], parts: dict[str, list[Estimated]]) -> str:
    """Return the page."""
    table = []
    for basis, estimates in parts.items():
        numbers = summary(estimates)
        table.append(
            f"| {TITLES[basis]} | {numbers['number']:.0f} | {numbers['median']:.1%} | "
            f"{numbers['p90']:.0%} | {numbers['side']:.0%} "
            f"| {numbers['unknown']:.0%} | {numbers['wrong']:.1%} "
            f"| {numbers['holds']:.0%} |"
        )
    text = (HERE / "page.md.in").read_text("utf-8")
    perfect_unknown, perfect_losses = perfect(parts["modelled"], 1.4)
    blind = blind_tests()
    modelled_blind = summary(blind["modelled"])
    observed_blind = summary(blind["observed"])
    for placeholder, content in {
        "NUMBER": str(len(rows)),
        "INTERVALS": intervals_table(),
        "TABLE": "\n".join(table),
        "STEPS": steps_table(),
        "KINDS": "\n".join(rows_by_kind(parts["best"])),
        "SIDES": sides_table(parts),
        "PERFECT_UNKNOWN": f"{perfect_unknown:.0%}",
        "PERFECT_LOSSES": f"{perfect_losses:.0%}",
        "BLIND_NUMBER": f"{modelled_blind['number']:.0f}",
        "BLIND_SOURCES": str(len({each.row.source for each in blind["modelled"]})),
        "BLIND_WRONG": f"{modelled_blind['wrong']:.1%}",
        "BLIND_WRONG_OBSERVED": f"{observed_blind['wrong']:.1%}",
        "BLIND_HOLDS": f"{modelled_blind['holds']:.0%}",
        "BLIND_HOLDS_OBSERVED": f"{observed_blind['holds']:.0%}",
        "BLIND_UNKNOWN": f"{modelled_blind['unknown']:.0%}",
        "BLIND_UNKNOWN_OBSERVED": f"{observed_blind['unknown']:.0%}",
        "BLIND_ROW": blind_row(blind["modelled"]),
        "BLIND_ROW_OBSERVED": blind_row(blind["observed"]),
        "WIDER": f"{100 * WIDER_PER_DOUBLING:.0f}",
        "LONGER": f"{100 * (math.exp(CONTEXT_ERROR) - 1):.0f}",
        "SHARED": str(SHARED_ERROR),
    }.items():
        text = text.replace(f"@{placeholder}@", content)
    return text


def main(arguments: list[str]) -> int:
    rows = load()
    if "--fit" in arguments:
        fitted = fit([row for row in rows if row.hardware])
        print(
            "\n".join(
                f"    {f.name}: float = {getattr(fitted, f.name):.3g}"
                for f in fields(Overheads)
            )
        )
        return 0
    groups = left_out(rows)
    speedups, step, plain = intervals(groups)
    if "--intervals" in arguments:
        for kind, factor in [*speedups.items(), *plain.items()]:
            print(
                f"    {json.dumps(kind)}: {factor},".replace("[", "(").replace("]", ")")
            )
        print(f"STEP = {step}")
        return 0
    parts = {
        "modelled": modelled(groups),
        "observed": observed(groups),
        "calibrated": calibrated(rows),
        "generic": [by_profile(row, "generic", for_method(row.method)) for row in rows],
    }
    with_step = {id(part.row): part for part in parts["observed"]}
    parts["best"] = [with_step.get(id(each.row), each) for each in parts["modelled"]]
    text = page(rows, parts)
    missed = misses(parts)
    if (speedups, step, plain) != (SPEEDUP, STEP, PLAIN):
        missed.append("economics/hardware.py is not current: see --intervals")
    for goal in missed:
        print(f"goal missed: {goal}", file=sys.stderr)
    if "--check" in arguments:
        stale = not PAGE.exists() or PAGE.read_text("utf-8") != text
        if stale:
            print(f"{PAGE}: not current; run make generate", file=sys.stderr)
        return bool(stale or missed)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
