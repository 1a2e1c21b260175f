"""What recording rules must make of the fleet: arithmetic on its phases, which knows
nothing of PromQL.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.per_request.summary import Outcome

from .fleet import ENGINES, LLAMA_1, QWEN_1, REQUESTS, TINY, Engine
from .lint import read_bundle, records
from .per_request import outcome

#: A series without its name, as sorted pairs.
Key = tuple[tuple[str, str], ...]
Values = dict[Key, float]

#: In minutes, and how many of them rates have seen: long windows are sums of half hours
#: up to minute 90.
WINDOWS = {
    "5m": (5, 5),
    "30m": (30, 30),
    "1h": (60, 60),
    "6h": (360, 90),
    "1d": (1440, 90),
}
MODEL = ("cluster", "namespace", "model_name")
INSTANCE = ("cluster", "namespace", "job", "instance", "pod")
LIMITS = Thresholds()
NAME = "vllm_specdec"
#: Engines whose speedup is known.
JUDGED = tuple(engine for engine in ENGINES if engine.phase.speedup is not None)


def _key(
    labels: Mapping[str, str], names: Iterable[str] | None = None, **more: str
) -> Key:
    if names is None:
        kept = labels
    else:
        kept = {name: labels[name] for name in names if name in labels}
    return tuple(sorted({**kept, **more}.items()))


def _at(level: str, labels: Mapping[str, str], **more: str) -> Key:
    """Return what is left of an engine's labels at a level."""
    names = {"engine": None, "instance": (*INSTANCE, "model_name"), "model": MODEL}[
        level
    ]
    return _key(labels, names, **more)


def _by(
    level: str,
    formula: Callable[[list[Engine]], float | None],
    of: Sequence[Engine] = ENGINES,
) -> Values:
    """Return what a formula makes of the engines that are one series at a level, where
    it makes anything.
    """
    groups: dict[Key, list[Engine]] = defaultdict(list)
    for engine in of:
        groups[_at(level, engine.labels)].append(engine)
    values = {key: formula(group) for key, group in groups.items()}
    return {key: value for key, value in values.items() if value is not None}


def _total(engines: Iterable[Engine], name: str) -> float:
    return float(sum(getattr(engine.phase, name) for engine in engines))


def _over(upper: float, lower: float) -> float | None:
    if lower > 0:
        return upper / lower
    return None


# --- rates and ratios

RATES = {
    "drafts": "drafts",
    "draft_tokens": "drafted",
    "accepted_tokens": "accepted",
    "generation_tokens": "generated",
}


def _length(engines: list[Engine]) -> float | None:
    drafts = _total(engines, "drafts")
    return _over(drafts + _total(engines, "accepted"), drafts)


def _coverage(engines: list[Engine]) -> float | None:
    found = _over(
        _total(engines, "accepted") + _total(engines, "drafts"),
        _total(engines, "generated"),
    )
    if found is None:
        return None
    return min(found, 1.0)


RATIOS = {
    "acceptance": lambda engines: _over(
        _total(engines, "accepted"), _total(engines, "drafted")
    ),
    "mean_acceptance_length": _length,
    "coverage": _coverage,
}


def rates() -> dict[str, Values]:
    """Return rates and ratios at every level over every window, recorded or not."""
    found = {}
    for level in ("engine", "instance", "model"):
        counted = {
            name: _by(level, lambda engines, what=what: _total(engines, what))
            for name, what in RATES.items()
        }
        positions: Values = defaultdict(float)
        shares: Values = defaultdict(float)
        for engine in ENGINES:
            drafts = counted["drafts"][_at(level, engine.labels)]
            for index, ratio in enumerate(engine.phase.acceptance):
                key = _at(level, engine.labels, position=str(index))
                positions[key] += engine.phase.drafts * ratio
                if drafts:
                    shares[key] += engine.phase.drafts * ratio / drafts
        ratios = {name: _by(level, formula) for name, formula in RATIOS.items()}
        for window, (minutes, seen) in WINDOWS.items():
            for name, values in {
                **counted,
                "accepted_tokens_per_position": positions,
            }.items():
                found[f"{level}:{NAME}_{name}:rate{window}"] = {
                    key: value * seen / (60 * minutes) for key, value in values.items()
                }
            for name, values in {**ratios, "position_acceptance": shares}.items():
                found[f"{level}:{NAME}_{name}:ratio_rate{window}"] = values
    return found


# --- K, load, positions, peers, advice


def _advised(engines: list[Engine]) -> list[int]:
    return [
        one.phase.recommended_k
        for one in engines
        if one.phase.recommended_k is not None
    ]


def _running(engines: list[Engine]) -> float:
    return _total(engines, "running") / len(engines)


