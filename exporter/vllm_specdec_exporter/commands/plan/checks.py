"""Checks before a drafter is deployed, each with a verdict and its numbers.

Limits are the published ones: same family, same tokenizer, a draft model of 1:8 to 1:12
that takes at most about 15 % of VRAM, and a warning if the target alone takes more than
70 %.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ...economics.architecture import Architecture
from ...economics.known_problems import Setup, known_problems
from ...economics.model import Model
from ...economics.sizes import format_gigabytes, format_parameters
from .estimates import Drafter, Memory, Method, PlannedLoad, SpeedupByBatch

#: Recommended size of the target over that of the draft model.
MIN_RATIO = 8.0
MAX_RATIO = 12.0
#: Largest shares of all GPU memory for the drafter and for the target, in percent.
MAX_DRAFT_PERCENT = 15
MAX_TARGET_PERCENT = 70


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, and a sentence with the numbers."""

    name: str
    verdict: Verdict
    text: str


def _unknown(name: str, words: str) -> Check:
    return Check(name, Verdict.UNKNOWN, f"not known: find out {words}")


def check_all(
    method: Method,
    target: Model,
    draft: Model | None,
    memory: Memory,
    load: PlannedLoad,
    outlook: SpeedupByBatch,
    facts: Facts,
    target_name: str,
) -> Iterator[Check]:
    """Yield the checks that apply to a method, in the order of the report."""
    total = memory.total_bytes
    yield _share(
        "target", memory.target_weights_bytes, total, MAX_TARGET_PERCENT, Verdict.WARN
    )
    if method.drafter is Drafter.MODEL:
        yield check_size_ratio(target, draft)
        yield check_tokenizer(target, draft, facts.same_tokenizer)
    if method.drafter is not Drafter.LOOKUP:
        yield _share(
            "draft", memory.draft_weights_bytes, total, MAX_DRAFT_PERCENT, Verdict.FAIL
        )
        if method.named:
            yield check_family(method, facts.same_family)
    if method.name == "mtp" and target.architecture is not None:
        yield check_mtp(target.architecture)
    yield check_kv_budget(memory, load)
    yield check_depth(method, outlook.k)
    yield check_speedup(outlook, load)
    for problem in known_problems(Setup(method.name, target_name)):
        text = f"{problem.text}. {problem.action} ({problem.reference})"
        yield Check("known_problem", Verdict.WARN, text)


def _share(
    who: str, weights: float | None, total: float, limit: int, otherwise: Verdict
) -> Check:
    """Check the weights of a model as a share of VRAM, in whole percent as the limits
    were published.
    """
    if weights is None:
        return _unknown(f"{who}_share", "the size of the drafter")
    share = weights / total
    text = (
        f"the {who} takes {format_gigabytes(weights)}, {share:.1%} of VRAM (at most "
        f"about {limit} %)"
    )
    return Check(
        f"{who}_share", Verdict.OK if round(share * 100) <= limit else otherwise, text
    )


def check_size_ratio(target: Model, draft: Model | None) -> Check:
    """Compare the sizes: 1:8 to 1:12 is recommended, and a draft as large as its target
    cannot pay.
    """
    name = "size_ratio"
    if draft is None:
        return _unknown(name, "the size of the draft model")
    # with the precision of the published limits
    ratio = round(target.parameters / draft.parameters, 1)
    sizes = (
        f"{format_parameters(draft.parameters)} drafts for "
        f"{format_parameters(target.parameters)}"
    )
    if draft.parameters >= target.parameters:
        return Check(
            name,
            Verdict.FAIL,
            f"{sizes}: a draft model must be smaller than its target",
        )
    text = f"{sizes}, 1:{ratio:g} (recommended 1:{MIN_RATIO:g} to 1:{MAX_RATIO:g})"
    if ratio < MIN_RATIO:
        return Check(
            name,
            Verdict.WARN,
            f"{text}: drafting is expensive; look for a smaller draft",
        )
    if ratio > MAX_RATIO:
        return Check(
            name,
            Verdict.WARN,
            f"{text}: cheap, but so small a draft may be accepted less often",
        )
    return Check(name, Verdict.OK, text)


