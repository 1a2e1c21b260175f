#!/usr/bin/env bash
# With type-and-unit-labels a rate and an aggregate of one counter no longer have equal labels.
#
# Version:   prometheus 3.5.3+ds1-6 (Debian), --enable-feature=type-and-unit-labels.
# Expected:  The feature adds metadata; arithmetic between series gives what it gave before.
# Behaviour: rate() drops __type__, "sum without" keeps it. Matching on all labels between the
#            two is empty, without an error or a warning. A gauge divided by a counter is empty
#            as well, as the two types differ.
# Seen:      rate over rate: 1 series; rate over "sum without": 0; gauge over counter: 0
#            without the feature: 1, 1, 1
# Matters:   A recorded acceptance or speedup that divides a rate by something kept with
#            "without" vanishes, its rule stays healthy, and alerts on it never fire.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

debian sid prometheus=3.5.3+ds1-6
cat >"$work/metrics" <<'END'
# TYPE accepted_total counter
accepted_total{engine="0"} 10
# TYPE drafts_total counter
drafts_total{engine="0"} 20
# TYPE running gauge
running{engine="0"} 2
END
target=$(free_port)
start target python3 "$(dirname "$0")/shared/target.py" "$target" "$work/metrics"
cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
- job_name: vllm
  static_configs: [{targets: ['127.0.0.1:$target']}]
END
plain=$(free_port)
start plain "$work/sid/usr/bin/prometheus" --config.file="$work/prometheus.yml" \
  --storage.tsdb.path="$work/plain" --web.listen-address="127.0.0.1:$plain"
typed=$(free_port)
start typed "$work/sid/usr/bin/prometheus" --config.file="$work/prometheus.yml" \
  --storage.tsdb.path="$work/typed" --web.listen-address="127.0.0.1:$typed" \
  --enable-feature=type-and-unit-labels
until_ready "http://127.0.0.1:$plain/-/ready"
until_ready "http://127.0.0.1:$typed/-/ready"
until_stored "$plain" 'count_over_time(up[5m]) > 3'
until_stored "$typed" 'count_over_time(up[5m]) > 3'

counts() {
  local rate='sum without (job) (rate(accepted_total[1m]))'
  echo "$(values "$1" "count($rate - sum without (job) (rate(drafts_total[1m])))")" \
    "$(values "$1" "count($rate - sum without (job) (drafts_total))")" \
    "$(values "$1" 'count(running / drafts_total)')"
}
seen "plain $(counts "$plain")
with the feature $(counts "$typed")" <<'END'
plain 1 1 1
with the feature 1 none none
END
