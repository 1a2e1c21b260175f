"""Checks before a drafter is deployed, each with a verdict and its numbers.

Limits are the published ones: same family, same tokenizer, a draft model of 1:8 to 1:12 that takes at most
about 15 % of VRAM, and a warning if the target alone takes more than 70 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ...economics.known_problems import Setup, known_problems
from ...economics.sizes import format_gigabytes, format_parameters
from .methods import Drafter

if TYPE_CHECKING:
    from ...economics.architecture import Architecture
    from ...economics.model import Model
    from .checklist import Facts
    from .estimates import Memory, PlannedLoad, SpeedupByBatch
    from .methods import Method

#: Recommended size of the target over that of the draft model.
LEAST_RATIO, MOST_RATIO = 8.0, 12.0
#: Largest shares of all GPU memory for the drafter (in whole percent) and for the target.
MOST_DRAFT_PERCENT, MUCH_TARGET_SHARE = 15, 0.70


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


def check_all(
    method: Method,
    target: Model,
    draft: Model | None,
    memory: Memory,
    load: PlannedLoad,
    outlook: SpeedupByBatch,
    facts: Facts,
) -> tuple[Check, ...]:
    """Return the checks that apply to a method, in the order of the report."""
    checks = [check_target_share(memory)]
    if method.drafter is Drafter.MODEL:
        checks.append(check_size_ratio(target, draft))
        checks.append(check_tokenizer(target, draft, facts.same_tokenizer))
    if method.drafter is not Drafter.LOOKUP:
        checks.append(check_draft_share(memory))
    if method.drafter is not Drafter.LOOKUP and method.named:
        checks.append(check_family(method, target, draft, facts.same_family))
    if method.name == "mtp" and target.architecture is not None:
        checks.append(check_mtp(target.architecture))
    checks += [check_kv_budget(memory, load), check_batch(memory, load)]
    return *checks, check_depth(method, outlook.k), check_speedup(outlook, load)


def check_known_problems(method: Method, target_name: str) -> tuple[Check, ...]:
    """Warn of each known problem of `method`, and of the served model if its name is known."""
    return tuple(
        Check("known_problem", Verdict.WARN, f"{problem.text}. {problem.action} ({problem.reference})")
        for problem in known_problems(Setup(method.name, target_name))
    )


def check_target_share(memory: Memory) -> Check:
    """Warn if the target alone takes more than 70 % of VRAM."""
    share = memory.target_share
    text = (
        f"the target's weights take {format_gigabytes(memory.target)} of {format_gigabytes(memory.total)}, "
        f"{share:.1%} of VRAM (warning above {MUCH_TARGET_SHARE:.0%})"
    )
    return Check("target_share", Verdict.WARN if share > MUCH_TARGET_SHARE else Verdict.OK, text)


def check_size_ratio(target: Model, draft: Model | None) -> Check:
    """Compare the sizes: 1:8 to 1:12 is recommended, and a draft as large as its target cannot pay."""
    name = "size_ratio"
    if draft is None:
        return Check(name, Verdict.UNKNOWN, "not known: find out the size of the draft model")
    ratio = round(target.parameters / draft.parameters, 1)  # with the precision of the published limits
    sizes = f"{format_parameters(draft.parameters)} drafts for {format_parameters(target.parameters)}"
    recommended = f"recommended 1:{LEAST_RATIO:g} to 1:{MOST_RATIO:g}"
    if draft.parameters >= target.parameters:
        return Check(name, Verdict.FAIL, f"{sizes}: a draft model must be smaller than its target")
    text = f"{sizes}, 1:{ratio:g} ({recommended})"
    if ratio < LEAST_RATIO:
        return Check(name, Verdict.WARN, f"{text}: drafting is expensive; look for a smaller draft")
    if ratio > MOST_RATIO:
        return Check(name, Verdict.WARN, f"{text}: cheap, but so small a draft may be accepted less often")
    return Check(name, Verdict.OK, text)


def check_draft_share(memory: Memory) -> Check:
    """Fail if the drafter takes more than about 15 % of VRAM."""
    share = memory.draft_share
    if memory.draft is None or share is None:
        return Check("draft_share", Verdict.UNKNOWN, "not known: find out the size of the drafter")
    text = (
        f"the drafter's weights take {format_gigabytes(memory.draft)}, {share:.1%} of VRAM "
        f"(at most about {MOST_DRAFT_PERCENT} %)"
    )
    fits = round(share * 100) <= MOST_DRAFT_PERCENT
    return Check("draft_share", Verdict.OK if fits else Verdict.FAIL, text)


def check_family(method: Method, target: Model, draft: Model | None, same: bool | None) -> Check:
    """Check whether draft and target belong together; different architectures are a hint."""
    name = "same_family"
    if method.drafter is Drafter.HEAD:
        words = "the heads are trained for this very target"
        if same is None:
            return Check(name, Verdict.UNKNOWN, f"not known: find out whether {words} (--same-family)")
        if same:
            return Check(name, Verdict.OK, words)
        return Check(name, Verdict.FAIL, "heads that were trained for another target do not work")
    if same is not None:
        told = "target and draft are of one family" if same else "target and draft are of different families"
        return Check(name, Verdict.OK if same else Verdict.FAIL, told)
    ask = "not known: find out whether target and draft are of one family (--same-family)"
    if target.architecture is None or draft is None or draft.architecture is None:
        return Check(name, Verdict.UNKNOWN, ask)
    kinds = target.architecture.model_type, draft.architecture.model_type
    if kinds[0] == kinds[1]:
        return Check(name, Verdict.UNKNOWN, f"{ask}; both are of model_type {kinds[0]}, which proves nothing")
    return Check(name, Verdict.WARN, f"{ask}; their model_type differs: {kinds[0]} and {kinds[1]}")


def check_tokenizer(target: Model, draft: Model | None, same: bool | None) -> Check:
    """Check whether draft and target share the tokenizer; different vocabulary sizes mean they do not."""
    name = "same_tokenizer"
    sizes = None
    if target.architecture is not None and draft is not None and draft.architecture is not None:
        sizes = target.architecture.vocabulary, draft.architecture.vocabulary
    if sizes is not None and sizes[0] != sizes[1]:
        text = (
            f"vocab_size differs: {sizes[0]} of the target, {sizes[1]} of the draft; vLLM refuses such "
            "a pair (use_heterogeneous_vocab lifts that in new versions, with greedy drafts only)"
        )
        return Check(name, Verdict.FAIL, text)
    if same is False:
        return Check(name, Verdict.FAIL, "target and draft have different tokenizers")
    equal = "" if sizes is None else f"; vocab_size is {sizes[0]} in both"
    if same:
        return Check(name, Verdict.OK, f"target and draft share the tokenizer{equal}")
    ask = "not known: find out whether target and draft share the tokenizer (--same-tokenizer)"
    proof = f"{equal}, which is needed but proves nothing" if equal else ""
    return Check(name, Verdict.UNKNOWN, f"{ask}{proof}")


def check_mtp(target: Architecture) -> Check:
    """Check whether the target's configuration has layers for multi-token prediction."""
    if target.mtp_layers:
        text = f"num_nextn_predict_layers is {target.mtp_layers} in the target's config.json"
        return Check("mtp_layers", Verdict.OK, text)
    text = "num_nextn_predict_layers is not in the target's config.json: find out whether it has MTP layers"
    return Check("mtp_layers", Verdict.UNKNOWN, f"not known: {text}")


