"""Webhook payloads as Alertmanager sends them, and programs that record how they were
called.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_specdec_exporter.commands.act.decision import Decision, decide

STARTS_AT = "2026-03-01T12:00:00.5Z"
NAMES = {
    "disable": "VLLMSpecDecodeDisable",
    "enable": "VLLMSpecDecodeReenable",
    "increase_k": "VLLMSpecDecodeKChangeAdvised",
    "decrease_k": "VLLMSpecDecodeKChangeAdvised",
    "switch_method": "VLLMSpecDecodeMethodChangeAdvised",
    "measure": "VLLMSpecDecodeNearBreakEven",
}
_K = {"disable": "0", "enable": "3", "increase_k": "5", "decrease_k": "2"}


def alert_document(
    action: str = "disable",
    *,
    status: str = "firing",
    starts_at: str = STARTS_AT,
    **labels: str,
) -> dict[str, Any]:
    """One alert of a payload, with the labels that the shipped rules give it; an empty
    one is left out.
    """
    all_labels = {
        "alertname": NAMES.get(action, "VLLMSpecDecodeOther"),
        "action": action,
        "recommended_k": _K.get(action, ""),
        "model_name": "llama",
        "severity": "warning",
        **labels,
    }
    return {
        "status": status,
        "labels": {name: value for name, value in all_labels.items() if value},
        "annotations": {"summary": "drafting costs more than it gains"},
        "startsAt": starts_at,
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "c0ffee",
    }


def body_of(*alerts: Mapping[str, Any], version: str = "4") -> bytes:
    """The payload that holds these alerts."""
    return json.dumps(
        {
            "version": version,
            "groupKey": "{}:{}",
            "truncatedAlerts": 0,
            "status": "firing",
            "receiver": "act",
            "groupLabels": {},
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": "http://alertmanager",
            "alerts": list(alerts),
        }
    ).encode()


def decision_of(action: str = "disable", **more: str) -> Decision:
    """What one alert requests."""
    (decision,) = decide(body_of(alert_document(action, **more)))
    return decision


def recorder(path: Path, record: Path, end: str = "exit 0") -> Path:
    """Write a program that appends its arguments and its standard input to `record`,
    and then ends so.

    Its end is a line of shell, with the arguments as $1 and so on.
    """
    path.write_text(
        f"""#!/usr/bin/env python3
import json, os, sys
call = {{"argv": sys.argv[1:], "stdin": sys.stdin.read()}}
call["environment"] = dict(os.environ)
with open({str(record)!r}, "a") as stream:
    stream.write(json.dumps(call) + "\\n")
print("recorded")
sys.stdout.flush()
os.execv("/bin/sh", ["sh", "-c", {end!r}, *sys.argv])
"""
    )
    path.chmod(0o755)
    return path


def calls_in(record: Path) -> list[dict[str, Any]]:
    """What a recorder has recorded."""
    if record.exists():
        return [json.loads(line) for line in record.read_text().splitlines()]
    return []
