"""The exporter beside what it replaces: plain Prometheus with recording rules over
vLLM's own counters, and an exporter on prometheus_client's parser. And what it takes
with 1 to 1,000 servers.

All of them poll the same servers, one after the other, so each finds the same machine.
Processor time is that of the whole process, with its scrapes.
"""

import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import yaml

from answers import Servers, servers, write_growing
from page import table
from processes import (
    HERE,
    MIB,
    Running,
    Usage,
    exporter,
    free_port,
    prometheus,
    serving,
)
from section import Goal, Section

INTERVAL = 5.0
#: Seconds between two scrapes of an exporter, as Prometheus makes them.
_SCRAPED = 15.0
#: Seconds before a program is watched: the first polls, which fill caches, are spread
#: over an interval.
_WARM = 2 * INTERVAL
TARGETS = 100
#: Most processor time of the exporter, over that of Prometheus with these rules.
_SHARE = 0.65
#: What people write who have no exporter: the measures of speculation over five
#: minutes.
_RULES = {
    "acceptance_ratio": "{accepted_tokens} / {draft_tokens}",
    "mean_acceptance_length": "1 + {accepted_tokens} / {drafts}",
    "mean_draft_length": "{draft_tokens} / {drafts}",
    "drafts_per_second": "{drafts}",
    "accepted_tokens_per_second": "{accepted_tokens}",
    "position_acceptance_ratio": (
        "sum by (instance, model_name, engine, position)"
        " (rate(vllm:spec_decode_num_accepted_tokens_per_pos_total[5m]))"
        " / on (instance, model_name, engine) group_left () {drafts}"
    ),
    "tokens_per_second": (
        "sum by (instance, model_name, engine) (rate(vllm:generation_tokens_total[5m]))"
    ),
}
_COUNTERS = ("drafts", "draft_tokens", "accepted_tokens")
_PLAIN = "Prometheus"
_WITH_RULES = f"Prometheus, {len(_RULES)} recording rules"
_NAIVE = "an exporter on prometheus_client's parser"
_EXPORTER = "the exporter"


def section(seconds: float, counts: tuple[int, ...]) -> Section:
    """Watch each for so many seconds before 100 servers, and the exporter before
    `counts` of them.
    """
    _raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="bench-beside-") as name:
        folder = Path(name)
        answers = write_growing(folder / "answers")
        with servers(answers, TARGETS) as polled:
            used = {
                program: _watched(running, polled, seconds)
                for program, running in _runs(folder, polled)
            }
        sizes = tuple(table(_SIZE_HEAD, _sizes(folder, answers, counts, seconds)))
    share = used[_EXPORTER].cpu / used[_WITH_RULES].cpu
    lines = (
        (
            f"{TARGETS} servers, each with the real answer of one engine (55 kB), "
            f"polled every {INTERVAL:.0f} s for {seconds:.0f} s, one program after "
            f"the other. The exporters are scraped every {_SCRAPED:.0f} s. The rules "
            "are those that people write without an exporter, evaluated at each poll."
        ),
        "",
        *table(
            ("what", "processor time a poll", "of one core", "memory"),
            [
                (program, f"{use.poll * 1000:.2f} ms", f"{use.core:.1%}", use.memory)
                for program, use in used.items()
            ],
        ),
        "",
        (
            "The exporter with more servers and fewer. Wake-ups are those of a second "
            "in which it is not scraped."
        ),
        "",
        *sizes,
    )
    return Section(
        "Beside plain Prometheus",
        lines,
        {
            "beside.rules": share,
            "beside.naive": used[_EXPORTER].cpu / used[_NAIVE].cpu,
        },
        (
            Goal(
                f"all of the exporter, {TARGETS} servers",
                f"at most {_SHARE:g} of Prometheus with {len(_RULES)} recording rules",
                f"{share:.2f}",
                share <= _SHARE,
            ),
        ),
    )


@dataclass(frozen=True)
class Use:
    """What a program used while it was watched."""

    cpu: float  # processor time, in seconds
    polls: int
    seconds: float
    memory: str  # with its unit

    @property
    def poll(self) -> float:
        """Processor time of a poll with all that goes with it, in seconds."""
        return self.cpu / max(1, self.polls)

    @property
    def core(self) -> float:
        """Share of one core."""
        return self.cpu / self.seconds


def _runs(
    folder: Path, polled: Servers
) -> Iterator[tuple[str, AbstractContextManager[Running]]]:
    yield _PLAIN, _prometheus(folder / "plain", polled, {})
    yield _WITH_RULES, _prometheus(folder / "rules", polled, _RULES)
    yield _NAIVE, _naive(polled)
    yield _EXPORTER, _exporter(folder, polled)


