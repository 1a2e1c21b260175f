"""Engines of three kinds behind one exporter and one Prometheus, with the rules that are shipped."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.exporter import running_exporter
from support.other_engines import other_engine
from support.programs import simulator
from support.prometheus import PrometheusServer

pytestmark = pytest.mark.full

#: By file name, all evaluated as often as the servers are scraped.
RULES = {
    path.name: re.sub(r"\n +interval: \w+", "", path.read_text("utf-8"))
    for path in (Path(__file__).parents[2] / "alerts" / "rules").glob("*.yml")
}
OTHERS = ("sglang", "llamacpp")
FLAGS = ("--speed", "10", "--scenario", "healthy", "--num-speculative-tokens", "3", "--seed", "7")
LENGTH = "instance:vllm_specdec_mean_acceptance_length:ratio_rate5m"


def test_the_rules_mean_the_same_for_every_engine() -> None:
    """The same simulated traffic, written as by three engines: one acceptance length, and no alert on it.

    SGLang serves vLLM's model without counting positions: its drafts do not make vLLM's positions look poor.
    """
    with ExitStack() as stack:
        vllm = stack.enter_context(simulator(*FLAGS))
        urls = [vllm, *(stack.enter_context(other_engine(name, vllm)) for name in OTHERS)]
        flags = [word for url in urls for word in ("--vllm.url", url)]
        exporter = stack.enter_context(running_exporter(*flags, "--window", "5s"))
        config = {"rule_files": list(RULES)}
        prometheus = stack.enter_context(
            PrometheusServer({"fleet": exporter.address}, interval="500ms", config=config, files=RULES)
        )
        # The first rates are of few drafts.
        prometheus.wait_for(f"count(abs({LENGTH} / 3.3 - 1) < 0.05) == {1 + len(OTHERS)}", 120)
        known = prometheus.query("count by (dialect) (vllm_specdec_info)")
        assert sorted(dict(series)["dialect"] for series in known) == ["llamacpp", "sglang", "vllm-v1"]
        assert prometheus.query('vllm_specdec_activity{state="active"} == 0') == {}
        first = prometheus.wait_for('model:vllm_specdec_position_acceptance:ratio_rate30m{position="0"}', 120)
        assert min(first.values()) > 0.85
        assert prometheus.query('ALERTS{alertname=~".*Acceptance.*|.*Bypassed.*"}') == {}
