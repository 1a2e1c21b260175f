"""Every name that pages may use of this project: from its tables, and from what they
generate.
"""

import importlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from alerts.lint import raw_metrics, read_bundle, records
from dashboards.series import VLLM
from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.commands.act import EVENTS
from vllm_specdec_exporter.commands.table import COMMANDS
from vllm_specdec_exporter.config.options import Parser
from vllm_specdec_exporter.engines import ENGINES
from vllm_specdec_exporter.per_request.routes import PUSH_PATH
from vllm_specdec_exporter.publish.metrics import METRICS
from vllm_specdec_exporter.settings.option_table import OPTIONS
from vllm_specdec_exporter.settings.web_options import CONFIG_FILE_VARIABLE


@cache
def metrics() -> frozenset[str]:
    """Names of series: of the exporter, of servers as captured, and of the rules, with
    their parts.
    """
    series = {*raw_metrics(), *VLLM, *records(read_bundle())}
    series.update(re.findall(r"(?:vllm_specdec_|vllm:)\w+", " ".join(series)))
    families = {
        re.sub(r"_(bucket|sum|count|total|created)$", "", name) for name in series
    }
    # Templates of messages have names of the same form.
    templates = _text((ROOT / "alerts/templates").glob("*.tmpl"))
    defined = re.findall(r'define "([\w.]+)"', templates)
    return frozenset({*series, *families, *defined, EVENTS})


def _text(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text("utf-8") for path in paths)


def labels(metric: str) -> frozenset[str] | None:
    """Return the labels that a metric of the exporter or of `act` may have; `None` for
    one of neither.
    """
    row = next((row for row in METRICS if row.full_name == metric), None)
    if row is not None:
        return frozenset({*row.labels, "model_name", "engine", "window", "target"})
    if metric == EVENTS:
        return frozenset({"event", "action"})
    return None


@cache
def alerts() -> frozenset[str]:
    """Names of alerts."""
    return frozenset(rule.name for rule in read_bundle().alerts)


@cache
def variables() -> frozenset[str]:
    """Environment variables of the exporter, of the hooks, and of the tests with a real
    vLLM.
    """
    options = {option.variable for option in OPTIONS}
    files = (ROOT / "Makefile", *(ROOT / "docs/hooks").glob("*.py"))
    others = re.findall(r"\bSPECDEC_[A-Z_]+", _text(files))
    return frozenset({*options, CONFIG_FILE_VARIABLE, *others})


@cache
def flags(command: str) -> frozenset[str]:
    """The flags of a command."""
    parser = Parser(command, "")
    parser.add_argument("--version")
    module = f"vllm_specdec_exporter.{COMMANDS[command][0]}"
    importlib.import_module(module).add_arguments(parser)
    return frozenset(parser._option_string_actions)


@cache
def engine_flags() -> frozenset[str]:
    """The flags by which engines are told to speculate."""
    texts = (f"{each.speculation_option} {each.k_option}" for each in ENGINES)
    return frozenset(re.findall(r"--[\w-]+", " ".join(texts)))


@cache
def all_flags() -> frozenset[str]:
    """The flags of all commands, and those of the programs beside them in the
    repository.
    """
    scripts = []
    for folder in ("alerts", "dashboards", "docs", "helm", "bench"):
        for pattern in ("*.py", "examples/*.py"):
            scripts += (ROOT / folder).glob(pattern)
    written = re.findall(r'add_argument\(\s*"(--[\w-]+)"', _text(scripts))
    return frozenset(written).union(*map(flags, COMMANDS))


@cache
def dashboards() -> frozenset[str]:
    """The uids of the dashboards."""
    files = (ROOT / "dashboards/json").glob("*.json")
    return frozenset(data_of(path)["uid"] for path in files)


@cache
def endpoints() -> frozenset[str]:
    """The paths that the exporter, `act` and the simulator answer to."""
    package = ROOT / "exporter/vllm_specdec_exporter"
    files = (
        package / "serve/endpoints.py",
        package / "commands/act/__init__.py",
        package / "commands/simulate/__init__.py",
    )
    routes = re.findall(r"add_(?:get|post)\(\s*\"(/[^\"]*)\"", _text(files))
    return frozenset({PUSH_PATH, *routes})


@cache
def targets() -> frozenset[str]:
    """The targets of the Makefile."""
    return frozenset(re.findall(r"(?m)^([a-z-]+):", text_of("Makefile")))
