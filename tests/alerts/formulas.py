"""What recording rules must make of the fleet: arithmetic on its phases, which knows nothing of PromQL."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.per_request.summary import Outcome

from .fleet import ENGINES, LLAMA_1, PLAIN_STEP, QWEN_1, REQUESTS, TINY, Engine
from .per_request import outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .world import Phase

#: A series without its name, as sorted pairs.
Key = tuple[tuple[str, str], ...]
Values = dict[Key, float]

#: In minutes, and how many of them rates have seen: long windows are sums of half hours up to minute 90.
WINDOWS = {"5m": (5, 5), "30m": (30, 30), "1h": (60, 60), "6h": (360, 90), "1d": (1440, 90)}
MODEL = ("cluster", "namespace", "model_name")


def _key(labels: Mapping[str, str], names: Iterable[str] | None = None, **more: str) -> Key:
    kept = labels if names is None else {name: labels[name] for name in names if name in labels}
    return tuple(sorted({**kept, **more}.items()))


def _at(level: str, labels: Mapping[str, str], **more: str) -> Key:
    """Return what is left of an engine's labels at a level."""
    if level == "engine":
        return _key(labels, **more)
    if level == "instance":
        return _key({name: value for name, value in labels.items() if name != "engine"}, **more)
    return _key(labels, MODEL, **more)


def _sum(level: str, of: Callable[[Engine], Iterable[tuple[dict[str, str], float]]]) -> Values:
    """Add up what engines have, by what is left of their labels."""
    sums: Values = defaultdict(float)
    for engine in ENGINES:
        for more, value in of(engine):
            sums[_at(level, engine.labels, **more)] += value
    return dict(sums)


def _over(upper: Values, lower: Values) -> Values:
    """Divide by what is above 0; what is there is matched without a position."""
    found = {}
    for key, value in upper.items():
        below = lower.get(tuple(pair for pair in key if pair[0] != "position"))
        if below is not None and below > 0:
            found[key] = value / below
    return found


def _both(one: Values, other: Values, sign: int = 1) -> Values:
    return {key: value + sign * other[key] for key, value in one.items()}


def _generated(phase: Phase) -> float:
    return phase.drafts + phase.accepted + phase.plain_tokens


def rates() -> dict[str, Values]:
    """Return rates and ratios at every level over every window, recorded or not."""
    found = {}
    steps = {
        "drafts": lambda phase: phase.drafts,
        "draft_tokens": lambda phase: phase.drafted,
        "accepted_tokens": lambda phase: phase.accepted,
        "generation_tokens": _generated,
    }
    for level in ("engine", "instance", "model"):
        per_minute = {
            name: _sum(level, lambda engine, step=step: [({}, step(engine.phase))])
            for name, step in steps.items()
        }
        positions = _sum(
            level,
            lambda engine: [
                ({"position": str(i)}, engine.phase.drafts * ratio)
                for i, ratio in enumerate(engine.phase.acceptance)
            ],
        )
        drafts, drafted, accepted, generated = per_minute.values()
        ratios = {
            "acceptance": _over(accepted, drafted),
            "mean_acceptance_length": {key: 1 + value for key, value in _over(accepted, drafts).items()},
            "coverage": {
                key: min(value, 1.0) for key, value in _over(_both(accepted, drafts), generated).items()
            },
            "wasted_verification": _over(_both(drafted, accepted, -1), _both(drafted, drafts)),
            "position_acceptance": _over(positions, drafts),
        }
        for window, (minutes, seen) in WINDOWS.items():
            for name, values in {**per_minute, "accepted_tokens_per_position": positions}.items():
                found[f"{level}:vllm_specdec_{name}:rate{window}"] = {
                    key: value * seen / (60 * minutes) for key, value in values.items()
                }
            for name, values in ratios.items():
                found[f"{level}:vllm_specdec_{name}:ratio_rate{window}"] = values
    return found


