"""How true the estimated speedup is: docs/reference/estimate-accuracy.md from measurements.yaml.

    python bench/accuracy/score.py           write the page
    python bench/accuracy/score.py --check   fail if it is not current, or if an estimate misses its goal
    python bench/accuracy/score.py --fit     print the overheads that fit best, for `economics/hardware.py`

Each measurement is estimated from what an operator would know, and from its mean acceptance length:

* modelled: with hardware, size of the model, method, K and batch size, by the roofline model;
* generic: with the method, K and batch size alone, by the shipped profile;
* calibrated: from step times of the same deployment at other batch sizes or other K.

Half of the modelled measurements are for fitting the overheads, the other half for judging. Step times that
bench/gpu/step_times.py wrote to bench/gpu/rows are held against the roofline model's.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import yaml

from vllm_specdec_exporter.economics.calibration import StepTime, calibrate
from vllm_specdec_exporter.economics.hardware import (
    Machine,
    Overheads,
    PhysicalModel,
    accelerators,
    usual_drafter,
)
from vllm_specdec_exporter.economics.model import Model, from_parameters
from vllm_specdec_exporter.economics.profiles import UNCERTAINTY, for_method, is_dated
from vllm_specdec_exporter.economics.sizes import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).parent
GPU = HERE.parent / "gpu"
PAGE = HERE.parents[1] / "docs" / "reference" / "estimate-accuracy.md"

#: The goals, for the measurements that nothing was fitted to.
MEDIAN_GOAL = {"modelled": 0.15, "calibrated": 0.05}
RIGHT_GOAL, WRONG_GOAL = 0.90, 0.02

#: Overheads before fitting, from what makers and engines say of themselves, and the weight of the pull
#: towards each in measurements: a few measurements must not turn one of them to nonsense.
PRIOR = Overheads(
    bandwidth=0.8,
    throughput=0.6,
    throughput_4bit=0.3,
    step=1.0e-3,
    layer=1.0e-5,
    request=1.0e-5,
    speculation=0.5e-3,
    speculation_request=3.0e-5,
    draft_pass=0.2e-3,
    lookup=2.0e-5,
    message=1.0e-5,
    verification=1.05,
    routing=0.7,
    dated=3.0,
)
PULL = 1.0
_SHARES = ("bandwidth", "throughput", "throughput_4bit", "routing")


@dataclass(frozen=True)
class Measurement:
    """One published speedup, and what it was measured with.

    Attributes:
        source: where it is published.
        url: its address.
        engine: with its version, if known.
        target: the served model.
        parameters_billions: of the target.
        method: as vLLM calls it.
        k: drafted tokens.
        batch: requests in the batch.
        length: mean acceptance length.
        speedup: over the same engine without speculation.
        hardware: accelerator as in `economics/hardware.toml`; empty where it is not published.
        gpus: accelerators that the target is spread over.
        active_billions: parameters that a token passes through, for a mixture of experts.
        precision: of the weights.
        context: mean tokens of context.
        data: the prompts.
        plain_seconds: time of a step without speculation.
        note: what else to know.
    """

    source: str
    url: str
    engine: str
    target: str
    parameters_billions: float
    method: str
    k: int
    batch: int
    length: float
    speedup: float
    hardware: str = ""
    gpus: int = 1
    active_billions: float | None = None
    precision: str = "bf16"
    context: float = 1000.0
    data: str = ""
    plain_seconds: float | None = None
    note: str = ""

    @property
    def group(self) -> str:
        """Measurements of one deployment, which are not independent of each other."""
        return f"{self.url} {self.target} {self.method}"

    def cost(self, overheads: Overheads | None = None) -> float:
        """Return the cost of a step by the roofline model."""
        size = self.parameters_billions * 1e9
        active = self.active_billions * 1e9 if self.active_billions else None
        target = from_parameters(size, PRECISIONS[self.precision], active)
        drafter = usual_drafter(self.method, target)
        assert drafter is not None, self
        name, _, version = self.engine.lower().partition(" ")
        machine = Machine(accelerators()[self.hardware], self.gpus, overheads or Overheads())
        model = PhysicalModel(machine, target, drafter, dated=is_dated(name, version))
        load = (self.k, self.batch, self.context)
        drafting = model.verification_seconds(*load) + model.draft_seconds(*load)
        return drafting / model.plain_seconds(self.batch, self.context)


@dataclass(frozen=True)
class Estimated:
    """A measurement with its estimate."""

    row: Measurement
    basis: str
    judging: bool
    cost: float
    low: float
    high: float

    @property
    def speedup(self) -> float:
        """The estimated speedup."""
        return self.row.length / self.cost

    @property
    def error(self) -> float:
        """The relative error of the estimate."""
        return abs(self.speedup / self.row.speedup - 1)

    @property
    def verdict(self) -> str:
        """Whether the interval lies on the side of 1 that the measurement does."""
        if self.low <= 1 <= self.high:
            return "unknown"
        return "right" if (self.low > 1) is (self.row.speedup > 1) else "wrong"

    @property
    def holds(self) -> bool:
        """Whether the measured speedup lies in the interval."""
        return self.low <= self.row.speedup <= self.high


def load() -> list[Measurement]:
    """Return all measurements."""
    measurements = []
    for entry in yaml.safe_load((HERE / "measurements.yaml").read_text("utf-8")):
        rows = entry.pop("rows")
        measurements += [Measurement(**entry, **row) for row in rows]
    return measurements


def split(rows: Sequence[Measurement]) -> tuple[list[Measurement], list[Measurement]]:
    """Return the halves for fitting and for judging.

    A deployment stays together. They are taken in the order of the checksums of their names, each into the
    smaller half, so the split depends on nothing that was measured.
    """
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    fitting: list[Measurement] = []
    judging: list[Measurement] = []
    for name in sorted(groups, key=lambda name: zlib.crc32(name.encode())):
        min(fitting, judging, key=len).extend(groups[name])
    return fitting, judging


def modelled(rows: Sequence[Measurement]) -> list[Estimated]:
    """Return the estimates with hardware and model known."""
    known = [row for row in rows if row.hardware]
    _, judging = split(known)
    estimates = []
    for row in known:
        cost = row.cost()
        error = 1 + UNCERTAINTY
        high = row.length / max(1.0, cost / error)
        estimates.append(Estimated(row, "modelled", row in judging, cost, row.length / (cost * error), high))
    return estimates


def generic(rows: Sequence[Measurement]) -> list[Estimated]:
    """Return the estimates with nothing but the method known."""
    estimates = []
    for row in rows:
        profile = for_method(row.method)
        cost, (least, most) = profile.step_cost(row.k, row.batch), profile.cost_range(row.k, row.batch)
        estimates.append(Estimated(row, "generic", True, cost, row.length / most, row.length / least))
    return estimates


def calibrated(rows: Sequence[Measurement]) -> list[Estimated]:
    """Return the estimates from step times of the same deployment.

    Every second pair of K and batch size calibrates; the others are estimated.
    """
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        if row.plain_seconds is not None:
            groups.setdefault(row.group, []).append(row)
    estimates = []
    for members in groups.values():
        points = sorted({(row.k, row.batch) for row in members})
        chosen = set(points[::2])
        used = [row for row in members if (row.k, row.batch) in chosen]
        times = []
        for row in used:
            plain = row.plain_seconds or 0.0
            times += [
                StepTime(row.batch, 0, plain),
                StepTime(row.batch, row.k, plain * row.length / row.speedup),
            ]
        profile = calibrate(times, members[0].method)
        for row in members:
            if row not in used:
                cost, (least, most) = (
                    profile.step_cost(row.k, row.batch),
                    profile.cost_range(row.k, row.batch),
                )
                estimates.append(
                    Estimated(row, "calibrated", True, cost, row.length / most, row.length / least)
                )
    return estimates


def fit(rows: Sequence[Measurement]) -> Overheads:
    """Return the overheads with the least loss, by a search along each of them."""

    def loss(overheads: Overheads) -> float:
        total = 0.0
        for row in rows:
            cost = row.cost(overheads)
            error = abs(math.log(row.length / cost / row.speedup))
            total += error if error > 0.1 else error * error / 0.2 + 0.05
        ratios = [getattr(overheads, f.name) / getattr(PRIOR, f.name) for f in fields(Overheads)]
        return total + PULL * sum(math.log(ratio) ** 2 for ratio in ratios)

    best, least, step = PRIOR, loss(PRIOR), 1.5
    while step > 1.01:
        improved = False
        for name in (f.name for f in fields(Overheads)):
            for factor in (step, 1 / step):
                value = getattr(best, name) * factor
                if (name in _SHARES and value > 0.95) or (name == "verification" and value < 1):
                    continue
                trial = replace(best, **{name: value})
                trial_loss = loss(trial)
                if trial_loss < least - 1e-9:
                    best, least, improved = trial, trial_loss, True
        if not improved:
            step = step**0.5
    return best


@cache
def decoder(name: str, precision: str) -> Model:
    """Return the layers that bench/gpu/step_times.py measures under this name."""
    shape = json.loads((GPU / "shapes.json").read_text("utf-8"))[name]
    layers, hidden, size = shape["layers"], shape["hidden"], shape["head_size"]
    experts, used = shape.get("experts", 0), shape.get("used", 0)
    mlp = 3 * hidden * shape["intermediate"]
    attention = 2 * hidden * size * (shape["heads"] + shape["kv_heads"])
    dense, routed = layers * (attention + (0 if experts else mlp)), layers * experts * mlp
    dense += shape.get("vocabulary", 0) * hidden
    return Model(
        parameters=dense + routed,
        active_parameters=dense + layers * used * mlp,
        precision=PRECISIONS[precision],
        layers=layers,
        hidden=hidden,
        kv_values=layers * 2 * shape["kv_heads"] * size,
        routed=routed,
        experts=experts,
        used=used,
    )


def step_errors(hardware: str, rows: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the relative errors of the roofline model for rows of bench/gpu/rows: of times, and of ratios.

    A ratio is that of a step with several tokens of each request to one with a single token: the cost of
    verification, which is all that the speedup takes from the time of a pass.
    """
    # Random weights: the tokens of a request choose their experts independently of each other.
    machine = Machine(accelerators()[hardware], overheads=replace(Overheads(), routing=1.0))
    times, ratios = [], []
    for row in rows:
        model, batch, plain = decoder(row["shape"], row["precision"]), row["batch"], row["milliseconds"][1]
        one_token = machine.pass_seconds(model, batch, batch, row["context"]) * 1000
        times.append(abs(one_token / plain - 1))
        for tokens, milliseconds in row["milliseconds"].items():
            if tokens > 1:
                passed = machine.pass_seconds(model, batch * tokens, batch, row["context"]) * 1000
                estimated = passed * machine.overheads.verification
                times.append(abs(estimated / milliseconds - 1))
                ratios.append(abs(estimated / one_token / (milliseconds / plain) - 1))
    return times, ratios


