#!/usr/bin/env bash
# The Dockerfile and docker-compose.yml in real containers (`make test-containers`): podman, and Debian's packages in
# place of the images that a registry would give, under the names that the two files use. It needs a Debian mirror and a
# package index, and leaves nothing behind: images and containers are in a store of its own.
#   run.sh PYTHON    one that has the locked packages
# Exit code 77: this machine cannot run containers.
set -euo pipefail
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp --directory --tmpdir=/var/tmp vllm-specdec-containers.XXXXXX)
image=vllm-specdec-exporter:$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' exporter/vllm_specdec_exporter/__init__.py)
base=$(sed -n 's/^ARG PYTHON_IMAGE=\(.*\)@.*/docker.io\/library\/\1/p' Dockerfile)
promised=$(sed -n 's/^| resident memory.* below \([0-9]*\) MiB in the image.*/\1/p' docs/deployment.md)

clean_up() {
  # Twice: the first time may come to a container whose network another one still uses.
  podman rm --all --force --time 0 > /dev/null 2>&1 || podman rm --all --force --time 0 > /dev/null 2>&1 || true
  awk -v work="$work" 'index($2, work) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT

fail() { echo "error: $*" >&2; exit 1; }
not_here() { echo "NOT RUN: this machine cannot run containers: $*" >&2; exit 77; }

began=$(date +%s%N)
step() {  # the name of what is done; its seconds go before it
  local now
  now=$(date +%s%N)
  awk -v ns=$((now - began)) -v name="$*" 'BEGIN { printf "%6.1f s  %s\n", ns / 1e9, name }'
  began=$now
}

hard_limit() { ulimit -H "$1" | awk -v most="$2" '{ print ($1 == "unlimited" || $1 > most) ? most : $1 }'; }

# Limits of a container cannot be above the hard ones; crun refuses cgroup v1 beside v2.
files=$(hard_limit -n 65536) processes=$(hard_limit -u 32768)
mkdir "$work/bin" "$work/networks"
cat > "$work/containers.conf" <<EOF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
[engine]
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
default_subnet = "10.234.118.0/24"
EOF
cat > "$work/storage.conf" <<EOF
[storage]
driver = "overlay"
graphroot = "$work/storage"
runroot = "$work/run"
EOF
# `docker` is podman, which builds from the images made here; an index of packages may have a certificate of its own.
cat > "$work/bin/docker" <<EOF
#!/bin/sh
if [ "\$1" = build ]; then
  shift
  [ ! -f /etc/pip.conf ] || set -- --volume /etc/pip.conf:/etc/pip.conf:ro "\$@"
  set -- build --quiet --format docker --network host --volume /etc/ssl/certs:/etc/ssl/certs:ro \
    --build-arg "PYTHON_IMAGE=$base" --build-arg "VERSION=${image#*:}" "\$@"
fi
exec podman "\$@"
EOF
chmod +x "$work/bin/docker"
export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf PATH=$work/bin:$PATH

# --- the images that a registry would give

bash tests/need.sh podman mmdebstrap runc netavark aardvark-dns iptables curl || not_here "without these packages"
unshare --mount --pid --fork $([ "$(id -u)" = 0 ] || echo --map-root-user) true 2> "$work/error" ||
  not_here "$(cat "$work/error")"
mmdebstrap --quiet --variant=minbase \
  --include=ca-certificates,netbase,tzdata,python3,python3-venv,python3-pip,prometheus,prometheus-alertmanager \
  trixie "$work/trixie.tar" || not_here "no root file system of Debian: see above"
step "root file system of Debian 13"

make_image() {  # its name; the Dockerfile comes from stdin
  podman build --quiet --network host --tag "$1" --file - "$work" > /dev/null
}
make_image "$base" <<'EOF' || not_here "podman cannot build an image: see above"
FROM scratch
ADD trixie.tar /
RUN ln -s /usr/bin/python3 /usr/local/bin/python && ln -s /usr/bin/python3 /usr/local/bin/python3 \
 && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
EOF
hardened=(--read-only --cap-drop ALL --security-opt no-new-privileges)
limits=(--memory 128m --cpus 0.2)
podman run --rm "${hardened[@]}" "${limits[@]}" "$base" true 2> "$work/error" || not_here "$(cat "$work/error")"
for server in prometheus alertmanager; do
  make_image "docker.io/$(sed -n "s/^ *image: \(prom\/$server:[^@]*\).*/\1/p" docker-compose.yml)" <<EOF
FROM $base
RUN mkdir -p /$server && chown 65534:65534 /$server
USER 65534
WORKDIR /$server
ENTRYPOINT ["$([ $server = prometheus ] && echo prometheus || echo prometheus-alertmanager)"]
EOF
done
step "images of Python, Prometheus and Alertmanager"

# --- the image of this tree

readme() {  # a command of README.md as it stands there, by how it begins
  awk -v begin="$1 " 'index($0, begin) == 1 { on = 1 } on { print; if (!/\\$/) exit }' README.md
}
bash -c "$(readme "docker build")" > "$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
step "README.md: $(readme "docker build")"
podman create --name content --no-healthcheck "$image" > /dev/null
podman cp content:/opt/vllm-specdec-exporter "$work/venv"
podman rm content > /dev/null
PYTHONPATH=tests "$python" -m containers.image_content "$work/venv"
podman run --rm --no-healthcheck "${hardened[@]}" --entrypoint python "$image" -I -c '
import importlib
from vllm_specdec_exporter.cli import COMMANDS
for module, _ in COMMANDS.values():
    importlib.import_module(f"vllm_specdec_exporter.{module}")'
step "what is in the image"

# --- the image as the chart runs it: any user, read-only, no capabilities, 128 MiB, 0.2 of a processor

memory() {  # VmRSS or VmHWM of a container's process, in MiB
  awk -v name="$2:" '$1 == name { printf "%.1f\n", $2 / 1024 }' "/proc/$(podman inspect --format '{{.State.Pid}}' "$1")/status"
}
used() { podman stats --no-stream --format '{{.CPUNano}}' sidecar; }  # processor time, in nanoseconds

podman run --detach --name vllm --no-healthcheck "${hardened[@]}" --publish 127.0.0.1::9850 --publish 127.0.0.1::8000 "$image" simulate \
  --web.listen-address=0.0.0.0:8000 --num-speculative-tokens=4 --scenario=healthy > /dev/null
address=http://$(podman port vllm 9850/tcp)
# The flags of README.md's sidecar, and polls that make a minute of ten.
mapfile -d '' -t flags < <("$python" -c '
import re, sys, yaml
(pod,) = re.findall(r"```yaml\n(initContainers:\n.*?)```", open("README.md").read(), re.DOTALL)
sys.stdout.write("\0".join(yaml.safe_load(pod)["initContainers"][0]["args"]) + "\0")')
started=$(date +%s%N)
podman run --detach --name sidecar --no-healthcheck --network container:vllm --user 1000680000 "${hardened[@]}" \
  "${limits[@]}" "$image" "${flags[@]}" --poll.interval=1s > /dev/null
for _ in $(seq 600); do
  ! curl --fail --silent --output /dev/null "$address/-/ready" || break
  sleep 0.1
done
curl --fail --silent --show-error "$address/-/ready" > /dev/null
echo "          ready after $((($(date +%s%N) - started) / 1000000)) ms"
sleep 10
before=$(used)
for _ in 1 2 3 4 5 6 7 8 9 10; do  # as many polls and scrapes as 150 s have at 15 s
  curl --fail --silent --show-error "$address/metrics" > "$work/metrics"
  sleep 1
done
after=$(used)
grep --quiet '^vllm_specdec_up 1.0$' "$work/metrics" || fail "vLLM is not read: $(podman logs sidecar 2>&1 | tail -5)"
mapfile -d '' -t check < <("$python" -c '
import sys, yaml
check = yaml.safe_load(open("docker-compose.yml"))["services"]["exporter"]["healthcheck"]
assert check["interval"].endswith("s"), check
sys.stdout.write("\0".join((check["interval"][:-1], *check["test"][1:])) + "\0")')
for _ in 1 2 3 4 5; do
  podman exec sidecar "${check[@]:1}"
done
checks=$((($(used) - after) / 5 * 150 / check[0])) exporter=$((after - before))
echo "          processor time in 150 s: exporter $((exporter / 1000000)) ms, its health check in compose $((checks / 1000000)) ms"
[ "$checks" -le "$exporter" ] || fail "the health check costs more than the exporter"
peak=$(memory sidecar VmHWM)
echo "          memory: $(memory sidecar VmRSS) MiB at rest, at most $peak MiB; promised: below $promised MiB"
awk -v peak="$peak" -v promised="$promised" 'BEGIN { exit !(peak < promised) }' || fail "more memory than docs/deployment.md promises"
podman stop --time 10 sidecar > /dev/null
code=$(podman inspect --format '{{.State.ExitCode}}' sidecar)
[ "$code" = 0 ] || fail "exit code $code after SIGTERM"
podman rm sidecar > /dev/null
step "the image as the chart runs it"

port=$(PYTHONPATH=tests "$python" -c 'from support.ports import free_port; print(free_port())')
command=$(readme "docker run" | sed "s/127.0.0.1:8000/$(podman port vllm 8000/tcp)/; s/127.0.0.1:9850/127.0.0.1:$port/")
bash -c "$command" > "$work/run.log" 2>&1 &
curl --fail --silent --show-error --retry 100 --retry-delay 1 --retry-all-errors "http://127.0.0.1:$port/metrics" \
  > "$work/metrics" 2> /dev/null || { cat "$work/run.log"; fail "README.md: docker run"; }
grep --quiet '^vllm_specdec_up 1.0$' "$work/metrics" || fail "README.md: docker run does not read vLLM"
podman rm --all --force --time 0 > /dev/null 2>&1
step "README.md: docker run"

release/smoke.sh "localhost/$image" > "$work/smoke.log" 2>&1 || { cat "$work/smoke.log"; fail "release/smoke.sh"; }
step "release/smoke.sh"

PYTHONPATH=tests PATH=$(dirname "$python"):$PATH "$python" -m containers.compose_stack "$work/compose" "$promised"
step "docker compose"