def thresholds() -> dict[str, Values]:
    """Return the thresholds in force."""
    found = {}
    for name, value in Thresholds().items():
        of_requests = name in ("minimum_requests", "poor_request_acceptance_ratio")
        labels = [one for one, _ in REQUESTS] if of_requests else [LLAMA_1, QWEN_1, TINY]
        found[f"model:vllm_specdec_{name}:threshold"] = dict.fromkeys(
            (_key(one, MODEL) for one in labels), value
        )
    return found


def _by_model(of: Callable[[Phase], float | None]) -> dict[Key, list[float]]:
    found: dict[Key, list[float]] = defaultdict(list)
    for engine in ENGINES:
        value = of(engine.phase)
        if value is not None:
            found[_key(engine.labels, MODEL)].append(value)
    return found


def _decay(acceptance: tuple[float, ...]) -> float:
    """Return the geometric mean of the conditional acceptance behind position 0."""
    conditional = [later / earlier for earlier, later in pairwise(acceptance)]
    return math.prod(conditional) ** (1 / len(conditional))


def engines() -> dict[str, Values]:
    """Return what is known of K, of load, of positions, of peers, and of advice."""
    depth = _by_model(lambda phase: len(phase.acceptance))
    running = _by_model(lambda phase: phase.running)
    mean_running = {key: sum(values) / len(values) for key, values in running.items()}
    counted: dict[str, Values] = {"action": defaultdict(float), "profile": defaultdict(float)}
    for engine in ENGINES:
        phase = engine.phase
        if phase.recommended_k is not None:
            counted["action"][_key(engine.labels, MODEL, action=phase.action)] += 1
        counted["profile"][_key(engine.labels, MODEL, **phase.info)] += 1
    advised = _by_model(lambda phase: phase.recommended_k)
    gain = _by_model(
        lambda phase: (
            None
            if phase.recommended_k is None
            else 1 + phase.gain * (phase.recommended_k != len(phase.acceptance))
        )
    )
    positions: dict[Key, list[float]] = {}
    for key in depth:
        own = [engine.phase for engine in ENGINES if _key(engine.labels, MODEL) == key]
        positions[key] = [
            sum(phase.drafts * phase.acceptance[i] for phase in own) for i in range(int(depth[key][0]))
        ]
    peers = {}
    for engine in ENGINES:
        others = [
            one.phase
            for one in ENGINES
            if one is not engine and _key(one.labels, MODEL) == _key(engine.labels, MODEL)
        ]
        drafts = sum(phase.drafts for phase in others)
        if drafts:
            peers[_key(engine.labels)] = 1 + sum(phase.accepted for phase in others) / drafts
    name = "vllm_specdec"
    beneficial = _by_model(lambda phase: float((phase.speedup or 0.0) > Thresholds().beneficial_speedup))
    return {
        f"model:{name}_payoff_beneficial:min": {key: min(values) for key, values in beneficial.items()},
        f"model:{name}_num_speculative_tokens:max": {key: max(values) for key, values in depth.items()},
        f"model:{name}_num_speculative_tokens:min": {key: min(values) for key, values in depth.items()},
        f"model:{name}_requests_running:avg5m": mean_running,
        f"model:{name}_requests_running:avg1h": mean_running,
        f"model:{name}_requests:avg1h": {
            key: sum(values) / len(values)
            for key, values in _by_model(lambda phase: phase.running + phase.waiting).items()
        },
        f"model:{name}_position_decay:ratio_rate30m": {
            key: _decay(tuple(values)) for key, values in positions.items() if len(values) > 1
        },
        f"engine:{name}_peers_mean_acceptance_length:ratio_rate1h": peers,
        f"model:{name}_recommendation:engines": {
            key: count
            for key, count in counted["action"].items()
            if dict(key)["action"] in ("disable", "switch_method")
        },
        f"model:{name}_advised:engines": {key: float(len(values)) for key, values in advised.items()},
        f"model:{name}_recommended_num_speculative_tokens:median": {
            key: statistics.median(values) for key, values in advised.items()
        },
        f"model:{name}_advised_speedup:ratio": {
            key: sum(values) / len(values) for key, values in gain.items()
        },
        f"model:{name}_cost_profile:engines": counted["profile"],
    }