def steps_table() -> str:
    """Return the table of the step times in bench/gpu/rows."""
    lines = [
        "| Device, PyTorch, date | Decoders | Steps | Verification: error | 90 % below | Time: error |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted((GPU / "rows").glob("*.yaml")):
        measured = yaml.safe_load(path.read_text("utf-8"))
        made = f"{measured['device']}, {measured['torch']}, {measured['date']}"
        parts: dict[str, list[dict[str, Any]]] = {}
        for row in measured["rows"]:
            experts = decoder(row["shape"], row["precision"]).experts
            parts.setdefault(f"{'experts' if experts else 'dense'}, {row['precision']}", []).append(row)
        for kind, rows in parts.items():
            times, ratios = step_errors(measured["hardware"], rows)
            errors = f"{median(ratios):.1%} | {quantile(ratios, 0.9):.0%} | {median(times):.0%}"
            lines.append(f"| {made} | {kind} | {len(ratios)} | {errors} |")
    return "\n".join(lines)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def share(estimates: Sequence[Estimated], test: Callable[[Estimated], bool]) -> float:
    return sum(test(one) for one in estimates) / len(estimates)


def summary(estimates: Sequence[Estimated]) -> dict[str, float]:
    """Return the numbers that the page shows of these estimates."""
    decided = [one for one in estimates if one.verdict != "unknown"]
    return {
        "number": len(estimates),
        "median": median(one.error for one in estimates),
        "p90": quantile([one.error for one in estimates], 0.9),
        "right": share(decided, lambda one: one.verdict == "right") if decided else math.nan,
        "side": share(estimates, lambda one: (one.speedup > 1) is (one.row.speedup > 1)),
        "unknown": share(estimates, lambda one: one.verdict == "unknown"),
        "wrong": share(estimates, lambda one: one.verdict == "wrong"),
        "holds": share(estimates, lambda one: one.holds),
    }


def misses(parts: dict[str, list[Estimated]]) -> list[str]:
    """Return the goals that are not reached."""
    missed = []
    for basis, goal in MEDIAN_GOAL.items():
        numbers = summary(parts[basis])
        if numbers["median"] > goal:
            missed.append(f"{basis}: median error {numbers['median']:.1%}, goal {goal:.0%}")
    for basis in parts:
        numbers = summary(parts[basis])
        if not math.isnan(numbers["right"]) and numbers["right"] < RIGHT_GOAL:
            missed.append(f"{basis}: {numbers['right']:.0%} of the verdicts right, goal {RIGHT_GOAL:.0%}")
        if numbers["wrong"] > WRONG_GOAL:
            missed.append(f"{basis}: {numbers['wrong']:.1%} wrong, goal {WRONG_GOAL:.0%}")
    return missed


TITLES = {
    "modelled": "modelled: hardware and model known",
    "calibrated": "calibrated: step times measured",
    "generic": "generic: only the method known",
}


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return the least and the greatest value, or the only one."""
    shown = list(dict.fromkeys(f"{value:.{digits}f}" for value in (min(values), max(values))))
    return "-".join(shown)


def deployments(by_method: Sequence[Estimated], by_hardware: Sequence[Estimated]) -> Iterator[str]:
    """Yield a row of the page for each deployment: source, target, hardware and method.

    The estimates are the generic ones of all measurements, and the modelled ones where hardware is known.
    """
    modelled_for = {id(one.row): one for one in by_hardware}
    groups: dict[tuple[str, str, str, str], list[Estimated]] = {}
    for one in by_method:
        row = one.row
        gpu = (f"{row.gpus}x" if row.gpus > 1 else "") + (row.hardware or "?")
        source, target = row.source.split(",")[0], row.target.rpartition("/")[2]
        groups.setdefault((f"[{source}]({row.url})", target, gpu, row.method), []).append(one)
    for key, members in groups.items():
        rows = [one.row for one in members]
        models = [modelled_for[id(row)] for row in rows if id(row) in modelled_for]
        fitted = " (fitted)" if any(not model.judging for model in models) else ""
        load = spread([row.k for row in rows]), spread([row.batch for row in rows])
        measured = spread([row.length for row in rows], 2), spread([row.speedup for row in rows], 2)
        by_model = spread([model.speedup for model in models], 2) + fitted if models else ""
        by_kind = spread([one.speedup for one in members], 2)
        cells = (*key, f"{len(rows)}", *load, *measured, by_model, by_kind)
        yield f"| {' | '.join(cells)} |"


def page(rows: Sequence[Measurement], parts: dict[str, list[Estimated]], fitting: list[Estimated]) -> str:
    """Return the page."""
    table = []
    named = [(TITLES[basis], estimates) for basis, estimates in parts.items()]
    for title, estimates in [*named, ("modelled, those used for fitting", fitting)]:
        n = summary(estimates)
        right = "-" if math.isnan(n["right"]) else f"{n['right']:.0%}"
        table.append(
            f"| {title} | {n['number']:.0f} | {n['median']:.1%} | {n['p90']:.0%} | {n['side']:.0%} | {right} "
            f"| {n['unknown']:.0%} | {n['wrong']:.1%} | {n['holds']:.0%} |"
        )
    text = (HERE / "page.md.in").read_text("utf-8")
    for name, value in {
        "NUMBER": str(len(rows)),
        "UNCERTAINTY": f"{UNCERTAINTY:.0%}",
        "TABLE": "\n".join(table),
        "STEPS": steps_table(),
        "ROWS": "\n".join(deployments(parts["generic"], [*parts["modelled"], *fitting])),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def main(arguments: list[str]) -> int:
    rows = load()
    if "--fit" in arguments:
        fitted = fit(split([row for row in rows if row.hardware])[0])
        print("\n".join(f"    {f.name}: float = {getattr(fitted, f.name):.3g}" for f in fields(Overheads)))
        return 0
    all_modelled = modelled(rows)
    parts = {
        "modelled": [one for one in all_modelled if one.judging],
        "calibrated": calibrated(rows),
        "generic": generic(rows),
    }
    text = page(rows, parts, [one for one in all_modelled if not one.judging])
    missed = misses(parts)
    for one in missed:
        print(f"goal missed: {one}", file=sys.stderr)
    if "--check" in arguments:
        stale = not PAGE.exists() or PAGE.read_text("utf-8") != text
        if stale:
            print(f"{PAGE}: not current; run make generate", file=sys.stderr)
        return bool(stale or missed)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