def check_family(method: Method, same: bool | None) -> Check:
    """Check whether draft and target belong together, which only the operator knows."""
    name = "same_family"
    words = "target and draft are of one family"
    otherwise = "target and draft are of different families"
    if method.drafter is Drafter.HEAD:
        words = "the heads are trained for this very target"
        otherwise = "heads that were trained for another target do not work"
    if same is None:
        return _unknown(name, f"whether {words} (--same-family)")
    if same:
        return Check(name, Verdict.OK, words)
    return Check(name, Verdict.FAIL, otherwise)


def check_tokenizer(target: Model, draft: Model | None, same: bool | None) -> Check:
    """Check whether draft and target share the tokenizer; different vocabulary sizes
    mean they do not.
    """
    name = "same_tokenizer"
    if target.architecture and draft and draft.architecture:
        sizes = target.architecture.vocabulary, draft.architecture.vocabulary
        if sizes[0] != sizes[1]:
            text = (
                f"vocab_size differs: {sizes[0]} of the target, {sizes[1]} of the "
                "draft; vLLM refuses such "
                "a pair (use_heterogeneous_vocab lifts that in new versions, with "
                "greedy drafts only)"
            )
            return Check(name, Verdict.FAIL, text)
    if same is None:
        return _unknown(
            name, "whether target and draft share the tokenizer (--same-tokenizer)"
        )
    if same:
        return Check(name, Verdict.OK, "target and draft share the tokenizer")
    return Check(name, Verdict.FAIL, "target and draft have different tokenizers")


def check_mtp(target: Architecture) -> Check:
    """Check whether the target's configuration has layers for multi-token prediction."""
    name = "mtp_layers"
    key = "num_nextn_predict_layers"
    if target.mtp_layers:
        return Check(
            name,
            Verdict.OK,
            f"{key} is {target.mtp_layers} in the target's config.json",
        )
    return _unknown(
        name, f"whether the target has MTP layers: {key} is not in its config.json"
    )


def check_kv_budget(memory: Memory, load: PlannedLoad) -> Check:
    """Check whether the weights fit and leave memory for at least one request."""
    name = "kv_budget"
    before = memory.before.kv_budget_bytes
    after = memory.after
    usable = f"{format_gigabytes(memory.usable_bytes)} usable"
    if before <= 0:
        text = (
            f"the target alone does not fit: {format_gigabytes(before)} left of "
            f"{usable}"
        )
        return Check(name, Verdict.FAIL, text)
    if after is None:
        return _unknown(
            name,
            (
                f"the size of the drafter; {format_gigabytes(before)} of {usable} "
                "without it"
            ),
        )
    left = format_gigabytes(after.kv_budget_bytes)
    text = (
        f"{format_gigabytes(before)} without the drafter, {left} with it, of {usable}"
    )
    if after.kv_budget_bytes <= 0:
        return Check(
            name, Verdict.FAIL, f"with the drafter it does not fit at all: {text}"
        )
    if after.requests == 0:
        text = (
            f"{text}: not even one request of {load.context:,} tokens fits "
            f"({after.tokens:,} tokens do)"
        )
        return Check(name, Verdict.FAIL, text)
    return Check(name, Verdict.OK, text)


def check_depth(method: Method, k: int) -> Check:
    """Compare K with the usual range of the method."""
    name = "num_speculative_tokens"
    if not method.deepest:
        return Check(
            name, Verdict.OK, f"K = {k}; no usual range is published for {method.name}"
        )
    usual = " to ".join(f"{end}" for end in sorted({method.shallowest, method.deepest}))
    text = f"K = {k} (usual for {method.name}: {usual}; {method.depth_source})"
    within = method.shallowest <= k <= method.deepest
    return Check(name, Verdict.OK if within else Verdict.WARN, text)


def check_speedup(outlook: SpeedupByBatch, load: PlannedLoad) -> Check:
    """Check the estimated speedup at the given batch size, or over the table without
    one.
    """
    rows = [row for row in outlook.rows if load.batch in (None, row.batch)]
    low = min(speedup.low or 0.0 for row in rows for speedup in row.speedups)
    high = max(speedup.high or 0.0 for row in rows for speedup in row.speedups)
    if load.batch is not None:
        where = f"at batch {load.batch}"
    else:
        where = f"over batch sizes 1 to {rows[-1].batch}"
    text = f"estimated {low:.2f}x to {high:.2f}x {where}"
    if high <= 1:
        return Check("speedup", Verdict.FAIL, f"{text}: even the best case loses")
    if low >= 1:
        return Check("speedup", Verdict.OK, text)
    return Check(
        "speedup", Verdict.WARN, f"{text}: it may lose; measure before relying on it"
    )