def speedups() -> dict[str, Values]:
    """Return speedups: of engines together, all their tokens over all the time that those take."""
    known = [engine for engine in ENGINES if engine.phase.speedup is not None]
    found = {
        "engine:vllm_specdec_speedup:last3m": {_key(one.labels): one.speedup or 0 for one in known},
        "engine:vllm_specdec_replica_speedup:last3m": {
            _key(one.labels): one.speedup or 0 for one in known if one.phase.step_seconds
        },
        "model:vllm_specdec_plain_step_fixed_seconds:avg": {_key(LLAMA_1, MODEL): PLAIN_STEP[0]},
        "model:vllm_specdec_plain_step_per_request_seconds:avg": {_key(LLAMA_1, MODEL): PLAIN_STEP[1]},
        "model:vllm_specdec_measured_speedup:min": {_key(LLAMA_1, MODEL): 0.8},
    }
    parts: dict[str, Callable[[Engine], float]] = {
        "judged_tokens": lambda one: _generated(one.phase),
        "plain_token_times": lambda one: _generated(one.phase) / (one.speedup or 1),
        "judged_drafts": lambda one: one.phase.drafts,
        "losing_drafts": lambda one: one.phase.drafts if (one.speedup or 0) < 1 else 0,
    }
    sums = {
        name: _sum("model", lambda engine, part=part: [({}, part(engine) / 60)] if engine in known else [])
        for name, part in parts.items()
    }
    for name, values in sums.items():
        found[f"model:vllm_specdec_{name}:rate5m"] = values
    ratio = {key: tokens / sums["plain_token_times"][key] for key, tokens in sums["judged_tokens"].items()}
    for window in ("5m", "30m", "1h", "1d"):
        found[f"model:vllm_specdec_speedup:ratio_rate{window}"] = ratio
    drafts = _by_model(lambda phase: 5 * phase.drafts)
    found["model:vllm_specdec_certain_speedup:ratio_rate5m"] = {
        key: value for key, value in ratio.items() if sum(drafts[key]) >= Thresholds().advice_minimum_drafts
    }
    guesses = [one for one in known if one.phase.basis == "modelled" and not one.phase.step_seconds]
    found["model:vllm_specdec_guessed_speedup:min"] = guessed = {
        _key(one.labels, MODEL): one.speedup or 0 for one in guesses
    }
    certain = found["model:vllm_specdec_certain_speedup:ratio_rate5m"]
    found["model:vllm_specdec_proven_speedup:ratio_rate5m"] = {
        key: value for key, value in certain.items() if key not in guessed
    }
    return {**found, **_at_loads(found["model:vllm_specdec_speedup:ratio_rate5m"])}


def _at_loads(speedup: Values) -> dict[str, Values]:
    """Return at what load and K speculation was beneficial, and at what load it lost."""
    known = engines()
    load, k = (
        known[f"model:vllm_specdec_{name}"]
        for name in ("requests_running:avg5m", "num_speculative_tokens:max")
    )
    drafts = _by_model(lambda phase: 30 * phase.drafts)
    enough = {key for key, values in drafts.items() if sum(values) >= Thresholds().advice_minimum_drafts}
    beneficial = {key for key, value in speedup.items() if value >= 1.2 and key in enough}
    losing = {key for key, value in speedup.items() if value < 1 and key in enough}
    return {
        "model:vllm_specdec_beneficial_requests_running:avg5m": {key: load[key] for key in beneficial},
        "model:vllm_specdec_beneficial_num_speculative_tokens:max": {key: k[key] for key in beneficial},
        "model:vllm_specdec_losing_requests_running:avg5m": {key: load[key] for key in losing},
    }


