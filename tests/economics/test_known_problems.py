"""Configurations that are known to work badly: which deployments a row is said of."""

import json
from typing import Any

import pytest

from support.copies import replace
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics import known_problems as module
from vllm_specdec_exporter.economics.known_problems import (
    PROBLEMS,
    DeploymentFacts,
    known_problems,
)
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.economics.speculative_config import (
    ScheduleRow,
    Speculation,
    parse_speculation,
)
from vllm_specdec_exporter.engines import ENGINE_OF
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.case import Case
from vllm_specdec_exporter.judgement.findings import Finding, Severity, find
from vllm_specdec_exporter.measures.measures import Measures

ON_GPU, HYBRID, EDGE, PARALLEL, GRAPHS, TREE, GREEDY, PRESCRIBED = PROBLEMS
ROWS = (ScheduleRow(1, 8, 3), ScheduleRow(9, 32, 1), ScheduleRow(33, 512, 0))


def _measured(method: str, model: str = "", **facts: Any) -> DeploymentFacts:
    """Facts of a server whose acceptance is known."""
    return DeploymentFacts(method, model, validated=True, **facts)


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        (DeploymentFacts(), ()),
        # Whoever samples, or may, is told of greedy drafts, unless they were tried.
        (DeploymentFacts("draft_model"), (GREEDY,)),
        (DeploymentFacts("draft_model", sampled=True), (GREEDY,)),
        (DeploymentFacts("draft_model", version="0.20.2"), ()),
        (DeploymentFacts("draft_model", sampled=False), ()),
        (DeploymentFacts("draft_model", validated=True), ()),
        (DeploymentFacts("suffix"), ()),
        (
            DeploymentFacts(
                "draft_model", document='{"draft_sample_method": "probabilistic"}'
            ),
            (),
        ),
        (DeploymentFacts("ngram_gpu"), (ON_GPU,)),
        (DeploymentFacts("ngram_gpu", version="0.33.0"), (ON_GPU,)),
        (DeploymentFacts("ngram_gpu", version="v0.16.2"), ()),
        (_measured("mtp", "Qwen/Qwen3.6-35B-A3B"), (HYBRID,)),
        (_measured("qwen3_next_mtp", "Qwen/Qwen3-Next-80B-A3B-Instruct"), (HYBRID,)),
        (_measured("eagle3", "Qwen/Qwen3.6-35B-A3B"), ()),
        (_measured("mtp", "Qwen/Qwen3.8B"), ()),
        (_measured("eagle3", schedule=ROWS, batch_sizes=(20, 40)), (EDGE, GRAPHS)),
        (_measured("eagle3", schedule=ROWS, engines=2), (PARALLEL,)),
        (_measured("eagle3", engines=2), ()),
        # K changes, and drafting goes on
        (_measured("eagle3", schedule=ROWS, batch_sizes=(4, 30)), (GRAPHS,)),
        (_measured("eagle3", schedule=ROWS), (GRAPHS,)),
        (_measured("eagle3", version="0.19.1", tree=True), (TREE,)),
        (_measured("eagle3", version="0.32.0", tree=True), ()),
        (
            _measured("eagle3", document='{"rejection_sample_method": "synthetic"}'),
            (PRESCRIBED,),
        ),
        (_measured("eagle3", document='{"rejection_sample_method": "block"}'), ()),
    ],
)
def test_a_row_is_said_of_the_deployments_it_holds_for(
    setup: DeploymentFacts, expected: tuple[object, ...]
) -> None:
    assert known_problems(setup) == expected


def test_a_row_that_is_fixed_is_not_said_of_releases_with_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixed = replace(ON_GPU, until=(0, 40))
    monkeypatch.setattr(module, "PROBLEMS", (fixed,))
    problems = {
        text: known_problems(DeploymentFacts("ngram_gpu", version=text))
        for text in ("0.39.1", "0.40.0", "")
    }
    assert problems == {"0.39.1": (fixed,), "0.40.0": (), "": (fixed,)}
    assert ", since 0.17, fixed in 0.40; " in fixed.reference


def idle(method: str) -> Case:
    """A vLLM at rest that drafts three tokens by this method."""
    return Case(
        Activity(ActivityState.IDLE),
        None,
        counters=Counters(),
        k=3,
        method=method,
        profile=BUILTIN["unknown"],
        thresholds=Thresholds(),
        engine=ENGINE_OF["vllm-v1"],
    )


def test_they_are_findings_of_a_vllm_and_of_no_other_server() -> None:
    case = idle("ngram_gpu")
    hint = Finding(Severity.HINT, ON_GPU.text, f"{ON_GPU.action} ({ON_GPU.reference}.)")

    assert hint in find(case)
    assert hint not in find(replace(case, engine=ENGINE_OF["aphrodite"]))
    assert hint not in find(replace(case, version="0.16.0"))

    ignored = replace(
        case, method="eagle3", speculation=Speculation(schedule=ROWS), engines=2
    )
    assert PARALLEL.text in {finding.text for finding in find(ignored)}
    text = '{"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.5}'
    prescribed = replace(case, method="eagle3", speculation=parse_speculation(text))
    assert PRESCRIBED.text in {finding.text for finding in find(prescribed)}


@pytest.mark.parametrize(
    ("method", "hit_ratio", "expected"),
    [
        ("mtp", 0.0, True),
        ("dflash", 0.005, True),
        ("mtp", 0.4, False),
        ("mtp", None, False),  # nothing was looked up, or it is not counted
        ("eagle3", 0.0, False),
    ],
)
@pytest.mark.parametrize("model", ["Qwen/Qwen3.6-35B-A3B", "chat"])
def test_lost_hits_go_by_the_counters_of_a_running_server(
    model: str, method: str, hit_ratio: float | None, expected: bool
) -> None:
    """Whatever the name is that it serves."""
    measures = Measures("5m", prefix_cache_hit_ratio=hit_ratio)
    case = replace(idle(method), model_name=model, measures=measures)
    assert (HYBRID.text in {finding.text for finding in find(case)}) is expected


@pytest.mark.parametrize(
    ("tree", "branches"),
    [
        ("[(0,), (1,), (0, 0)]", True),
        ("[(0,), (0, 0), (0, 0, 0)]", False),
        ("", False),
        (None, False),
    ],
)
def test_a_tree_has_branches_and_a_chain_has_none(
    tree: str | None, *, branches: bool
) -> None:
    config = {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "speculative_token_tree": tree,
    }
    speculation = parse_speculation(json.dumps(config))
    assert speculation.tree is branches

    findings = find(replace(idle("eagle3"), speculation=speculation))
    texts = {finding.text for finding in findings}
    assert (TREE.text in texts) is branches
