"""Where the alert rules and their runbooks are; `generate.py` has a flag for your address."""

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks"
#: Always fires where the rules are loaded, so that no alert can be told from no rules.
WATCHDOG = 'ALERTS{alertname="VLLMSpecDecodeWatchdog",alertstate="firing"}'
