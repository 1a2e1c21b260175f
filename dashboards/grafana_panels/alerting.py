"""Where the alert rules and their runbooks are."""

from vllm_specdec_exporter.commands.dashboards.files import RUNBOOKS

__all__ = ["RUNBOOKS", "WATCHDOG"]

#: Always fires where the rules are loaded, so that no alert can be told from no rules.
WATCHDOG = 'ALERTS{alertname="VLLMSpecDecodeWatchdog",alertstate="firing"}'
