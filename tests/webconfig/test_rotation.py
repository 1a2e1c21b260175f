"""Files that change while the exporter runs: the new is in force soon, and nobody is
turned away for it.
"""

import contextlib
import http.client
import os
import shutil
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.exporter import RunningExporter
from support.programs import eventually
from webconfig.https import HTTPS, MUTUAL, ask, client_context, guarded, shown, write
from webconfig.pki import Pki, hashed
from webconfig.test_connections import REFUSED

pytestmark = pytest.mark.full

#: Seconds within which a change is in force, however busy the machine is.
SOON = 90.0


def _shown(exporter: RunningExporter, pki: Pki) -> int:
    return shown(exporter, client_context(pki))


def _status(
    exporter: RunningExporter, context: ssl.SSLContext | None = None, **more: Any
) -> int:
    """The status of /metrics, 0 for a client that is not let in."""
    try:
        return ask(exporter, "/metrics", context, **more).status
    except (*REFUSED, ssl.SSLError):
        return 0


@contextlib.contextmanager
def _hammered(exporter: RunningExporter, pki: Pki) -> Iterator[list[str]]:
    """Open new connections all the while; yield what went wrong with them."""
    context = client_context(pki)
    wrong = list[str]()
    ended = threading.Event()
    count = [0]

    def hammer() -> None:
        while not ended.wait(0.005):  # all of a CPU would starve what is looked at
            try:
                assert ask(exporter, "/-/ready", context).status == 200
                count[0] += 1
            except (OSError, AssertionError, http.client.HTTPException) as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield wrong
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert count[0] > 20


@pytest.fixture(scope="module")
def serving(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningExporter, Pki]]:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    with guarded(pki, HTTPS) as exporter:
        yield exporter, pki


class TestCertificates:
    def test_every_connection_is_served(
        self, serving: tuple[RunningExporter, Pki]
    ) -> None:
        """While certificates are renewed; a new one is shown soon, and logged once."""
        exporter, pki = serving
        reloads = len(exporter.log_lines("web configuration reloaded"))
        with _hammered(exporter, pki) as wrong:
            for number in range(2):
                pki.renew()
                new = pki.serial()
                eventually(lambda new=new: _shown(exporter, pki) == new, SOON)
                assert {_shown(exporter, pki) for _ in range(10)} == {new}, number
            assert len(exporter.log_lines("web configuration reloaded")) == reloads + 2
        assert wrong == []

    def test_written_in_place_one_after_the_other(
        self, serving: tuple[RunningExporter, Pki]
    ) -> None:
        """With the old time; a certificate that comes a while before its key is no
        error.
        """
        exporter, pki = serving
        staged = pki.folder / "staged"
        staged.mkdir()
        pki.renew(staged)
        for name, pause in (("server.pem", 0.9), ("server.key", 0)):
            times = (pki.folder / name).stat()
            (pki.folder / name).write_bytes((staged / name).read_bytes())
            os.utime(pki.folder / name, ns=(times.st_atime_ns, times.st_mtime_ns))
            time.sleep(pause)
        eventually(lambda: _shown(exporter, pki) == pki.serial(staged), SOON)
        assert exporter.log_lines("web configuration not reloaded") == []

    def test_an_answer_under_way_is_finished(self, pki: Pki) -> None:
        """Whoever waits for an answer while the settings change gets it, even if it is
        the last one.
        """
        good = client_context(pki, pki.clients.issue("prometheus.example"))
        document = {
            "tls_server_config": MUTUAL,
            "basic_auth_users": {"alice": hashed("one", 4).replace("$04", "$15")},
        }
        with guarded(pki, document) as exporter:
            statuses = []
            threads = [
                threading.Thread(
                    target=lambda n=n: statuses.append(
                        _status(exporter, good, user=("alice", str(n)))
                    )
                )
                for n in range(2)  # one being checked, and one that waits
            ]
            for thread in threads:
                thread.start()
                time.sleep(0.2)  # the first is being checked before the last one comes
            shutil.copy(pki.strangers.file, pki.folder / "clients.pem")
            eventually(lambda: exporter.log_lines("web configuration reloaded"), SOON)
            waited = sum(thread.is_alive() for thread in threads)
            for thread in threads:
                thread.join()
            assert _status(exporter, good) == 0

        assert waited >= 1
        assert statuses == [401] * 2


def test_half_a_file(pki: Pki) -> None:
    """A file that is half written, and would be right so, is not taken for what it is
    not.
    """
    users = {"basic_auth_users": {"alice": hashed("one")}}
    path = pki.folder / "web.yml"
    with guarded(pki, users) as exporter:
        for number in range(2):
            # By itself, the first half would be valid, and without users. A file is
            # taken once it has been the same for a second, which no half is here.
            path.write_text(f"# {number}\ntls_server_config: {{}}\n")
            time.sleep(0.4)
            path.write_text(f"# {number}\n{yaml.safe_dump(users)}")
            assert _status(exporter) == 401, number
            time.sleep(0.4)
        eventually(lambda: exporter.log_lines("web configuration reloaded"), SOON)
        lines = exporter.log_lines("web configuration reloaded")

    assert {line["users"] for line in lines} == {"1"}


def test_the_configuration_and_the_web_configuration(pki: Pki) -> None:
    """The metric is 1 only when both files are the newest."""
    config = {"log": {"level": "info"}}
    with guarded(pki, "", config=config) as exporter:
        exporter.configure({"log": {"level": "loud"}})
        assert ask(exporter, "/-/reload", method="POST").status == 500
        write(pki.folder / "web.yml", {"basic_auth_users": {}})
        eventually(lambda: exporter.log_lines("web configuration reloaded"), SOON)
        # one more look at the file, which finds it unchanged
        time.sleep(1.2)
        assert exporter.metrics().value("config_last_reload_successful") == 0
        exporter.configure(config)
        assert ask(exporter, "/-/reload", method="POST").status == 200
        assert exporter.metrics().value("config_last_reload_successful") == 1
