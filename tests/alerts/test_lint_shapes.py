"""What is known of series, and what labels operations leave."""

from __future__ import annotations

import pytest

from alerts import lint
from alerts.lint_examples import DRAFTS, ENGINE, M, bundle


@pytest.mark.parametrize(
    ("expr", "labels", "origin"),
    [
        ("vllm_specdec_up", {"target"}, "exporter"),
        ("vllm_specdec_acceptance_ratio", {"target", "model_name", "engine", "window"}, "exporter"),
        (f"sum by ({M}) ({ENGINE})", {"cluster", "namespace", "model_name"}, ""),
        (f"sum ({ENGINE})", set(), ""),
        (f"sum without (engine) ({ENGINE})", {"target", "model_name"}, "exporter"),
        (f"{ENGINE} * on ({M}) {DRAFTS}", {"cluster", "namespace", "model_name"}, ""),
        (f"{ENGINE} * on ({M}) group_left () {DRAFTS}", {"target", "model_name", "engine"}, "exporter"),
        (f'count_values by ({M}) ("k", {DRAFTS})', {"cluster", "namespace", "model_name", "k"}, ""),
        ('absent(up{job="a", pod=~"b.*"})', {"job"}, ""),
        (
            "histogram_quantile(0.5, sum by (le, pod) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
            {"pod"},
            "",
        ),
        ("vector(1)", set(), ""),
        (f"1 - {DRAFTS} > 0", {"cluster", "namespace", "model_name"}, ""),
        (
            f'label_replace({DRAFTS}, "x", "$1", "model_name", "(.*)")',
            {"cluster", "namespace", "model_name", "x"},
            "",
        ),
    ],
)
def test_the_labels_of_an_expression_are_those_that_prometheus_leaves(
    expr: str, labels: set[str], origin: str
) -> None:
    found = lint.shape(lint.parse(expr), bundle())
    assert found is not None
    assert (set(found.labels), found.origin) == (labels, origin)


@pytest.mark.parametrize("expr", ["time()", "1 + 2", "scalar(up)"])
def test_a_scalar_has_no_labels(expr: str) -> None:
    assert lint.shape(lint.parse(expr), bundle()) is None


def test_a_server_metric_is_known_with_its_labels_and_with_values_where_all_are_shown() -> None:
    text = (
        '# HELP vllm:x_total a\nvllm:x_total{engine="0",finished_reason="stop"} 1.0\n'
        'vllm:x_total{engine="1",finished_reason="a\\"b"} 2.0\nvllm:y 3\nprocess_x 1\n'
    )
    assert lint.server_metrics(text) == {
        "vllm:x_total": lint.Known(
            {"engine": None, "finished_reason": frozenset({"stop", 'a\\"b'})}, "server", counter=True
        ),
        "vllm:y": lint.Known({}, "server", counter=False),
    }


def test_every_exposed_name_of_the_exporter_is_known() -> None:
    known = lint.exporter_metrics()
    assert known["vllm_specdec_drafts_total"].counter
    assert known["vllm_specdec_accepted_tokens_per_draft_sum"].counter
    assert "le" in known["vllm_specdec_accepted_tokens_per_draft_bucket"].labels
    assert "vllm_specdec_accepted_tokens_per_draft" not in known
    assert not known["vllm_specdec_requests_running"].counter
    assert "active" in (known["vllm_specdec_activity"].labels["state"] or ())
