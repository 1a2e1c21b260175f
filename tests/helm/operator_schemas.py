"""Objects of the Prometheus operator against its published schemas, and against fields that do not exist.

The schemas are compiled JavaScript (npm `@kubernetes-models/prometheus-operator`), so one Node answers for
the whole session.
"""

import atexit
import functools
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .npm_packages import NpmError, node_modules

_SCRIPT = Path(__file__).with_suffix(".mjs")


def is_operators(obj: Mapping[str, Any]) -> bool:
    """Whether an object is of the Prometheus operator's APIs, whose schemas need Node."""
    return str(obj.get("apiVersion", "")).startswith("monitoring.coreos.com/")


def operator_problems(obj: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a PodMonitor, ServiceMonitor, PrometheusRule, AlertmanagerConfig ..."""
    node = _node()
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(json.dumps([obj]) + "\n")
    node.stdin.flush()
    line = node.stdout.readline()
    assert line, f"node ended with exit code {node.wait(10)}: its error stands above"
    return list(json.loads(line)[0])


@functools.cache
def _node() -> subprocess.Popen[str]:
    node_modules()
    program = shutil.which("node") or shutil.which("nodejs")
    if program is None:
        msg = "node is missing: install the Debian package nodejs"
        raise NpmError(msg)
    process = subprocess.Popen(
        (program, str(_SCRIPT)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_SCRIPT.parent
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    # The end of its input is the end of the script.
    process.communicate(timeout=10)
