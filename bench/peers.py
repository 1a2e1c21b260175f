"""Other exporters beside ours, in one run: start, memory, processor time, scrapes, what is installed.

What they do differs, and is said beside the numbers. All are scraped in turn by the same client.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from answers import ROOT, upstream, write_growing
from load import scraped
from page import table
from processes import HERE, MIB, Running, Usage, environment, free_port, serving
from section import Goal, Section, beside

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How often Prometheus scrapes in the reckoning.
SCRAPE_SECONDS = 15.0
_OURS, _DIRECT = "this exporter", "a script with prometheus_client"
_SETTLE = 8.0
#: Seconds at rest in which there are enough polls, one in five seconds, to reckon an hour from.
REST = 20.0


@dataclass(frozen=True)
class Peer:
    """An exporter.

    Attributes:
        name: as the table has it.
        does: what it does, in a few words.
        command: how to run it; ``{port}`` is where it is to listen.
        installed: what counts as its installed set.
    """

    name: str
    does: str
    command: tuple[str, ...]
    installed: tuple[Path, ...]


@dataclass
class Seen:
    """What was measured of one.

    Attributes:
        starts: seconds to the first answer.
        resident: bytes after a rest.
        idle: share of a core without scrapes.
        scrape: processor seconds of a scrape.
        latencies: seconds, median and 99th percentile.
        size: of an answer, in bytes.
    """

    starts: list[float]
    resident: float = 0.0
    idle: float = 0.0
    scrape: float = 0.0
    latencies: tuple[float, float] = (0.0, 0.0)
    size: float = 0.0

    @property
    def cpu_per_hour(self) -> float:
        """Processor seconds of an hour at a scrape each `SCRAPE_SECONDS`."""
        return 3600.0 * (self.idle + self.scrape / SCRAPE_SECONDS)


def section(seconds: float, folder: Path) -> Section:
    """Measure each for so many seconds at rest, and then under scrapes; install them into `folder` first."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["bash", str(HERE / "peers_install.sh"), str(folder), sys.executable], check=True)
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as name, contextlib.ExitStack() as stack:
        growing = Path(name, "growing")
        write_growing(growing)
        url = stack.enter_context(upstream(str(growing)))
        stub = stack.enter_context(_stub())
        peers = _peers(url, stub, folder, Path(name))
        seen = {peer.name: _measured(peer, seconds) for peer in peers}
    rows = [_row(peer, seen[peer.name]) for peer in peers]
    ours, direct = seen[_OURS], seen[_DIRECT]
    head = (
        "exporter",
        "what it does",
        "first answer",
        "memory at rest",
        "processor time an hour",
        "a scrape, median",
        "99th percentile",
        "size of a scrape",
        "installed",
    )
    memory, cpu = ours.resident / direct.resident, ours.cpu_per_hour / direct.cpu_per_hour
    lines = (
        (
            f"Each in turn: started three times (the first answer is the median), {seconds:.0f} s at "
            f"rest after "
            f"a "
            f"while to settle, then 20 scrapes a second. Processor time is reckoned for an hour with a "
            f"scrape "
            f"each {SCRAPE_SECONDS:.0f} s. "
            "The first two poll the same server every 5 s, an answer of 55 kB of one engine; the others have "
            "little to read, so only "
            "what they carry compares. Installed is the package with its dependencies, without Python."
        ),
        "",
        *table(head, rows),
        "",
        _judgement(seen, peers),
        "",
        (
            "`celery-exporter` was to be here: its sources are built with Rust by a version of maturin that "
            "accepts no longer what they "
            "declare, there is no wheel, and so `pip install` ends with an error (1.5.1, 1.3.3 and "
            "1.2.1 tried, "
            "Python 3.11). "
            "`prometheus-es-exporter` has its place. `prometheus-pve-exporter` needs a Proxmox for more than "
            "its own metrics, and is scraped for these."
        ),
    )
    return Section(
        "Beside other exporters",
        lines,
        {"peers.memory": memory, "peers.cpu": cpu if seconds >= REST else None},
        (
            Goal(
                "processor time, of that of a direct script",
                "at most a half",
                beside(cpu, 0.5, 2),
                cpu <= 0.5 if seconds >= REST else None,
            ),
        ),
    )


def _judgement(seen: dict[str, Seen], peers: list[Peer]) -> str:
    ours = seen[_OURS]
    less = [
        f"{peer.name} ({ours.resident / seen[peer.name].resident:.1f} times)"
        for peer in peers
        if seen[peer.name].resident < ours.resident
    ]
    cheaper = [
        f"{peer.name} ({ours.cpu_per_hour / seen[peer.name].cpu_per_hour:.1f} times)"
        for peer in peers
        if seen[peer.name].cpu_per_hour < ours.cpu_per_hour
    ]
    quicker = [
        f"{peer.name} ({statistics.median(ours.starts) / statistics.median(seen[peer.name].starts):.1f} "
        f"times)"
        for peer in peers
        if statistics.median(seen[peer.name].starts) < statistics.median(ours.starts)
    ]
    return " ".join(
        f"Where others are better: {what}: {', '.join(names) or 'nobody'}."
        if number == 0
        else f"{what[0].upper()}{what[1:]}: {', '.join(names) or 'nobody'}."
        for number, (what, names) in enumerate(
            (("less memory", less), ("less processor time", cheaper), ("a quicker start", quicker))
        )
    )


