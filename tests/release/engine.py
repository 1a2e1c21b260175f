"""What release/smoke.sh asks of a container engine, with the exporter as a process instead of a container.

    python engine.py STATE docker's arguments...

STATE is a folder: there are the version of the label of the image (`label`), and whether it has to be killed
(`stubborn`, a file); what `docker run` was given is written there (`run`), and how it ended (`code`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.ports import free_port

PROGRAM = Path(sys.executable).with_name("vllm-specdec-exporter")
_STOP_SECONDS = 10.0


def start(state: Path, arguments: list[str]) -> None:
    """Start the exporter as `docker run --detach` does, after the name of the image; print who it is."""
    (state / "run").write_text(json.dumps(arguments))
    (state / "port").write_text(str(port := free_port()))
    with (state / "log").open("w") as log:
        listening = f"--web.listen-address=127.0.0.1:{port}"
        process = subprocess.Popen([PROGRAM, *flags_behind(arguments), listening], stdout=log, stderr=log)
    (state / "pid").write_text(str(process.pid))
    print("container")


def flags_behind(arguments: list[str]) -> list[str]:
    """Return what stands behind the name of the image, which begins with `image`."""
    index = next(n for n, word in enumerate(arguments) if word.startswith("image"))
    return arguments[index + 1 :]


def stop(state: Path) -> None:
    """End it, and write how it ended: by itself, or by force."""
    process = int((state / "pid").read_text())
    if not (state / "stubborn").exists():
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            if ended(process):
                # It is nobody's child any more, so its exit code is lost; that it heeds the signal is not.
                (state / "code").write_text("0")
                return
            time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    (state / "code").write_text("137")


def ended(process: int) -> bool:
    """Return whether a process is gone, or waits for somebody to take note of its end."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def health(state: Path) -> int:
    """Return the exit code of the exporter's own check."""
    address = f"127.0.0.1:{(state / 'port').read_text()}"
    variables = {**os.environ, "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS": address}
    return subprocess.run([PROGRAM, "health"], env=variables).returncode


def main() -> int:
    """Do what docker is told; return the exit code."""
    state = Path(sys.argv[1])
    match sys.argv[2:]:
        case ["run", "--rm", _, *flags]:
            return subprocess.run([PROGRAM, *flags]).returncode
        case ["run", "--detach", *arguments]:
            start(state, arguments)
        case ["image", "inspect", *_]:
            print((state / "label").read_text())
        case ["port", "container", "9850/tcp"]:
            print(f"127.0.0.1:{(state / 'port').read_text()}")
        case ["exec", "container", "vllm-specdec-exporter", "health"]:
            return health(state)
        case ["stop", "--time", _, "container"]:
            stop(state)
        case ["inspect", "--format", "{{.State.ExitCode}}", "container"]:
            print((state / "code").read_text())
        case ["logs", "container"]:
            print((state / "log").read_text())
        case ["rm", "--force", "container"]:
            if not (state / "code").exists():
                stop(state)
        case unknown:
            sys.exit(f"not understood: {unknown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
