#!/usr/bin/env bash
# What a slow group of vmalert records can be too old to be read in the moment it is written.
#
# Version:   vmalert and victoria-metrics 1.145.0+ds1-2 (Debian), default flags.
# Expected:  A recorded value has the time of its evaluation, as in Prometheus, so the next rule
#            that reads it finds it.
# Behaviour: The group is evaluated at (now - 30 s) rounded down to its interval, and its sample
#            gets that time. A plain selector looks back 5 minutes: where the boundary is longer
#            ago, the sample is invisible from the start. The rule is healthy and says 1 sample.
# Seen:      health ok, samples 1; instant query none, last_over_time over 3 hours 3
# Matters:   Slow groups hold what needs long windows of drafts: objectives, break-even, decisions.
#            Fast alerts that read them have gaps in each cycle, so "for:" begins anew each time
#            and they never fire. With an interval of 3 minutes it is some seconds of each cycle.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

debian sid victoria-metrics=1.145.0+ds1-2
port=$(free_port)
start victoria "$work/sid/usr/bin/victoria-metrics" -storageDataPath="$work/data" \
  -httpListenAddr="127.0.0.1:$port" -loggerLevel=ERROR
until_ready "http://127.0.0.1:$port/health"
# An interval in minutes whose last boundary is 7 to 20 minutes ago: the outcome does not depend
# on the time of the day. Go rounds down from the year 1, not from 1970.
interval=$(python3 - <<'END'
import time

minutes = (int(time.time()) - 30 + 62135596800) // 60
print(next(m for m in range(23, 120) if 7 <= minutes % m <= 20))
END
)
cat >"$work/rules.yml" <<END
groups:
- name: slow
  interval: ${interval}m
  rules: [{record: break_even, expr: vector(3)}]
END
alert=$(free_port)
# The first evaluation is otherwise delayed by a random time of up to 5 minutes.
start vmalert "$work/sid/usr/bin/vmalert" -rule="$work/rules.yml" -group.maxStartDelay=1s \
  -datasource.url="http://127.0.0.1:$port" -remoteWrite.url="http://127.0.0.1:$port" \
  -remoteWrite.flushInterval=1s -httpListenAddr="127.0.0.1:$alert"
until_ready "http://127.0.0.1:$alert/health"
until_stored "$port" 'last_over_time(break_even[3h])'

rule=$(curl -fs "http://127.0.0.1:$alert/api/v1/rules" | python3 -c '
import json, sys
rule = json.load(sys.stdin)["data"]["groups"][0]["rules"][0]
print("health", rule["health"], "samples", rule["lastSamples"])')
seen "$rule
instant query $(values "$port" break_even)
last_over_time $(values "$port" 'last_over_time(break_even[3h])')" <<'END'
health ok samples 1
instant query none
last_over_time 3
END
