"""`health`: the real command against exporters that are well, ill, gone, or not
exporters at all.
"""

import sys
import time
from pathlib import Path

import pytest

from support.certificates import server_side
from support.commands import run
from support.exporter import NO_SERVER, running_exporter
from support.faulty_server import Behaviour, FaultyServer, answer, drip, hang, head, raw
from support.ports import free_port
from support.programs import eventually
from vllm_specdec_exporter.commands import health
from vllm_specdec_exporter.config.listen_address import loopback_hosts
from webconfig.https import HTTPS, MUTUAL_HTTPS, guarded, write
from webconfig.pki import Pki, hashed

pytestmark = pytest.mark.full

PREFIX = "VLLM_SPECDEC_EXPORTER_"
USERS = {"basic_auth_users": {"alice": hashed("x")}}


def _health(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return exit code, output and errors of the command."""
    done = run(
        "health",
        *arguments,
        **{PREFIX + name: value for name, value in variables.items()},
    )
    return done.code, done.out, done.err


def _alive(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return the same once it is a success: on a busy machine, a check may take longer
    than its 3 s.
    """
    return eventually(
        lambda: (outcome := _health(*arguments, **variables))[0] == 0 and outcome, 240
    )


class TestAlive:
    @pytest.mark.parametrize("listen", ["127.0.0.1:PORT", ":PORT", "[::1]:PORT"])
    def test_addresses(self, listen: str) -> None:
        """Wherever `serve` listens with a setting, `health` finds it with the same one,
        and no flag.
        """
        address = listen.replace("PORT", str(free_port()))
        env = {PREFIX + "WEB_LISTEN_ADDRESS": address}
        with running_exporter(*NO_SERVER, env=env, config="", fast=False):
            code, out, err = _alive(WEB_LISTEN_ADDRESS=address)

        assert code == 0
        assert err == ""
        assert out.startswith("http://")
        assert out.endswith("/-/healthy: healthy\n")

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            (HTTPS | USERS, "healthy"),
            (USERS, "healthy"),
            (MUTUAL_HTTPS, "alive; it requires a client certificate"),
        ],
        ids=["TLS", "users", "client certificates"],
    )
    def test_web_configuration(
        self, pki: Pki, tmp_path: Path, document: dict[str, object], said: str
    ) -> None:
        """With each web configuration, named by flags or by the configuration file."""
        with guarded(pki, document) as exporter:
            address = exporter.address
            path = str(pki.folder / "web.yml")
            settings = {"web": {"listen_address": address, "config": {"file": path}}}
            # Other settings in the file do not matter, valid or not.
            ignored = {"vllm": {"ca_file": "/no/such/file"}, "threshold": {"x": 1}}
            file = write(tmp_path / "config.yml", {**settings, **ignored})
            outcomes = [
                _alive("--web.listen-address", address, "--web.config.file", path),
                _alive(CONFIG_FILE=str(file)),
            ]
            write(pki.folder / "web.yml", "junk")  # what was in force before still is
            outcomes.append(_alive(CONFIG_FILE=str(file)))

        alive = (0, f"https://{address}/-/healthy: {said}\n", "")
        if document is USERS:
            alive = (0, f"http://{address}/-/healthy: {said}\n", "")
        assert outcomes == [alive] * 3


#: Seconds until the deadline: one that answers meet on a busy machine, and one that a
#: test can wait for.
FAR = 30.0
SOON = 0.4
ENDS = (raw(b""), raw(reset=True))


