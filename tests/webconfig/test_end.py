"""What the process needs of its surroundings, and how it ends, with a web configuration."""

import http.client
import threading
import time
from pathlib import Path

import pytest

from support.programs import eventually
from webconfig.https import TLS, ask, client_context, guarded
from webconfig.pki import Pki, hashed

pytestmark = pytest.mark.full

#: Seconds within which the process must end: fewer than a hash of cost 18, or the read that hangs, takes.
PROMPT = 15.0


@pytest.mark.parametrize("cost", [10, 18])
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
