# Sourced by each finding: a temporary folder, public packages in it, and the verdict.
# Exit codes: 0 the behaviour is as the head says, 1 it changed, 2 a package is not to be had.
work=$(mktemp -d)
processes=()

finish() {
  for process in ${processes[@]+"${processes[@]}"}; do
    kill "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT

unavailable() {
  echo "not available here: $*" >&2
  exit 2
}

# debian SUITE PACKAGE=VERSION...: unpacks into $work/SUITE, and installs nothing.
debian() {
  local suite=$1 root=$work/$1 archive apt
  shift
  mkdir -p "$root" "$work/apt-$suite/lists/partial" "$work/apt-$suite/cache/archives/partial"
  # The archive that this machine installs from, whichever that is.
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' |
    grep -E '/debian/?$' | head -n 1) || unavailable "an archive of Debian"
  echo "deb $archive $suite main" >"$work/apt-$suite/sources.list"
  apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/apt-$suite/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$work/apt-$suite/lists" -o "Dir::Cache=$work/apt-$suite/cache"
    -o APT::Sandbox::User= -o Acquire::Languages=none)
  "${apt[@]}" update || unavailable "the index of $suite"
  (cd "$root" && "${apt[@]}" download "$@") || unavailable "$* in $suite"
  for package in "$root"/*.deb; do
    dpkg -x "$package" "$root"
  done
}

# python_packages [OPTION...] NAME==VERSION...: into a virtual environment, $work/venv.
python_packages() {
  [ -d "$work/venv" ] || "${PYTHON:-python3}" -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check --no-input --no-compile "$@" \
    >"$work/pip.log" 2>&1 || { tail -n 5 "$work/pip.log" >&2; unavailable "$*"; }
}

# npm_packages NAME@VERSION...: into $work/node_modules.
npm_packages() {
  command -v npm >/dev/null || unavailable npm
  npm install --prefix "$work" --silent --no-audit --no-fund --ignore-scripts "$@" ||
    unavailable "$*"
}

# start NAME COMMAND...: runs it until the end of the script, its output in $work/NAME.log.
start() {
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  processes+=($!)
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# until_ready URL: at most 30 seconds.
until_ready() {
  for _ in $(seq 150); do
    if curl -fs -o "$work/ready" "$1"; then return; fi
    sleep 0.2
  done
  echo "$1 does not answer" >&2
  exit 2
}

# values PORT QUERY [TIME]: the values of an instant query, rounded, or "none".
values() {
  curl -fs "http://127.0.0.1:$1/api/v1/query" --data-urlencode "query=$2" -d nocache=1 \
    ${3:+-d "time=$3"} | python3 -c '
import json, sys
series = json.load(sys.stdin)["data"]["result"]
print(*[round(float(one["value"][1])) for one in series] or ["none"])'
}

# until_stored PORT QUERY: at most 60 seconds, until the query has a value.
until_stored() {
  for _ in $(seq 120); do
    if [ "$(values "$1" "$2")" != none ]; then return; fi
    sleep 0.5
  done
  echo "$2 has no value" >&2
  exit 2
}

# seen TEXT: compares it with the output that is written on standard input.
seen() {
  local expected
  expected=$(cat)
  if [ "$1" = "$expected" ]; then
    printf '%s\nas described\n' "$1"
    return
  fi
  printf 'CHANGED. Described:\n%s\nSeen now:\n%s\n' "$expected" "$1" >&2
  exit 1
}