def check_kv_budget(memory: Memory, load: PlannedLoad) -> Check:
    """Check whether the weights fit and leave memory for at least one request."""
    name, before, after = "kv_budget", memory.before.budget, memory.after
    usable = f"{format_gigabytes(memory.usable)} usable"
    if before <= 0:
        text = f"the target alone does not fit: {format_gigabytes(before)} left of {usable}"
        return Check(name, Verdict.FAIL, text)
    if after is None:
        text = f"{format_gigabytes(before)} of {usable} without the drafter; with it not known"
        return Check(name, Verdict.UNKNOWN, f"{text}: find out the size of the drafter")
    left = format_gigabytes(after.budget)
    text = f"{format_gigabytes(before)} without the drafter, {left} with it, of {usable}"
    if after.budget <= 0:
        return Check(name, Verdict.FAIL, f"with the drafter it does not fit at all: {text}")
    if after.requests == 0:
        text = f"{text}: not even one request of {load.context:,} tokens fits ({after.tokens:,} tokens do)"
        return Check(name, Verdict.FAIL, text)
    return Check(name, Verdict.OK, text)


def check_batch(memory: Memory, load: PlannedLoad) -> Check:
    """Check whether the given batch fits if every request has its full context."""
    name, room = "batch_fits", memory.after
    if load.tokens is None:
        flags = {"--context": load.context, "--batch": load.batch}
        missing = " and ".join(flag for flag, value in flags.items() if value is None)
        return Check(name, Verdict.UNKNOWN, f"not known: find out what is to be served ({missing})")
    wanted = f"{load.batch:,} requests of {load.context:,} tokens need {load.tokens:,} tokens"
    if room is None:
        return Check(name, Verdict.UNKNOWN, f"{wanted}; not known: find out the size of the drafter")
    if room.tokens is None:
        if room.fits is False:
            return Check(name, Verdict.WARN, f"{wanted}; there is no room for any")
        text = f"{wanted}; not known what a token takes: give the config.json of the target (--target-config)"
        return Check(name, Verdict.UNKNOWN, text)
    text = f"{wanted}; {room.tokens:,} fit with the drafter, {memory.before.tokens:,} without"
    if room.fits:
        return Check(name, Verdict.OK, text)
    return Check(name, Verdict.WARN, f"{text}: the rest waits or is preempted")


def check_depth(method: Method, k: int) -> Check:
    """Compare K with the usual range of the method."""
    name = "num_speculative_tokens"
    if not method.deepest:
        return Check(name, Verdict.OK, f"K = {k}; no usual range is published for {method.name}")
    usual = f"{method.deepest}"
    if method.shallowest != method.deepest:
        usual = f"{method.shallowest} to {usual}"
    text = f"K = {k} (usual for {method.name}: {usual}; {method.depth_source})"
    within = method.shallowest <= k <= method.deepest
    return Check(name, Verdict.OK if within else Verdict.WARN, text)


def check_speedup(outlook: SpeedupByBatch, load: PlannedLoad) -> Check:
    """Check the estimated speedup at the given batch size, or over the table without one."""
    name = "speedup"
    rows = outlook.rows if load.batch is None else (outlook.at(load.batch),)
    low, high = min(row.low for row in rows), max(row.high for row in rows)
    where = f"at batch {load.batch}" if load.batch is not None else f"over batch sizes 1 to {rows[-1].batch}"
    text = f"estimated {low:.2f}x to {high:.2f}x {where}"
    if high <= 1:
        return Check(name, Verdict.FAIL, f"{text}: even the best case loses")
    if low >= 1:
        return Check(name, Verdict.OK, text)
    return Check(name, Verdict.WARN, f"{text}: it may lose; measure before relying on it")
