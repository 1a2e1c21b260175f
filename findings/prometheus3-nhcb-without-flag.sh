#!/usr/bin/env bash
# Prometheus 3 drops classic histograms without a word when their conversion lacks its flag.
#
# Version:   prometheus 3.5.3+ds1-6 (Debian), convert_classic_histograms_to_nhcb: true,
#            without --enable-feature=native-histograms.
# Expected:  An error of the configuration, or the classic series as before.
# Behaviour: The configuration loads and the scrape succeeds. Of a histogram nothing is stored,
#            neither _bucket, _sum and _count nor a native one; counters beside it are.
# Seen:      up 1, counter 10, histogram none, no warning or error in the log
# Matters:   vLLM's latencies vanish, its counters of drafts do not: acceptance is there, and
#            every comparison of what it gained is empty.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

debian sid prometheus=3.5.3+ds1-6
cat >"$work/metrics" <<'END'
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0"} 10
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01"} 5
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf"} 8
vllm:inter_token_latency_seconds_sum{engine="0"} 0.1
vllm:inter_token_latency_seconds_count{engine="0"} 8
END
target=$(free_port)
start target python3 "$(dirname "$0")/shared/target.py" "$target" "$work/metrics"
cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
- job_name: vllm
  convert_classic_histograms_to_nhcb: true
  static_configs: [{targets: ['127.0.0.1:$target']}]
END
port=$(free_port)
start prometheus "$work/sid/usr/bin/prometheus" --config.file="$work/prometheus.yml" \
  --storage.tsdb.path="$work/data" --web.listen-address="127.0.0.1:$port"
until_ready "http://127.0.0.1:$port/-/ready"
until_stored "$port" 'count_over_time(up[5m]) > 3'

seen "up $(values "$port" up)
counter $(values "$port" '{__name__="vllm:spec_decode_num_drafts_total"}')
histogram $(values "$port" '{__name__=~"vllm:inter_token_latency.*"}')
log $(grep -ciE 'level=(warn|error)' "$work/prometheus.log" || true)" <<'END'
up 1
counter 10
histogram none
log 0
END
