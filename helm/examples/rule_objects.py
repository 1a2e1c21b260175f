"""Turns the alert rules into objects for other operators: ClusterRules (Google), VMRule
(VictoriaMetrics).

    python helm/examples/rule_objects.py ClusterRules alerts/rules/*.yml \
        | kubectl apply -f -
    helm template specdec helm/vllm-specdec-exporter --set prometheusRule.enabled=true \
        | python helm/examples/rule_objects.py VMRule -

Takes rule files, and PrometheusRule objects, with what the chart's values change. Needs
PyYAML.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

_API = {
    "ClusterRules": "monitoring.googleapis.com/v1",
    "VMRule": "operator.victoriametrics.com/v1beta1",
}
#: What a rule of that kind has no field for.
_MISSING = {"ClusterRules": ("keep_firing_for",), "VMRule": ()}


def rule_object(
    kind: str, name: str, groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the object that has these groups of rules.

    Args:
        kind: "ClusterRules" or "VMRule".
        name: of the object.
        groups: as in a rule file.
    """
    return {
        "apiVersion": _API[kind],
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"groups": [_group(kind, group) for group in groups]},
    }


def _group(kind: str, group: Mapping[str, Any]) -> dict[str, Any]:
    rules = []
    for rule in group["rules"]:
        kept = dict(rule)
        # Without keep_firing_for an alert only ends earlier: no reason to refuse it.
        for field in _MISSING[kind]:
            kept.pop(field, None)
        rules.append(kept)
    return {**group, "rules": rules}


def rule_objects(kind: str, name: str, text: str) -> Iterator[dict[str, Any]]:
    """Yield an object for each rule file, or PrometheusRule, in a YAML text; other
    objects are passed over.

    Args:
        kind: "ClusterRules" or "VMRule".
        name: of the object, where the text is a rule file.
        text: the YAML.
    """
    for document in yaml.safe_load_all(text):
        if not document:
            continue
        if document.get("kind") == "PrometheusRule":
            yield rule_object(
                kind, document["metadata"]["name"], document["spec"]["groups"]
            )
        elif "groups" in document:
            yield rule_object(kind, name, document["groups"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the objects of the files named; exit code 1 where there are none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=_API)
    parser.add_argument(
        "file",
        nargs="+",
        help="rule file, or YAML with PrometheusRule objects; - is standard input",
    )
    parsed = parser.parse_args(arguments)
    objects: list[dict[str, Any]] = []
    for file in parsed.file:
        if file == "-":
            text = sys.stdin.read()
        else:
            text = Path(file).read_text(encoding="utf-8")
        objects += rule_objects(parsed.kind, f"vllm-specdec-{Path(file).stem}", text)
    if not objects:
        sys.stderr.write("no rules in " + ", ".join(parsed.file) + "\n")
        return 1
    # Expressions stay on one line, as in the rule files, to be compared with them.
    sys.stdout.write(
        yaml.safe_dump_all(objects, sort_keys=False, width=1000, allow_unicode=True)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
