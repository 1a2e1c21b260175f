"""The image without Docker: the Dockerfile's own steps, and what they made, started as a container would."""

import contextlib
import importlib.metadata
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docker.build import Image, build
from docker.dockerfile import ROOT, stage
from docker.test_dockerfile import locked
from support.exporter import request
from support.ports import free_port
from support.programs import answers, eventually, simulator
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.cli import COMMANDS

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

ADDRESS = "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS"
#: What the image may add to its base.
LARGEST = 30 * 2**20


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """What the Dockerfile's steps made; nobody may write to it."""
    with tempfile.TemporaryDirectory(prefix="test-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = build(folder)
        inside = [made.venv, *made.venv.rglob("*")]
        for path in inside:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)
        try:
            yield made
        finally:
            for path in inside:
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o755)


# --- what is inside


def test_it_holds_the_locked_packages_the_exporter_and_no_more(image: Image) -> None:
    """No pip, build backend or tests, but rules and dashboards; every command imports these alone."""
    expected = {name: version for name, (version, _) in locked("runtime").items()}
    (packages,) = image.venv.glob("lib/python3.*/site-packages")
    found = {
        re.sub(r"[-_.]+", "-", one.name).lower(): one.version
        for one in importlib.metadata.distributions(path=[str(packages)])
    }
    assert found == expected | {"vllm-specdec-exporter": __version__}
    package = packages / "vllm_specdec_exporter"
    assert list((package / "rules").glob("*.yml"))
    assert list((package / "dashboards").glob("*.json"))
    assert not list(package.rglob("test_*.py"))
    assert not list(image.venv.glob("bin/pip*"))
    code = "".join(f"import vllm_specdec_exporter.{module}\n" for module, _ in COMMANDS.values())
    subprocess.run([image.venv / "bin" / "python", "-I", "-c", code], check=True)


def test_everything_is_compiled_and_never_checked_again(image: Image) -> None:
    """Byte code by hash, unchecked: whatever the time stamps, no start-up compiles anything."""
    sources = list(image.venv.glob("lib/python3.*/site-packages/**/*.py"))
    assert len(sources) > 300
    for source in sources:
        (code,) = (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")
        flags = int.from_bytes(code.read_bytes()[4:8], "little")
        assert flags == 0b01, code


# --- started


def test_it_serves_answers_its_health_check_and_ends_at_once(image: Image) -> None:
    """What a container does in its life beside a simulated vLLM, without capabilities and permissions."""
    address = f"127.0.0.1:{free_port()}"
    environment = image.environment | {ADDRESS: address}

    def enclose(argv: list[str]) -> list[str]:
        drop = ("--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
        variables = (f"{name}={value}" for name, value in environment.items())
        dropped = ["setpriv", "--no-new-privs", *drop]
        return [*dropped, "env", "-i", "--chdir=/", *variables, *image.command(argv)]

    def inside(argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command as `docker exec` and health checks do."""
        return subprocess.run(enclose(argv), capture_output=True, text=True, timeout=180)

    def answer(path: str) -> str:
        return request(f"http://{address}{path}").text

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(simulator("--scenario", "healthy"))
        entry = [*stage("").one("ENTRYPOINT").argv, f"--vllm.url={server}", "--poll.interval=500ms"]
        process = stack.enter_context(
            subprocess.Popen(enclose(entry), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
        stack.callback(process.kill)
        eventually(lambda: answers(f"http://{address}/-/ready") or process.poll() is not None, 120)
        assert process.poll() is None, process.communicate()[0]
        eventually(lambda: 'vllm_specdec_activity{engine="0"' in answer("/metrics"), 120)
        assert "\nvllm_specdec_up 1.0\n" in answer("/metrics")
        assert "\nprocess_resident_memory_bytes " in answer("/metrics")

        text = Path(f"/proc/{process.pid}/status").read_text("utf-8")
        status = dict(re.findall(r"^(\w+):\t(.*)$", text, re.MULTILINE))
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0 or os.geteuid() != 0
        assert status["NoNewPrivs"] == "1"
        writable = "import os, sys; print([p for p in sys.argv[1:] if os.access(p, os.W_OK)])"
        places = [str(image.venv), *(str(one) for one in image.venv.iterdir())]
        asked = inside(["python", "-c", writable, *places])
        assert asked.stdout == "[]\n", asked.stderr

        health = stage("").one("HEALTHCHECK").argv
        assert inside(health).returncode == 0
        process.send_signal(getattr(signal, stage("").one("STOPSIGNAL").text))
        # Docker kills what has not ended after ten seconds; more here is the machine's.
        said, _ = process.communicate(timeout=120)
        assert (process.returncode, "Traceback" in said) == (0, False)
        assert inside(health).returncode == 1


# --- what is said of it


def test_the_documented_size_is_the_size_and_small(image: Image) -> None:
    """Where an image cannot be pulled, vLLM beside it does not start. docs/deployment.md tells to a tenth."""
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    (said,) = re.findall(r"\| ([\d.]+) MiB and \[Python's slim image", text)
    files = (path for path in image.venv.rglob("*") if path.is_file() and not path.is_symlink())
    added = sum(path.stat().st_size for path in files)
    assert added / 2**20 == pytest.approx(float(said), rel=0.1)
    assert added < LARGEST