OF_MODELS: Mapping[str, Callable[[list[Engine]], float | None]] = {
    "num_speculative_tokens:max": lambda engines: max(
        len(one.phase.acceptance) for one in engines
    ),
    "num_speculative_tokens:min": lambda engines: min(
        len(one.phase.acceptance) for one in engines
    ),
    "requests_running:avg5m": _running,
    "requests_running:avg1h": _running,
    "recommended_num_speculative_tokens:median": lambda engines: (
        statistics.median(_advised(engines)) if _advised(engines) else None
    ),
}


def engines() -> dict[str, Values]:
    """Return what is known of K, of load, of positions, of peers, and of advice."""
    actions: Values = defaultdict(float)
    profiles: Values = defaultdict(float)
    bases: Values = defaultdict(float)
    least: Values = {}
    for engine in ENGINES:
        if engine.phase.action in ("disable", "switch_method"):
            same = [
                one
                for one in ENGINES
                if _key(one.labels, MODEL) == _key(engine.labels, MODEL)
            ]
            # One that drafts and is not known to gain or to lose counts as not advised.
            unknown = [
                one
                for one in same
                if one.phase.drafts
                and one.phase.speedup is None
                and one.phase.recommended_k is None
            ]
            actions[_key(engine.labels, MODEL, action=engine.phase.action)] += 1 / len(
                [*_advised(same), *unknown]
            )
        profiles[_key(engine.labels, MODEL, **engine.phase.info)] += 1
        if engine.phase.speedup is not None:
            bases[_key(engine.labels, MODEL, basis=engine.phase.basis)] += 1
        own = _key(engine.labels, MODEL)
        others = [
            one
            for one in ENGINES
            if one is not engine and _key(one.labels, MODEL) == own
        ]
        drafts = [_total(one, "drafts") for one in ([engine], others)]
        if 60 * min(drafts) >= LIMITS.comparison_minimum_drafts:
            length, of_others = (
                _total(one, "drafted") / n
                for one, n in zip(([engine], others), drafts, strict=True)
            )
            accepted = _total(others, "accepted") / drafts[1]
            least[_key(engine.labels)] = (
                (1 - LIMITS.outlier_ratio) * accepted * min(length / of_others, 1)
            )
    return {
        **{
            f"model:{NAME}_{name}": _by("model", formula)
            for name, formula in OF_MODELS.items()
        },
        f"engine:{NAME}_least_accepted_per_draft:rate1h": least,
        f"model:{NAME}_advice:ratio": actions,
        f"model:{NAME}_engines:count": {**profiles, **bases},
    }


# --- speedups, and the objective


def speedups() -> dict[str, Values]:
    """Return speedups: of engines together, all their tokens over all the time that
    those take.
    """
    parts: dict[str, Callable[[Engine], float]] = {
        "judged_tokens": lambda one: one.phase.generated,
        "plain_token_times": lambda one: one.phase.generated / (one.speedup or 1),
        "judged_drafts": lambda one: one.phase.drafts,
        "losing_drafts": lambda one: one.phase.drafts if (one.speedup or 0) < 1 else 0,
    }
    sums = {
        name: _by("model", lambda group, part=part: sum(map(part, group)) / 60, JUDGED)
        for name, part in parts.items()
    }
    ratio = {
        key: tokens / sums["plain_token_times"][key]
        for key, tokens in sums["judged_tokens"].items()
    }
    drafts = _by("model", lambda group: _total(group, "drafts"), JUDGED)
    # Tokens of engines of which it is not known count as 1.
    every = _by("model", lambda group: _total(group, "generated") / 60)
    others = {key: every[key] - tokens for key, tokens in sums["judged_tokens"].items()}
    certain = {
        k: (sums["judged_tokens"][k] + others[k])
        / (sums["plain_token_times"][k] + others[k])
        for k in ratio
        if 5 * drafts[k] >= LIMITS.advice_minimum_drafts
    }
    guesses = [
        one
        for one in JUDGED
        if one.phase.basis in ("observed", "modelled") and not one.phase.step_seconds
    ]
    guessed = _by(
        "model", lambda group: min(one.speedup or 0 for one in group), guesses
    )
    replicas = [one for one in JUDGED if one.phase.step_seconds]
    # At what load and K speculation was beneficial, and at what load it lost.
    enough = {
        k: value
        for k, value in ratio.items()
        if 5 * drafts[k] >= LIMITS.advice_minimum_drafts
    }
    beneficial = [key for key, value in enough.items() if value >= 1.2]
    losing = [key for key, value in enough.items() if value < 1]
    load = _by("model", _running)
    k = _by("model", OF_MODELS["num_speculative_tokens:max"])
    of_models = {
        **{f"{name}:rate5m": values for name, values in sums.items()},
        **{f"speedup:ratio_rate{window}": ratio for window in ("5m", "1h", "1d")},
        "speedup:ratio_rate30m": {
            key: value
            for key, value in ratio.items()
            if 30 * drafts[key] >= LIMITS.advice_minimum_drafts
        },
        # What is steady was never faster.
        "best_speedup:max12m": ratio,
        "speedup_of_enough_drafts:ratio_rate5m": certain,
        "guessed_speedup:min": guessed,
        "speedup_without_guesses:ratio_rate5m": {
            k: value for k, value in certain.items() if k not in guessed
        },
        "judged_requests_running:avg5m": {
            _key(dict(key), verdict=verdict): load[key]
            for verdict, keys in (("beneficial", beneficial), ("harmful", losing))
            for key in keys
        },
        "beneficial_num_speculative_tokens:max": {key: k[key] for key in beneficial},
    }
    return {
        "engine:vllm_specdec_speedup:last3m": _by(
            "engine", lambda group: group[0].speedup, JUDGED
        ),
        "engine:vllm_specdec_replica_speedup:last3m": _by(
            "engine", lambda group: group[0].speedup, replicas
        ),
        "engine:vllm_specdec_replica_estimate:last3m": _by(
            "engine", lambda group: group[0].speedup, replicas
        ),
        **{f"model:{NAME}_{name}": values for name, values in of_models.items()},
    }


