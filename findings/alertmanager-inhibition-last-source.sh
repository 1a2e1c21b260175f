#!/usr/bin/env bash
# Alertmanager 0.33 lets go of an inhibited alert although a source of the inhibition fires.
#
# Version:   prometheus-alertmanager 0.33.1-5 (Debian sid) beside 0.28.1+ds-1 (Debian trixie).
# Expected:  An alert is inhibited as long as any source fires.
# Behaviour: Of two sources whose "equal" labels are the same, 0.33 remembers the one that was
#            sent last. When that one is resolved, what it inhibited is active, until the other
#            source is sent once more.
# Seen:      0.28.1 suppressed; 0.33.1 active, and suppressed again after the other is resent
# Matters:   "Monitoring is lost" and "switch speculation off" inhibit advice on K and on
#            acceptance, and fire for several reasons at once. The end of one reason sends the
#            tickets that the other still forbids; senders repeat an alert only each minute.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

debian sid prometheus-alertmanager=0.33.1-5
debian trixie prometheus-alertmanager=0.28.1+ds-1
cat >"$work/alertmanager.yml" <<'END'
route: {receiver: nobody}
receivers: [{name: nobody}]
inhibit_rules:
- source_matchers: [alertname="MonitoringLost"]
  target_matchers: [alertname="AcceptanceLow"]
  equal: [model]
END
cat >"$work/alerts.py" <<'END'
"""Prints the state of the target after the last source is resolved, and after a resend."""

import json
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta

API = f"http://127.0.0.1:{sys.argv[1]}/api/v2/alerts"


def send(name, reason, minutes=10):
    ends = datetime.now(UTC) + timedelta(minutes=minutes)
    labels = {"alertname": name, "model": "m", "reason": reason}
    body = json.dumps([{"labels": labels, "endsAt": ends.isoformat()}]).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(API, body, headers)).read()
    time.sleep(1.5)


def state():
    for alert in json.load(urllib.request.urlopen(API)):
        if alert["labels"]["alertname"] == "AcceptanceLow":
            return alert["status"]["state"]
    return "missing"


send("AcceptanceLow", "acceptance")
send("MonitoringLost", "down")
send("MonitoringLost", "unreachable")
states = [state()]
send("MonitoringLost", "unreachable", minutes=-0.01)
states.append(state())
send("MonitoringLost", "down")
states.append(state())
print(*states)
END
# states SUITE
states() {
  local port
  port=$(free_port)
  start "$1" "$work/$1/usr/bin/prometheus-alertmanager" --config.file="$work/alertmanager.yml" \
    --storage.path="$work/data-$1" --web.listen-address="127.0.0.1:$port" --cluster.listen-address=
  until_ready "http://127.0.0.1:$port/-/ready"
  python3 "$work/alerts.py" "$port" >"$work/states-$1"
}
states trixie
states sid
seen "0.28.1: $(cat "$work/states-trixie")
0.33.1: $(cat "$work/states-sid")" <<'END'
0.28.1: suppressed suppressed suppressed
0.33.1: suppressed active suppressed
END