class Objective(StrEnum):
    """The main objective."""

    TPOT = "tpot"
    """Time per output token."""
    THROUGHPUT = "throughput"
    TTFT = "ttft"
    """Time to first token."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts from the operator; ``None`` and an empty tuple mean unknown, and are never
    assumed.
    """

    #: Sampling temperatures in production, from 0 up.
    temperatures: tuple[float, ...] = ()
    objective: Objective | None = None
    #: Whether target and draft are of one family (for a head: trained for this target).
    same_family: bool | None = None
    same_tokenizer: bool | None = None  # whether they share the tokenizer
    uniform_batch: bool | None = None  # whether the requests of a batch are alike
    #: Whether acceptance was measured at production's temperature.
    validated: bool | None = None
    monitored: bool | None = None  # whether acceptance is monitored


#: Highest temperature for speculation, and median temperature from which to leave it
#: off, as published.
MAX_COOL = 0.5
MAX_MEDIAN = 0.7
#: From this difference on, temperatures vary: between "deterministic" and "balanced" of
#: common presets.
MAX_SPREAD = 0.2


class Answer(StrEnum):
    """Whether a condition is true."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the checklist: its name, whether it is true, and why."""

    name: str
    holds: Answer
    text: str


@dataclass(frozen=True, slots=True)
class Checklist:
    """Conditions for speculation, and reasons to leave it off."""

    use: tuple[Item, ...]
    leave_off: tuple[Item, ...]


_CHECKLIST = tomllib.loads(
    Path(__file__).with_name("checklist.toml").read_text("utf-8")
)


def fill_in(memory: Memory, load: PlannedLoad, facts: Facts) -> Checklist:
    """Return the checklist for the known facts."""
    warm = facts.temperatures
    after = memory.after
    median = statistics.median(warm) if warm else 0.0
    # Rounded: 0.3 - 0.1 is more than 0.2 in binary.
    if warm:
        varies = round(max(warm) - min(warm), 9) > MAX_SPREAD
    else:
        varies = False
    known: dict[str, bool | None] = {
        "cool": not varies and max(warm) <= MAX_COOL if warm else None,
        "hot": varies or median > MAX_MEDIAN if warm else None,
        "fits": None if after is None else after.kv_budget_bytes > 0 and after.fits,
        "ttft": None if facts.objective is None else facts.objective is Objective.TTFT,
        "uniform_batch": facts.uniform_batch,
        "validated": facts.validated,
        "monitored": facts.monitored,
    }
    flags = {"--context": load.context, "--batch": load.batch}
    missing = (
        ", ".join(flag for flag, value in flags.items() if value is None)
        or "--target-config"
    )
    words: dict[str, object] = {
        "max_cool": MAX_COOL,
        "max_median": MAX_MEDIAN,
        "warm": ", ".join(f"{value:g}" for value in warm)
        + (f", median {median:g}" if len(warm) > 1 else ""),
        "objective": str(facts.objective),
        "needs": f"whether what is served fits ({missing})"
        if after
        else "the size of the drafter",
        "room": "no VRAM is left for keys and values",
    }
    if load.tokens is not None and after is not None and after.tokens:
        words["room"] = (
            f"{load.tokens:,} tokens are to be held, {after.tokens:,} fit with the "
            "drafter"
        )
    known |= {
        f"not {fact}": None if holds is None else not holds
        for fact, holds in known.items()
    }

    def item(line: Mapping[str, str]) -> Item:
        answer = {None: Answer.UNKNOWN, True: Answer.YES, False: Answer.NO}[
            known[line["fact"]]
        ]
        text = line.get(answer, line["yes"]).format(**words)
        return Item(
            line["name"],
            answer,
            f"not known: find out {text}" if answer is Answer.UNKNOWN else text,
        )

    return Checklist(
        **{part: tuple(map(item, lines)) for part, lines in _CHECKLIST.items()}
    )