def objective() -> dict[str, Values]:
    """Return the share of losing drafts, the same over all windows, and what is left of
    the error budget.
    """
    known = speedups()
    losing, judged = (
        known[f"model:{NAME}_{name}_drafts:rate5m"] for name in ("losing", "judged")
    )
    share = {key: losing[key] / judged[key] for key in judged}
    return {
        f"model:{NAME}_loss:ratio": {
            _key(dict(key), window=window): ratio
            for key, ratio in share.items()
            for window in ("30m", "6h", "3d")
        },
        f"model:{NAME}_worth_it_error_budget:remaining30d": {
            k: 1 - v / 0.05 for k, v in share.items()
        },
        # These are divided by the number of their samples below.
        f"model:{NAME}_judged_drafts:sum1h": {
            _key(dict(key), drafts=kind): value
            for kind, values in (("losing", losing), ("all", judged))
            for key, value in values.items()
        },
    }


# --- requests, thresholds, targets


def requests() -> dict[str, Values]:
    """Return requests by outcome and by type, shares of them, and what taps could not
    look at.
    """
    outcomes: Values = defaultdict(float)
    tapped = {}
    text_requests = {}
    for labels, phase in REQUESTS:
        # Outcomes that no request has are there all the same.
        for one in Outcome:
            outcomes[_key(labels, MODEL, outcome=one)] += 0
        seen = sum(phase.observed.values())
        for ratio, number in (
            pair for ratios in phase.requests.values() for pair in ratios.items()
        ):
            outcomes[_key(labels, MODEL, outcome=outcome(ratio, LIMITS))] += number
            seen += number
        if phase.passed is not None:
            tap = _key(labels, INSTANCE)
            lost = sum(
                n
                for why, n in phase.unobserved.items()
                if why not in ("aborted", "refused")
            )
            tapped[
                _key(labels, ("cluster", "namespace", "job", "instance", "model_name"))
            ] = 1.0
            text_requests[tap] = 30 * (lost + seen)
    return {
        f"model:{NAME}_request_outcomes:rate30m": {
            key: number / 60 for key, number in outcomes.items()
        },
        f"instance:{NAME}_tap:info": tapped,
        f"instance:{NAME}_tap:last6h": tapped,
        f"instance:{NAME}_tap_text_requests:increase30m": text_requests,
    }


def thresholds() -> dict[str, Values]:
    """Return the thresholds in force."""
    expr = str(records(read_bundle())[f"model:{NAME}_threshold:min"].body["expr"])
    compared = re.findall('threshold=~"(.*?)"', expr)[0].split("|")
    found: dict[str, Values] = {"": {}, "request_": {}}
    for name, value in LIMITS.items():
        of_requests = name in ("minimum_requests", "poor_request_acceptance_ratio")
        if of_requests:
            labels = [one for one, _ in REQUESTS]
        elif name in compared:
            labels = [LLAMA_1, QWEN_1, TINY]
        else:
            labels = []
        for one in labels:
            own = found["request_" if of_requests else ""]
            own[_key(one, MODEL, threshold=name)] = value
    return {f"model:{NAME}_{of}threshold:min": values for of, values in found.items()}


def _exporters() -> Values:
    """Return the scrape targets of each namespace."""
    found: Values = defaultdict(float)
    for labels in {one.labels["instance"]: one.labels for one in ENGINES}.values():
        found[_key(labels, ("cluster", "namespace"))] += 1
    return dict(found)


def all_values() -> dict[str, Values]:
    """Return what every record must hold at the end, by name; thresholds include those
    that no rule uses.
    """
    return {
        **rates(),
        **engines(),
        **speedups(),
        **requests(),
        **objective(),
        **thresholds(),
        # All of them answer.
        f"namespace:{NAME}_exporters_up:count": _exporters(),
    }


def text(key: Key) -> str:
    """Return labels as promtool writes them."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in key) + "}"
