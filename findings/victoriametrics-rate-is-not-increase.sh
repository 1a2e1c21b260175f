#!/usr/bin/env bash
# In VictoriaMetrics rate(c[30m]) * 1800 can be fifteen times increase(c[30m]).
#
# Version:   victoria-metrics 1.145.0+ds1-2 (Debian).
# Expected:  rate is increase divided by the window, as in Prometheus.
# Behaviour: increase counts what grew in the window; rate divides it by the time between the
#            series' own samples in the window, so a young or a finished series counts as if it
#            had been there all the time.
# Seen:      a counter that lived for 2 of 30 minutes and grew by 1200:
#            increase 1200, rate * 1800 18000
# Matters:   Pods that come and go each count with their full speed: drafts of a rollout double,
#            acceptance is weighted towards the youngest pod, "at least 1000 drafts in 30
#            minutes", written with rate, holds after seconds.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

debian sid victoria-metrics=1.145.0+ds1-2
port=$(free_port)
start victoria "$work/sid/usr/bin/victoria-metrics" -storageDataPath="$work/data" \
  -httpListenAddr="127.0.0.1:$port" -loggerLevel=ERROR
until_ready "http://127.0.0.1:$port/health"
now=$(($(date +%s) / 60 * 60 - 600))
# A sample each 10 seconds, the last one 8 minutes before the evaluation.
python3 - "$now" >"$work/samples" <<'END'
import sys

end = int(sys.argv[1]) - 480
for step in range(13):
    print(f"drafts_total {100 * step} {(end - 120 + 10 * step) * 1000}")
END
curl -fs --data-binary "@$work/samples" "http://127.0.0.1:$port/api/v1/import/prometheus"
curl -fs "http://127.0.0.1:$port/internal/force_flush"

seen "increase $(values "$port" 'increase(drafts_total[30m])' "$now")
rate $(values "$port" 'rate(drafts_total[30m]) * 1800' "$now")" <<'END'
increase 1200
rate 18000
END