def requests() -> dict[str, Values]:
    """Return requests by outcome and by type, shares of them, and what taps could not look at."""
    outcomes: Values = defaultdict(float)
    totals: Values = defaultdict(float)
    for labels, phase in REQUESTS:
        for ratios in phase.requests.values():
            for ratio, number in ratios.items():
                one = outcome(ratio, Thresholds())
                outcomes[_key(labels, MODEL, outcome=one)] += number
                totals[_key(labels, MODEL)] += number
    # Outcomes that no request has are there all the same.
    for labels, _ in REQUESTS:
        for one in Outcome:
            outcomes[_key(labels, MODEL, outcome=one)] += 0
    taps = {
        _key(labels, ("cluster", "namespace", "job", "instance", "pod")): (
            sum(n for reason, n in phase.unobserved.items() if reason not in ("aborted", "refused")),
            sum(sum(ratios.values()) for ratios in phase.requests.values()) + sum(phase.observed.values()),
        )
        for labels, phase in REQUESTS
        if phase.passed is not None
    }
    tapped = {
        _key(labels, ("cluster", "namespace", "job", "instance", "model_name")): 1.0
        for labels, phase in REQUESTS
        if phase.passed is not None
    }
    name = "model:vllm_specdec_request"
    return {
        f"{name}_outcomes:rate30m": {key: number / 60 for key, number in outcomes.items()},
        f"{name}_outcomes:increase30m": {key: 30 * number for key, number in totals.items()},
        "instance:vllm_specdec_tap:info": tapped,
        "instance:vllm_specdec_tap:last6h": tapped,
        "model:vllm_specdec_losing_requests:ratio_rate30m": _share(outcomes, totals, Outcome.LOSES),
        "model:vllm_specdec_gaining_requests:ratio_rate30m": _share(outcomes, totals, Outcome.GAINS),
        "instance:vllm_specdec_tap_unobserved:increase30m": {
            key: 30 * lost for key, (lost, _) in taps.items()
        },
        "instance:vllm_specdec_tap_text_requests:increase30m": {
            key: 30 * (lost + seen) for key, (lost, seen) in taps.items()
        },
    }


def _share(outcomes: Values, totals: Values, one: Outcome) -> Values:
    """Return what share of the totals has an outcome."""
    return {
        key: number / totals[key]
        for full, number in outcomes.items()
        if ("outcome", one) in full and (key := tuple(pair for pair in full if pair[0] != "outcome"))
    }


def objective() -> dict[str, Values]:
    """Return the share of losing drafts, the same over all windows, and what is left of the error budget."""
    known = speedups()
    losing, judged = (known[f"model:vllm_specdec_{name}_drafts:rate5m"] for name in ("losing", "judged"))
    share = {key: losing[key] / judged[key] for key in judged}
    windows = ("30m", "6h", "3d", "30d")
    return {
        **{f"model:vllm_specdec_losing_drafts:ratio_rate{window}": share for window in windows},
        "model:vllm_specdec_worth_it_error_budget:remaining30d": {
            key: 1 - value / 0.05 for key, value in share.items()
        },
        # These are divided by the number of their samples below.
        "model:vllm_specdec_losing_drafts:sum1h": losing,
        "model:vllm_specdec_judged_drafts:sum1h": judged,
    }


def _exporters() -> Values:
    """Return the scrape targets of each namespace."""
    found: Values = defaultdict(float)
    for labels in {one.labels["instance"]: one.labels for one in ENGINES}.values():
        found[_key(labels, ("cluster", "namespace"))] += 1
    return dict(found)


def all_values() -> dict[str, Values]:
    """Return what every record must hold at the end, by name; thresholds include those that no rule uses."""
    return {
        **rates(),
        **engines(),
        **speedups(),
        **requests(),
        **objective(),
        **thresholds(),
        "namespace:vllm_specdec_exporters:count": _exporters(),
    }


def text(key: Key) -> str:
    """Return labels as promtool writes them."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in key) + "}"
