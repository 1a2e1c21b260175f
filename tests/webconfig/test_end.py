"""What the process needs of its surroundings, and how it ends, with a web configuration."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import vllm_specdec_exporter
from support.ports import free_port
from support.programs import COMMAND, eventually
from vllm_specdec_exporter import health
from webconfig.https import NO_SERVER, TLS, ask, client_context, guarded, write
from webconfig.pki import hashed

if TYPE_CHECKING:
    from webconfig.pki import Pki

pytestmark = pytest.mark.full

#: Within how many seconds the process must end: far sooner than what it could wait for, however busy the CPU.
PROMPT = 3.0


@pytest.mark.parametrize("cost", [10, 16])
def test_sigterm_while_passwords_are_checked(pki: Pki, cost: int) -> None:
    """Neither many short nor one long computation holds up the end, or makes it a crash."""
    with guarded(pki, {"basic_auth_users": {"alice": hashed("x", 4).replace("$04", f"${cost}")}}) as exporter:

        def guess(number: int) -> None:
            try:
                ask(exporter, "/", user=("alice", f"{number}"))
            except (OSError, http.client.HTTPException):
                return

        guesses = [threading.Thread(target=guess, args=(number,)) for number in range(12)]
        for thread in guesses:
            thread.start()
        time.sleep(0.25)
        code, seconds = exporter.terminate()
        for thread in guesses:
            thread.join()

        assert code == 0
        assert seconds < PROMPT
        assert exporter.log_lines()[-1]["msg"] == "stopping"
        assert "Traceback" not in exporter.log()


#: A disk that does not answer any more once a file is there.
HANGING = """
import os, time
before = os.open
def hanging(path, *args, **more):
    while str(path).endswith("server.key") and os.path.exists(os.environ["HANGS"]):
        open(os.environ["HANGS"] + ".seen", "w").close()
        time.sleep(60)
    return before(path, *args, **more)
os.open = hanging
"""


def test_sigterm_while_a_file_hangs(pki: Pki, tmp_path: Path) -> None:
    """A disk that does not answer holds up neither requests nor the end."""
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    hangs = tmp_path / "hangs"
    env = {"PYTHONPATH": str(tmp_path), "HANGS": str(hangs)}
    with guarded(pki, {"tls_server_config": TLS}, env=env) as exporter:
        hangs.touch()
        eventually((tmp_path / "hangs.seen").exists)
        assert ask(exporter, "/metrics", client_context(pki)).status == 200
        code, seconds = exporter.terminate()

        assert code == 0
        assert seconds < PROMPT


#: Where the program stands in the mounts of its own: a folder that every system has.
STAGE = "/mnt"

#: All of the program is bound there, as it may lie where only its owner may enter. Nothing can be written.
PREPARE = f"""set -e
mount -t tmpfs tmpfs {STAGE}
mkdir {STAGE}/base {STAGE}/packages {STAGE}/exporter {STAGE}/files
mount --bind "$BASE" {STAGE}/base
mount --bind "$PACKAGES" {STAGE}/packages
mount --bind "$EXPORTER" {STAGE}/exporter
cp "$FILES"/*.pem "$FILES"/*.key "$FILES"/web.yml {STAGE}/files
chmod -R a+rX {STAGE}/files
for folder in base packages exporter; do mount -o remount,bind,ro {STAGE}/$folder; done
chmod 755 {STAGE}
mount -o remount,ro {STAGE}
for folder in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs -o ro tmpfs $folder; done
cd /
exec "$@"
"""


def test_read_only(pki: Pki) -> None:
    """It runs as a user whom nobody knows, without a home, where nothing can be written: as in the image."""
    document = {"tls_server_config": TLS, "basic_auth_users": {"alice": hashed("x")}}
    write(pki.folder / "web.yml", document)
    address = f"127.0.0.1:{free_port()}"
    is_root = os.geteuid() == 0
    unshare = ["unshare", "--mount"] if is_root else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", STAGE], capture_output=True).returncode:
        pytest.skip("no mounts of its own are allowed here")
    drop = (
        ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--no-new-privs"] if is_root else []
    )
    packages = Path(yaml.__file__).parents[1]
    interpreter = f"{STAGE}/base/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    env = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": "/nonexistent",
        "PYTHONHOME": f"{STAGE}/base",
        "LD_LIBRARY_PATH": f"{STAGE}/base/lib",
        "PYTHONPATH": f"{STAGE}/exporter:{STAGE}/packages",
        "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS": address,
        "VLLM_SPECDEC_EXPORTER_WEB_CONFIG_FILE": f"{STAGE}/files/web.yml",
        "BASE": str(Path(sys.base_prefix).resolve()),
        "PACKAGES": str(packages),
        "EXPORTER": str(Path(vllm_specdec_exporter.__file__).parents[1]),
        "FILES": str(pki.folder),
    }
    words = [interpreter, "-m", "vllm_specdec_exporter", *NO_SERVER]
    process = subprocess.Popen(
        [*unshare, "bash", "-c", PREPARE, "-", *drop, *words],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def alive() -> bool:
        if process.poll() is not None:
            pytest.fail(process.communicate()[0])
        host, port = address.split(":")
        return health.probe((host, int(port)), may_be_tls=True, end=time.monotonic() + 3).alive

    try:
        eventually(alive, 30)
        status = Path(f"/proc/{process.pid}/status").read_text()
        mounts = [line.split() for line in Path(f"/proc/{process.pid}/mounts").read_text().splitlines()]
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=10)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

    options = {line[1]: line[3].split(",")[0] for line in mounts}
    assert "Uid:\t65532\t65532\t65532\t65532" in status or not is_root
    assert {"ro"} == {options[f"{STAGE}{name}"] for name in ("", "/base", "/packages", "/exporter")}
    assert {"ro"} == {options[name] for name in ("/tmp", "/var/tmp", "/dev/shm", "/run")}
    assert process.returncode == 0
    assert [line.split("level=")[1].split()[0] for line in out.splitlines()] == ["info"] * 4


@pytest.mark.parametrize("home", ["/nonexistent", None])
def test_no_home(pki: Pki, home: str | None) -> None:
    """No home is needed, and with bytecode that cannot be written it is the same."""
    env = {"PATH": os.environ["PATH"], **({"HOME": home} if home else {})}
    path = write(pki.folder / "web.yml", {"tls_server_config": TLS})
    done = subprocess.run(
        [COMMAND, "--config.check", "--web.config.file", str(path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (done.returncode, done.stderr) == (0, "")
