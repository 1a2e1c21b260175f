"""Probes an exporter until its standard input ends, and prints what each probe took.

In a process of its own, because threads of an attack would keep it from its answers,
and what the exporter does meanwhile for others would be called the cost of a probe.
"""

import http.client
import json
import sys
import threading
import time
from pathlib import Path

#: Clients that probe at a time: an attack of a few seconds then has a hundred probes.
_PROBERS = 4


def queued(task: str) -> float:
    """Seconds for which a thread could have run, while others had the processors."""
    return int(Path(f"/proc/{task}/schedstat").read_text().split()[1]) / 1e9


def probe(
    address: tuple[str, int], pid: int, end: threading.Event, took: list[list[float]]
) -> None:
    """Add the processor time of the exporter within each probe, and the time in which
    nobody did anything for it.

    Without the time in which this thread or the exporter's could not run.
    """
    # The clock of another process: clock_getcpuclockid(3), which Python lacks.
    clock = ~pid << 3 | 2
    while not end.is_set():
        begin = time.monotonic()
        used = time.clock_gettime(clock)
        own = queued("thread-self")
        others = queued(str(pid))
        connection = http.client.HTTPConnection(
            *address, timeout=60, source_address=("127.0.0.9", 0)
        )
        connection.request("GET", "/-/healthy")
        response = connection.getresponse()
        response.read()
        connection.close()
        assert response.status == 200
        late = queued("thread-self") - own
        processor = time.clock_gettime(clock) - used - late
        idle = time.monotonic() - begin - late - (queued(str(pid)) - others)
        took.append([max(0.0, processor), max(0.0, idle)])
        end.wait(0.02)


def main() -> None:
    """Probe as the arguments say: host, port and process."""
    host, port, pid = sys.argv[1:]
    end = threading.Event()
    took: list[list[float]] = []
    target = ((host, int(port)), int(pid), end, took)
    probing = [threading.Thread(target=probe, args=target) for _ in range(_PROBERS)]
    failed: list[object] = []
    threading.excepthook = failed.append
    for thread in probing:
        thread.start()
    print("probing", flush=True)
    sys.stdin.read()
    end.set()
    for thread in probing:
        thread.join()
    print(json.dumps(took))
    if failed:
        sys.exit(f"a probe failed: {failed}")


if __name__ == "__main__":
    main()