def _watched(
    process: AbstractContextManager[Running], polled: Servers, seconds: float
) -> Use:
    with process as running:
        time.sleep(_WARM)
        polled.polled()
        begun = time.monotonic()
        cpu_at_start = Usage.of(running.pid).cpu_seconds
        while (left := begun + seconds - time.monotonic()) > 0:
            time.sleep(min(left, _SCRAPED))
            # Prometheus does not scrape itself here; its answer is short.
            _scrape(running)
        usage = Usage.of(running.pid)
        return Use(
            cpu=usage.cpu_seconds - cpu_at_start,
            polls=sum(map(len, polled.polled())),
            seconds=time.monotonic() - begun,
            memory=f"{usage.resident_bytes / MIB:.0f} MiB",
        )


def _scrape(running: Running, encoding: str = "identity") -> int:
    request = urllib.request.Request(
        f"{running.address}/metrics", headers={"Accept-Encoding": encoding}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return len(answer.read())


def _prometheus(
    folder: Path, polled: Servers, rules: dict[str, str]
) -> AbstractContextManager[Running]:
    """Run Prometheus that scrapes the servers and evaluates rules."""
    folder.mkdir()
    rates = {
        counter: f"sum by (instance, model_name, engine) "
        f"(rate(vllm:spec_decode_num_{counter}_total[5m]))"
        for counter in _COUNTERS
    }
    group = {
        "name": "speculation",
        "rules": [
            {"record": f"own:{name}", "expr": expression.format(**rates)}
            for name, expression in rules.items()
        ],
    }
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
    interval = f"{INTERVAL:.0f}s"
    addresses = [url.removeprefix("http://") for url in polled.urls]
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(folder / "rules.yml")] if rules else [],
        "scrape_configs": [
            {"job_name": "vllm", "static_configs": [{"targets": addresses}]}
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return prometheus(folder)


def _naive(polled: Servers) -> AbstractContextManager[Running]:
    port = free_port()
    program = [sys.executable, str(HERE / "naive.py"), str(port), str(INTERVAL)]
    return serving([*program, *polled.urls], port, "/metrics")


def _exporter(folder: Path, polled: Servers) -> AbstractContextManager[Running]:
    path = folder / f"{len(polled.urls)}.yml"
    document = {
        "vllm": {"url": polled.urls},
        "poll": {"interval": f"{INTERVAL:.0f}s"},
    }
    path.write_text(yaml.safe_dump(document))
    return exporter("--config.file", str(path))


_SIZE_HEAD = (
    "servers",
    "processor time a poll",
    "of one core",
    "memory",
    "at most",
    "a scrape",
    "with gzip",
    "wake-ups a second",
)


def _sizes(
    folder: Path, answers: Path, counts: tuple[int, ...], seconds: float
) -> Iterator[tuple[str, ...]]:
    for count in counts:
        with servers(answers, count) as polled, _exporter(folder, polled) as running:
            time.sleep(_WARM)
            polled.polled()
            start = Usage.of(running.pid)
            first_wakeups = _wakeups(running.pid)
            time.sleep(seconds)
            usage = Usage.of(running.pid)
            wakeups = _wakeups(running.pid) - first_wakeups
            polls = sum(map(len, polled.polled()))
            cpu = usage.cpu_seconds - start.cpu_seconds
            plain, compressed = (
                _scrape_seconds(running, encoding, cpu / seconds)
                for encoding in ("identity", "gzip")
            )
            yield (
                f"{count:,}",
                f"{cpu / polls * 1000:.2f} ms",
                f"{cpu / seconds:.1%}",
                f"{usage.resident_bytes / MIB:.0f} MiB",
                f"{Usage.of(running.pid).peak_bytes / MIB:.0f} MiB",
                f"{plain * 1000:.1f} ms",
                f"{compressed * 1000:.1f} ms",
                f"{wakeups / seconds:.0f}",
            )


def _scrape_seconds(running: Running, encoding: str, core: float) -> float:
    """Return the processor time of a scrape, without that of the polls meanwhile, which
    take this share of a core.
    """
    times = 10
    begun = time.monotonic()
    start = Usage.of(running.pid).cpu_seconds
    for _ in range(times):
        _scrape(running, encoding)
        time.sleep(0.1)  # a text is shared by those who ask at the same time
    used = Usage.of(running.pid).cpu_seconds - start
    return max(0.0, used - core * (time.monotonic() - begun)) / times


def _wakeups(pid: int) -> int:
    """Return how often the threads of a process have waited and were woken."""
    statuses = [
        (thread / "status").read_text("ascii")
        for thread in Path(f"/proc/{pid}/task").iterdir()
    ]
    name = "\nvoluntary_ctxt_switches:"
    return sum(int(status.partition(name)[2].split()[0]) for status in statuses)


def _raise_descriptor_limit() -> None:
    """A thousand servers in one process have two descriptors each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