def _peers(url: str, stub: str, folder: Path, scratch: Path) -> list[Peer]:
    python = sys.executable
    site = Path(sysconfig.get_path("platlib"))
    pve, es = folder / "prometheus-pve-exporter", folder / "prometheus-es-exporter"
    settings = scratch / "pve.yml"
    settings.write_text("default: {user: a@pve, password: x, verify_ssl: false}\n", encoding="utf-8")
    listen = "127.0.0.1:{port}"
    quiet = ("--query-disable", "--nodes-stats-disable", "--indices-aliases-disable")
    return [
        Peer(
            _OURS,
            "polls, derives, judges, advises",
            (
                python,
                "-m",
                "vllm_specdec_exporter",
                "--vllm.url",
                url,
                "--log.level",
                "error",
                "--web.listen-address",
                listen,
            ),
            (ROOT / "exporter" / "vllm_specdec_exporter", *_runtime(site)),
        ),
        Peer(
            _DIRECT,
            "polls, and republishes 9 series and 2 ratios",
            (python, str(HERE / "peers_direct.py"), f"{url}/metrics", "{port}"),
            (site / "prometheus_client",),
        ),
        Peer(
            "prometheus-es-exporter (Python)",
            "asks a stub at each scrape, for a few values",
            (
                str(es / "bin" / "prometheus-es-exporter"),
                "-e",
                stub,
                "-p",
                "{port}",
                *quiet,
                "--indices-mappings-disable",
                "--indices-stats-disable",
            ),
            tuple(es.glob("lib/python3*/site-packages")),
        ),
        Peer(
            "prometheus-pve-exporter (Python, gunicorn)",
            "idles, and tells of itself",
            (
                str(pve / "bin" / "pve_exporter"),
                "--config.file",
                str(settings),
                "--web.listen-address",
                listen,
            ),
            tuple(pve.glob("lib/python3*/site-packages")),
        ),
        Peer(
            "prometheus-nginx-exporter (Go)",
            "asks a stub at each scrape, for 7 values",
            (
                "prometheus-nginx-exporter",
                "-nginx.scrape-uri",
                f"{stub}/stub_status",
                "-web.listen-address",
                listen,
            ),
            (Path(shutil.which("prometheus-nginx-exporter") or "/nonexistent"),),
        ),
        Peer(
            "prometheus-node-exporter (Go)",
            "reads /proc and /sys at each scrape",
            ("prometheus-node-exporter", "--log.level=error", "--web.listen-address", listen),
            (Path(shutil.which("prometheus-node-exporter") or "/nonexistent"),),
        ),
    ]


def _measured(peer: Peer, seconds: float) -> Seen:
    seen = Seen([])
    for _ in range(2):
        with _run(peer) as running:
            seen.starts.append(running.seconds)
    with _run(peer) as running:
        seen.starts.append(running.seconds)
        time.sleep(_SETTLE)
        before = Usage.of(running.pid)
        time.sleep(seconds)
        after = Usage.of(running.pid)
        seen.idle = (after.cpu_seconds - before.cpu_seconds) / seconds
        seen.resident = after.resident_bytes
        found = scraped(running, seconds, rate=20, clients=1, probed=False)
        assert not found["failures"], f"{peer.name}: {found['failures']} scrapes failed"
        # What it does by itself goes on meanwhile.
        seen.scrape = max(0.0, found["cpu"] - seen.idle * found["seconds"] / found["answers"])
        seen.latencies = found["median"], found["p99"]
        seen.size = found["size"]
    return seen


@contextlib.contextmanager
def _run(peer: Peer) -> Iterator[Running]:
    port = free_port()
    with Path(os.devnull).open("wb") as log:
        command = [word.replace("{port}", str(port)) for word in peer.command]
        with serving(command, port, log=log) as running:
            yield running


def _row(peer: Peer, seen: Seen) -> tuple[str, ...]:
    return (
        peer.name,
        peer.does,
        f"{statistics.median(seen.starts):.2f} s",
        f"{seen.resident / MIB:.1f} MiB",
        f"{seen.cpu_per_hour:.1f} s",
        *(f"{part * 1000:.1f} ms" for part in seen.latencies),
        f"{seen.size / 1000:.1f} kB",
        f"{sum(map(_size, peer.installed)) / MIB:.1f} MiB",
    )


def _size(path: Path) -> int:
    """Return the size of a file, or of what is in a folder; byte code and pip do not count."""
    if path.is_file():
        return path.stat().st_size
    return sum(
        file.stat().st_size
        for file in path.rglob("*")
        if file.is_file() and not {"__pycache__", "pip", "setuptools"} & set(file.relative_to(path).parts)
    )


def _runtime(site: Path) -> list[Path]:
    """Return the folders of what our package needs, by the lock file of the run time."""
    lock = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
    names = [line.partition("==")[0] for line in lock.splitlines() if "==" in line and line[0].isalpha()]
    found = []
    for name in names:
        for record in site.glob(f"{name.replace('-', '_')}-*.dist-info/RECORD"):
            tops = {line.partition("/")[0] for line in record.read_text("utf-8").splitlines()}
            found += [site / top for top in tops - {"..", ""} if "," not in top]
    return found


@contextlib.contextmanager
def _stub() -> Iterator[str]:
    command = [sys.executable, str(HERE / "peers_stub.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
