"""`health`: the real command against exporters that are well, ill, gone, or not exporters at all."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from support.certificates import server_side
from support.exporter import running_exporter
from support.faulty_server import FaultyServer, answer, drip, hang, head, raw
from support.ports import free_port
from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter import health
from vllm_specdec_exporter.listen_address import loopback_hosts
from webconfig.https import MUTUAL, NO_SERVER, TLS, address_of, guarded, write
from webconfig.pki import hashed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.faulty_server import Behaviour
    from webconfig.pki import Pki

pytestmark = pytest.mark.full

PREFIX = "VLLM_SPECDEC_EXPORTER_"


def _health(*words: str, **variables: str) -> tuple[int, str, str, float]:
    """Return exit code, output, errors and duration of the command."""
    begin = time.monotonic()
    done = subprocess.run(
        [COMMAND, "health", *words],
        env=clean_environment(**{PREFIX + name: value for name, value in variables.items()}),
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


class TestAlive:
    @pytest.mark.parametrize(
        "listen", ["127.0.0.1:PORT", "localhost:PORT", "0.0.0.0:PORT", ":PORT", "[::1]:PORT", "[::]:PORT"]
    )
    def test_addresses(self, listen: str) -> None:
        """Wherever `serve` listens with a setting, `health` finds it with the same one, and no flag."""
        address = listen.replace("PORT", str(free_port()))
        env = {PREFIX + "WEB_LISTEN_ADDRESS": address}
        process = subprocess.Popen(
            [COMMAND, *NO_SERVER], env=clean_environment(**env), stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        try:
            while "msg=listening" not in process.stderr.readline():
                assert process.poll() is None
            code, out, err, _ = _health(WEB_LISTEN_ADDRESS=address)
        finally:
            process.terminate()
            process.communicate(timeout=10)

        assert (code, err) == (0, "")
        assert out.startswith("http://")
        assert out.endswith("/-/healthy: healthy\n")

    @pytest.mark.parametrize("how", ["flags", "environment", "file", "file by environment"])
    @pytest.mark.parametrize(
        "kind", ["TLS", "TLS 1.2", "users", "client certificates", "those with TLS 1.2", "empty"]
    )
    def test_web_configuration(self, pki: Pki, tmp_path: Path, kind: str, how: str) -> None:
        """With each web configuration, and told of it in each way."""
        users = {"basic_auth_users": {"alice": hashed("x")}}
        document: Mapping[str, object] = {
            "TLS": {"tls_server_config": TLS, **users},
            "TLS 1.2": {"tls_server_config": {**TLS, "max_version": "TLS12"}},
            "users": users,
            "client certificates": {"tls_server_config": MUTUAL},
            "those with TLS 1.2": {"tls_server_config": {**MUTUAL, "max_version": "TLS12"}},
            "empty": {},
        }[kind]
        with guarded(pki, document) as exporter:
            host, port = address_of(exporter)
            settings = {
                "web": {"listen_address": f"{host}:{port}", "config": {"file": str(pki.folder / "web.yml")}}
            }
            file = tmp_path / "config.yml"
            # What else is in the file is none of its business, right or wrong.
            write(file, {**settings, "vllm": {"ca_file": "/no/such/file"}, "threshold": {"x": 1}})
            flags = (
                "--web.listen-address",
                f"{host}:{port}",
                "--web.config.file",
                str(pki.folder / "web.yml"),
            )
            code, out, err, _ = {
                "flags": lambda: _health(*flags),
                "environment": lambda: _health(WEB_LISTEN_ADDRESS=flags[1], WEB_CONFIG_FILE=flags[3]),
                "file": lambda: _health("--config.file", str(file)),
                "file by environment": lambda: _health(CONFIG_FILE=str(file)),
            }[how]()

        assert (code, err) == (0, "")
        expected = (
            "alive; it wants a client certificate"
            if document.get("tls_server_config", {}).get("client_ca_file")
            else "healthy"
        )
        assert out.endswith(f"/-/healthy: {expected}\n")

    def test_a_web_configuration_that_broke(self, pki: Pki) -> None:
        """An exporter that goes on with what was in force before is alive."""
        with guarded(pki, {"tls_server_config": TLS}) as exporter:
            host, port = address_of(exporter)
            write(pki.folder / "web.yml", "junk")
            code, *_ = _health(
                f"--web.listen-address={host}:{port}", f"--web.config.file={pki.folder}/web.yml"
            )

        assert code == 0


class TestNotAlive:
    @pytest.mark.parametrize(
        ("behaviour", "said"),
        [
            (
                answer(b"a poll loop has ended\n", "503 Service Unavailable"),
                "status 503: a poll loop has ended",
            ),
            (answer(b"", "404 Not Found"), "status 404: "),
            (answer(b"\x1b[31mred\n", "500 Oops"), "status 500: �[31mred"),
            (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "no answer in HTTP"),
            (raw(b""), "no answer in HTTP"),
            (raw(reset=True), "Connection reset by peer"),
            (hang(), "no answer within 3 s"),
            (hang(reads_request=False), "no answer within 3 s"),
            (hang(head()), "no answer within 3 s"),
            (drip(b"HTTP/1.1 ", b"2", 0.2), "no answer within 3 s"),
        ],
    )
    @pytest.mark.parametrize("tls", [False, True])
    def test_answers(self, pki: Pki, behaviour: Behaviour, said: str, tls: bool) -> None:
        """One line says why, and it never takes longer than three seconds and a start."""
        context = (
            server_side((str(pki.folder / "server.pem"), str(pki.folder / "server.key"))) if tls else None
        )
        with FaultyServer(behaviour, tls=context) as server:
            extra = ("--web.config.file=x",) if tls else ()
            code, out, err, seconds = _health(f"--web.listen-address=127.0.0.1:{server.port}", *extra)

        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"://127.0.0.1:{server.port}/-/healthy: " in err
        if not tls or "status" in said or "within" in said:
            assert said in err
        assert seconds < 30

    @pytest.mark.parametrize("tls", [False, True])
    @pytest.mark.parametrize(
        "behaviour", [hang(reads_request=False), drip(b"HTTP/1.1 ", b"2", 0.05), hang(head(), b"x")]
    )
    def test_the_time_is_for_all_of_it(self, pki: Pki, behaviour: Behaviour, tls: bool) -> None:
        """Neither several addresses nor bytes that trickle in make it longer."""
        files = str(pki.folder / "server.pem"), str(pki.folder / "server.key")
        with FaultyServer(behaviour, tls=server_side(files) if tls else None) as server:
            begin = time.monotonic()
            found = health.probe(("127.0.0.1", server.port), may_be_tls=tls, end=begin + 0.4)

        assert not found.alive
        assert time.monotonic() - begin < 20

    def test_nothing_listens(self) -> None:
        """A refused connection is told for the address that is tried first."""
        port = free_port()
        code, out, err, _ = _health(WEB_LISTEN_ADDRESS=f":{port}")

        assert (code, out) == (1, "")
        assert err == f"http://127.0.0.1:{port}/-/healthy: Connection refused\n"

    @pytest.mark.parametrize("tls", [False, True])
    def test_a_full_backlog(self, tls: bool) -> None:
        """A process that accepts no connections, such as one that is stopped, is not alive."""
        with socket.socket() as listener, contextlib.ExitStack() as stack:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = listener.getsockname()
            for _ in range(3):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(address)
            extra = {"WEB_CONFIG_FILE": "x"} if tls else {}
            code, out, err, seconds = _health(WEB_LISTEN_ADDRESS=f"127.0.0.1:{address[1]}", **extra)

        assert (code, out) == (1, "")
        assert "no answer within 3 s" in err
        assert seconds < 30

    def test_an_exporter_that_is_stopped(self) -> None:
        """The port alone is no sign of life."""
        with running_exporter(*NO_SERVER) as exporter:
            host, port = address_of(exporter)
            exporter.send(signal.SIGSTOP)
            code, _, err, _ = _health(WEB_LISTEN_ADDRESS=f"{host}:{port}")
            exporter.send(signal.SIGCONT)

        assert (code, "no answer within 3 s" in err) == (1, True)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--web.listen-address", "9850"), '--web.listen-address "9850": allowed: host:port'),
            (("--config.file", "/no/such.yml"), '--config.file "/no/such.yml": cannot be read'),
            (("--web.listen-address", "no-such-host.invalid:1"), "no-such-host.invalid"),
        ],
    )
    def test_settings_that_cannot_be(self, words: tuple[str, ...], said: str) -> None:
        """Docker knows 0 and 1 only; so this is 1 too, with one line."""
        code, out, err, _ = _health(*words)

        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err


class TestCost:
    def test_imports(self) -> None:
        """Nothing but the standard library and a few modules of its own are imported, TLS or not."""
        script = (
            "import sys\nfrom vllm_specdec_exporter.cli import main\n"
            "main(['health', '--web.listen-address', '127.0.0.1:1', '--web.config.file', 'x'])\n"
            "print(*sorted({name.partition('.')[0] for name in sys.modules if not name.startswith('_')}))\n"
            "print(*sorted(name for name in sys.modules if name.startswith('vllm_specdec_exporter.')))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=clean_environment()
        )
        top, own = (line.split() for line in done.stdout.splitlines())
        others = set(top) - sys.stdlib_module_names - {"vllm_specdec_exporter"}

        # What an editable installation brings along is not the program's.
        assert {name for name in others if not name.startswith("__editable__")} == set()
        assert own == [
            f"vllm_specdec_exporter.{name}"
            for name in ("cli", "health", "listen_address", "options", "web_options")
        ]

    def test_memory_and_time(self) -> None:
        """It takes a fraction of what `serve` takes: it runs beside it, within the same limits."""

        def measure(code: str) -> tuple[float, int]:
            """Return the seconds of CPU time and the kB at the most of a Python that runs `code`."""
            script = f"{code}\nimport os; print(sum(os.times()[:2]), *open('/proc/self/status'))"
            out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
            return float(out.split()[0]), int(out.split("VmHWM:")[1].split()[0])

        command = "from vllm_specdec_exporter.cli import main; main(['health', '--web.listen-address', ':1'])"
        own = [measure(command) for _ in range(3)]
        serve = [measure("import vllm_specdec_exporter.serve") for _ in range(3)]

        assert min(own)[0] < min(serve)[0] / 3
        assert min(memory for _, memory in own) < min(memory for _, memory in serve) / 1.8


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("", ("127.0.0.1", "::1")),
        ("0.0.0.0", ("127.0.0.1",)),
        ("::", ("::1",)),
        ("10.0.0.7", ("10.0.0.7",)),
        ("exporter", ("exporter",)),
    ],
)
def test_loopback_hosts(host: str, found: tuple[str, ...]) -> None:
    """A wildcard is reached over the loopback interface, everything else where it is."""
    assert loopback_hosts(host) == found


def test_many_at_once() -> None:
    """Health checks that come together do not disturb each other."""
    with running_exporter(*NO_SERVER) as exporter:
        host, port = address_of(exporter)
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(_health(WEB_LISTEN_ADDRESS=f"{host}:{port}")[0]))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert found == [0] * 6
