"""Checks before a drafter is deployed, each with a verdict and its numbers. Pure.

Limits are the published ones: same family, same tokenizer, a draft model of 1:8 to 1:12
that takes at most about 15 % of VRAM, and a warning if the target alone takes more than
70 %.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from ...economics.architecture import Architecture
from ...economics.known_problems import DeploymentFacts, known_problems
from ...economics.model import Model
from ...economics.sizes import format_gigabytes, format_parameters
from .estimates import Memory, SpeedupByBatch
from .question import Drafter, Method, PlannedLoad, Question

#: Recommended size of the target over that of the draft model.
MIN_RATIO = 8.0
MAX_RATIO = 12.0


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


#: Largest share of all GPU memory, in whole percent as they were published, and the
#: verdict above it.
MAX_SHARES = {"target": (70, Verdict.WARN), "draft": (15, Verdict.FAIL)}


class Check(Struct, frozen=True):
    """One check: its name, its result, and a sentence with the numbers."""

    name: str
    verdict: Verdict
    text: str


#: The result of a check, and a sentence with the numbers.
Result = tuple[Verdict, str]


def check_all(
    question: Question, memory: Memory, outlook: SpeedupByBatch
) -> Iterator[Check]:
    """Yield the checks that apply to a method, in the order of the report."""
    method = question.method
    target = question.target
    draft = question.draft
    facts = question.facts
    share = check_share("target", memory.target_weights_bytes, memory.target_share)
    yield Check("target_share", *share)
    if method.drafter is Drafter.MODEL:
        yield Check("size_ratio", *check_size_ratio(target, draft))
        tokenizer = check_tokenizer(target, draft, facts.same_tokenizer)
        yield Check("same_tokenizer", *tokenizer)
    if method.drafter is not Drafter.LOOKUP:
        share = check_share("draft", memory.draft_weights_bytes, memory.draft_share)
        yield Check("draft_share", *share)
        if method.named:
            yield Check("same_family", *check_family(method, facts.same_family))
    if method.name == "mtp" and target.architecture is not None:
        yield Check("mtp_layers", *check_mtp(target.architecture))
    yield Check("kv_budget", *check_kv_budget(memory, question.load))
    yield Check("num_speculative_tokens", *check_depth(method, outlook.k))
    yield Check("speedup", *check_speedup(outlook, question.load))
    deployment = DeploymentFacts(method.name, question.target_name)
    for problem in known_problems(deployment):
        text = f"{problem.text}. {problem.action} ({problem.reference})"
        yield Check("known_problem", Verdict.WARN, text)


def _unknown(missing: str) -> Result:
    return Verdict.UNKNOWN, f"not known: find out {missing}"


def check_share(role: str, weights: float | None, share: float | None) -> Result:
    """Check the weights of the target or of the draft as a share of VRAM."""
    if weights is None or share is None:
        return _unknown("the size of the drafter")
    limit, otherwise = MAX_SHARES[role]
    text = (
        f"the {role} takes {format_gigabytes(weights)}, {share:.1%} of VRAM (at most "
        f"about {limit} %)"
    )
    # The published limits say "about": 15.4 % is within 15 %.
    within = round(share * 100) <= limit
    return (Verdict.OK if within else otherwise), text


def check_size_ratio(target: Model, draft: Model | None) -> Result:
    """Compare the sizes: 1:8 to 1:12 is recommended, and a draft as large as its target
    cannot pay.
    """
    if draft is None:
        return _unknown("the size of the draft model")
    drafting = format_parameters(draft.parameters)
    sizes = f"{drafting} drafts for {format_parameters(target.parameters)}"
    if draft.parameters >= target.parameters:
        text = f"{sizes}: a draft model must be smaller than its target"
        return Verdict.FAIL, text
    # with the precision of the published limits
    ratio = round(target.parameters / draft.parameters, 1)
    text = f"{sizes}, 1:{ratio:g} (recommended 1:{MIN_RATIO:g} to 1:{MAX_RATIO:g})"
    if ratio < MIN_RATIO:
        text += ": drafting is expensive; look for a smaller draft"
        return Verdict.WARN, text
    if ratio > MAX_RATIO:
        text += ": cheap, but so small a draft may be accepted less often"
        return Verdict.WARN, text
    return Verdict.OK, text


def check_family(method: Method, same: bool | None) -> Result:
    """Check whether draft and target belong together, which only the operator knows."""
    fitting = "target and draft are of one family"
    foreign = "target and draft are of different families"
    if method.drafter is Drafter.HEAD:
        fitting = "the heads are trained for this very target"
        foreign = "heads that were trained for another target do not work"
    return _by_fact("--same-family", same, fitting, foreign)


def _by_fact(flag: str, fact: bool | None, fitting: str, foreign: str) -> Result:
    """Return the check of what only the operator knows, and says with a flag."""
    if fact is None:
        return _unknown(f"whether {fitting} ({flag})")
    if fact:
        return Verdict.OK, fitting
    return Verdict.FAIL, foreign


def check_tokenizer(target: Model, draft: Model | None, same: bool | None) -> Result:
    """Check whether draft and target share the tokenizer; different vocabulary sizes
    mean they do not.
    """
    # Whatever the operator says, vLLM compares the sizes itself.
    if target.architecture and draft and draft.architecture:
        target_size = target.architecture.vocabulary
        draft_size = draft.architecture.vocabulary
        if target_size != draft_size:
            text = (
                f"vocab_size differs: {target_size} of the target, {draft_size} of the "
                "draft; vLLM refuses such a pair (use_heterogeneous_vocab lifts that "
                "in new versions, with greedy drafts only)"
            )
            return Verdict.FAIL, text
    return _by_fact(
        "--same-tokenizer",
        same,
        fitting="target and draft share the tokenizer",
        foreign="target and draft have different tokenizers",
    )


def check_mtp(target: Architecture) -> Result:
    """Check whether the target has layers for multi-token prediction."""
    key = "num_nextn_predict_layers"
    if target.mtp_layers:
        text = f"{key} is {target.mtp_layers} in the target's config.json"
        return Verdict.OK, text
    return _unknown(
        f"whether the target has MTP layers: {key} is not in its config.json"
    )


def check_kv_budget(memory: Memory, load: PlannedLoad) -> Result:
    """Check whether the weights fit and leave memory for at least one request."""
    without_drafter = format_gigabytes(memory.before.kv_budget_bytes)
    usable = f"{format_gigabytes(memory.usable_bytes)} usable"
    if memory.before.kv_budget_bytes <= 0:
        text = f"the target alone does not fit: {without_drafter} left of {usable}"
        return Verdict.FAIL, text
    with_drafter = memory.after
    if with_drafter is None:
        return _unknown(
            f"the size of the drafter; {without_drafter} of {usable} without it"
        )
    left = format_gigabytes(with_drafter.kv_budget_bytes)
    text = f"{without_drafter} without the drafter, {left} with it, of {usable}"
    if with_drafter.kv_budget_bytes <= 0:
        text = f"with the drafter it does not fit at all: {text}"
        return Verdict.FAIL, text
    # None, and no 0, where the dimensions of the target are not known.
    if with_drafter.requests == 0:
        text += (
            f": not even one request of {load.context:,} tokens fits "
            f"({with_drafter.tokens:,} tokens do)"
        )
        return Verdict.FAIL, text
    return Verdict.OK, text


def check_depth(method: Method, k: int) -> Result:
    """Compare K with the usual range of the method."""
    if not method.deepest:
        text = f"K = {k}; no usual range is published for {method.name}"
        return Verdict.OK, text
    usual = f"{method.shallowest} to {method.deepest}"
    if method.shallowest == method.deepest:
        usual = f"{method.deepest}"
    text = f"K = {k} (usual for {method.name}: {usual}; {method.depth_source})"
    within = method.shallowest <= k <= method.deepest
    return (Verdict.OK if within else Verdict.WARN), text


def check_speedup(outlook: SpeedupByBatch, load: PlannedLoad) -> Result:
    """Check the estimated speedup at the given batch size, or over the table without
    one.
    """
    where = f"over batch sizes 1 to {outlook.rows[-1].batch}"
    if load.batch is not None:
        where = f"at batch {load.batch}"
    lows = []
    highs = []
    for row in outlook.rows:
        # The table has the usual batch sizes, too, which are not planned.
        if load.batch in (None, row.batch):
            lows += [speedup.low or 0.0 for speedup in row.speedups]
            highs += [speedup.high or 0.0 for speedup in row.speedups]
    text = f"estimated {min(lows):.2f}x to {max(highs):.2f}x {where}"
    if max(highs) <= 1:
        return Verdict.FAIL, f"{text}: even the best case loses"
    if min(lows) >= 1:
        return Verdict.OK, text
    text += ": it may lose; measure before relying on it"
    return Verdict.WARN, text