class TestNotAlive:
    @pytest.mark.parametrize("tls", [False, True])
    @pytest.mark.parametrize(
        ("behaviour", "seconds", "message"),
        [
            (
                answer(b"a loop has ended\n", "503 Service Unavailable"),
                FAR,
                "status 503: a loop has ended",
            ),
            (answer(b"", "404 Not Found"), FAR, "status 404: "),
            (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), FAR, "not an HTTP response"),
            (ENDS[0], FAR, "not an HTTP response"),
            (ENDS[1], FAR, "Connection reset by peer"),
            (hang(reads_request=False), SOON, "no response within 3 s"),
            (drip(b"HTTP/1.1 ", b"2", 0.05), SOON, "no response within 3 s"),
            (hang(head(), b"x"), SOON, "no response within 3 s"),
        ],
        ids=["503", "404", "ssh", "closed", "reset", "silent", "drips", "hangs"],
    )
    def test_answers(
        self, pki: Pki, tls: bool, behaviour: Behaviour, seconds: float, message: str
    ) -> None:
        """One line has the reason. The deadline spans the handshake, and bytes that
        trickle in.

        Over TLS, the end of a connection is what a client without its certificate sees.
        """
        files = str(pki.folder / "server.pem"), str(pki.folder / "server.key")
        context = server_side(files) if tls else None
        with FaultyServer(behaviour, tls=context) as server:
            address = ("127.0.0.1", server.port)
            begin = time.monotonic()
            checked = health.probe(address, may_be_tls=tls, end=begin + seconds)
            assert time.monotonic() - begin < 20
        assert f"://127.0.0.1:{server.port}/-/healthy: " in checked.text
        if tls and behaviour in ENDS:
            assert checked.alive
            assert "requires a client certificate" in checked.text
        else:
            assert not checked.alive
            assert message in checked.text

    def test_the_process(self) -> None:
        """It writes one line without control characters, and does not wait for ever."""
        with FaultyServer(answer(b"\x1b[31mred\n", "500 Oops")) as server:
            for end in (
                "status 500: \N{REPLACEMENT CHARACTER}[31mred\n",
                "no response within 3 s\n",
            ):
                code, out, err = _health(
                    f"--web.listen-address=127.0.0.1:{server.port}"
                )
                assert (code, out, err.count("\n")) == (1, "", 1), end
                assert err.endswith(end), end
                server.behaviour = hang()

    def test_nothing_listens(self) -> None:
        """A refused connection is told for the address that is tried first."""
        port = free_port()
        code, out, err = _health(WEB_LISTEN_ADDRESS=f":{port}")

        assert code == 1
        assert out == ""
        assert err == f"http://127.0.0.1:{port}/-/healthy: Connection refused\n"

    @pytest.mark.parametrize(
        ("flag", "value", "why"),
        [
            ("--web.listen-address", "9850", "allowed: host:port"),
            ("--config.file", "/no/such.yml", "cannot be read"),
            ("--web.listen-address", "no-such-host.invalid:1", ""),
        ],
    )
    def test_settings_that_cannot_be(self, flag: str, value: str, why: str) -> None:
        """Docker knows 0 and 1 only; so this is 1 too, with one line."""
        code, out, err = _health(flag, value)
        assert code == 1
        assert out == ""
        assert err.count("\n") == 1
        assert value in err
        assert why in err


def test_imports() -> None:
    """Nothing but the standard library and a few modules of its own are imported, TLS
    or not.
    """
    script = (
        "import sys\nfrom vllm_specdec_exporter.cli import main\n"
        "main(['health', '--web.listen-address', '127.0.0.1:1', '--web.config.file', "
        "'x'])\n"
        "print(*sys.modules)"
    )
    done = run("-c", script, command=(sys.executable,))
    names = [
        name for name in done.out.split() if not name.startswith(("_", "__editable__"))
    ]

    packages = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert packages == {"vllm_specdec_exporter"}
    assert sum(name.startswith("vllm_specdec_exporter.") for name in names) <= 12


def test_loopback_hosts() -> None:
    """A wildcard is reached over the loopback interface, all else where it is."""
    hosts = {
        "": ("127.0.0.1", "::1"),
        "0.0.0.0": ("127.0.0.1",),
        "::": ("::1",),
        "exporter": ("exporter",),
    }
    assert {host: loopback_hosts(host) for host in hosts} == hosts
