"""What a web configuration file may contain, and the errors of one that is invalid."""

import contextlib
import errno
import os
import shutil
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from service.test_admission import port_of
from support.builders import refusal
from support.commands import Outcome, run_here
from support.programs import find_program
from tap.ends import connect, eventually
from vllm_specdec_exporter.listener.connection_limits import ConnectionLimiter
from vllm_specdec_exporter.listener.sockets import Listener
from vllm_specdec_exporter.listener.web_config import document, fields
from vllm_specdec_exporter.listener.web_config import middleware as guard_module
from vllm_specdec_exporter.listener.web_config.document import (
    Loaded,
    WebConfig,
    WebConfigFile,
    parse,
)
from vllm_specdec_exporter.listener.web_config.fields import WebConfigError
from vllm_specdec_exporter.listener.web_config.middleware import WebConfigMiddleware
from vllm_specdec_exporter.listener.web_config.server_tls import TLSSettings
from webconfig.https import HTTPS, MUTUAL, TLS, write
from webconfig.pki import Pki, hashed

CORPUS = Path(__file__).with_name("corpus")
GOOD = sorted(path.name for path in CORPUS.glob("*.good.yml"))
BAD = sorted(path.name for path in CORPUS.glob("*.bad.yml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus beside the files that it names."""
    folder = tmp_path_factory.mktemp("corpus")
    Pki(folder).extras()
    for path in CORPUS.iterdir():
        shutil.copy(path, folder)
    return folder


def test_the_corpus_says_what_it_expects() -> None:
    """Every file's name says whether it is good."""
    assert sorted([*GOOD, *BAD]) == sorted(path.name for path in CORPUS.iterdir())
    assert len(GOOD) >= 12
    assert len(BAD) >= 40


@pytest.mark.parametrize("name", GOOD)
def test_valid_files_are_accepted(folder: Path, name: str) -> None:
    """What is right is taken, and Prometheus' own checker takes it too."""
    promtool = find_program("promtool", "prometheus")
    loaded = WebConfigFile(str(folder / name)).load()
    assert (loaded.context is None) == (loaded.config.tls is None)
    checked = subprocess.run(
        [promtool, "check", "web-config", folder / name], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", BAD)
def test_invalid_files_are_refused_with_the_expected_line(
    folder: Path, name: str
) -> None:
    """The error is one line, as the file's first line has it: the place, and what to
    do.
    """
    expected = (folder / name).read_text().split("\n")[0].removeprefix("# ")
    message = refusal(WebConfigError, WebConfigFile(str(folder / name)).load)
    assert message.startswith(expected.replace("FOLDER", str(folder)))
    assert message.isprintable()
    assert message != ""
    assert "$2" not in message, "a password's hash"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"basic_auth_users: {\xff: x}", "not YAML: not UTF-8"),
        (b"#" * (5 << 20), "larger than 4 MiB"),
    ],
    ids=["not there", "another encoding", "disk image"],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    """What is no file to read is told so."""
    if content is not None:
        (tmp_path / "web.yml").write_bytes(content)
    assert refusal(WebConfigError, WebConfigFile(str(tmp_path / "web.yml")).load) == why


def test_what_valid_files_contain(folder: Path) -> None:
    """Nothing is no TLS, no users.

    Names stay as written, also where YAML would see a number.
    """
    for name in ("empty", "only-a-comment", "braces"):
        assert WebConfig() == _load(folder, name).config, name
    users = dict(_load(folder, "users").config.users)
    assert [*users] == ["alice", "0123", "bob.smith"]


def test_paths_start_at_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths do not depend on where the exporter was started; absolute ones are
    as they are.
    """
    monkeypatch.chdir("/")
    tls = _load(folder, "tls").config.tls
    absolute = parse(
        {"tls_server_config": {"cert_file": "/a/b", "key_file": "/c"}}, str(folder)
    ).tls

    assert tls.cert_file == str(folder / "server.pem")
    assert absolute.files == ("/a/b", "/c")


FULL_TLS = {"tls_server_config": {**MUTUAL, "min_version": "TLS13"}}
NO_USERS = {"basic_auth_users": {}}


@pytest.mark.parametrize("is_tls_first", [True, False])
def test_a_truncated_file_removes_no_protection(
    folder: Path, is_tls_first: bool
) -> None:
    """A reload refuses a file cut off anywhere, or takes it with all protections."""
    users = f"basic_auth_users:\n  alice: {hashed('one')}\n"
    tls = yaml.safe_dump(FULL_TLS)
    text = tls + users if is_tls_first else users + tls
    path = folder / "cut.yml"
    path.write_text(text)
    old = WebConfigFile(str(path)).load()
    for length in range(len(text)):
        path.write_text(text[:length])
        with contextlib.suppress(WebConfigError):
            new = WebConfigFile(str(path)).load()
            new.require_protections_of(old)
            assert new.config.users, text[:length]
            assert new.config.tls, text[:length]
            assert new.config.tls == old.config.tls, text[:length]


@pytest.fixture(scope="module")
def protected(folder: Path) -> Loaded:
    """A configuration with users, client certificates and TLS 1.3."""
    users = {"basic_auth_users": {"alice": hashed("one")}}
    return WebConfigFile(str(write(folder / "full.yml", FULL_TLS | users))).load()


@pytest.mark.parametrize(
    "text", ["", "# a comment\n", "~\n", "---\n", "basic_auth_users:\n"]
)
def test_an_emptied_file_is_refused(folder: Path, protected: Loaded, text: str) -> None:
    path = write(folder / "emptied.yml", text)
    with pytest.raises(WebConfigError):
        WebConfigFile(str(path)).load().require_protections_of(protected)


@pytest.mark.parametrize(
    ("document", "missing"),
    [
        ({}, ""),
        ({"tls_server_config": {}, **NO_USERS}, ""),
        (
            {"tls_server_config": TLS, **NO_USERS},
            "tls_server_config.client_auth_type; .* `client_auth_type: No",
        ),
        ({"tls_server_config": {**MUTUAL, "min_version": "TLS12"}, **NO_USERS}, ""),
        (
            {"tls_server_config": MUTUAL, **NO_USERS},
            "tls_server_config.min_version; .* `min_version: TLS12`",
        ),
    ],
    ids=["braces", "off", "no client certificates", "TLS 1.2", "no version"],
)
def test_a_protection_is_turned_off_by_name_only(
    folder: Path, protected: Loaded, document: dict[str, Any], missing: str
) -> None:
    """The error names the setting that turns off what the new file lacks."""
    new = WebConfigFile(str(write(folder / "new.yml", document))).load()
    if missing:
        with pytest.raises(WebConfigError, match=missing):
            new.require_protections_of(protected)
    else:
        new.require_protections_of(protected)


def test_files_that_change_while_they_are_read_are_read_again(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are exchanged while they are read are read again, until they are those
    of one moment.
    """
    source = WebConfigFile(str(write(pki.folder / "web.yml", HTTPS)))
    made = document.make_context
    exchanges = [pki.renew, pki.renew]

    def make(settings: TLSSettings) -> ssl.SSLContext:
        key = (pki.folder / "server.key").read_bytes()
        if exchanges:
            exchanges.pop()()
        if len(exchanges) == 1:
            # as between the two files: they do not match
            (pki.folder / "server.key").write_bytes(key)
        return made(settings)

    monkeypatch.setattr(document, "make_context", make)
    assert source.load().contents == source.look()
    assert exchanges == []
    exchanges += [pki.renew] * 9
    assert (
        refusal(WebConfigError, source.load)
        == "the files change faster than they can be read"
    )


def _load(folder: Path, name: str) -> Loaded:
    return WebConfigFile(str(folder / f"{name}.good.yml")).load()


def test_the_command(folder: Path) -> None:
    """Nothing is served with a file that cannot be used: one line, and exit code 2."""
    path = folder / "version-unknown.bad.yml"
    error = f'vllm-specdec-exporter: error: --web.config.file "{path}": '
    error += 'tls_server_config.min_version: "TLS111": allowed: TLS12, TLS13\n'
    served = run_here("--web.config.file", str(path))
    checked = run_here("--config.check", "--web.config.file", str(path))
    assert served == checked == Outcome(2, "", error)
    good = str(folder / "tls-and-users.good.yml")
    assert run_here("--config.check", "--web.config.file", good).code == 0


# --- files that cannot be read, and a reload that fails


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()]
)
async def test_a_failed_reload_changes_nothing_and_is_tried_again(
    pki: Pki,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """It changes nothing, is told once, and the next second tries again."""
    monkeypatch.setattr(guard_module, "LOOK_SECONDS", 0.02)
    caplog.set_level("INFO", "vllm_specdec_exporter")
    path = write(pki.folder / "web.yml", {"basic_auth_users": {"alice": hashed("one")}})
    reloads = []
    source = WebConfigFile(str(path))
    guard = WebConfigMiddleware(source, source.load(), reloads.append)
    app = web.Application()
    guard.attach(app)
    admission = ConnectionLimiter()
    runner = await admission.set_up(app)
    listener = await Listener.open("127.0.0.1", 0)
    await guard.start(listener, admission)
    load = source.load
    failures = [0]

    def fails() -> None:
        failures[0] += 1
        raise error

    async def status() -> bytes:
        """The status of an answer, empty where plain HTTP gets none."""
        client = await connect(port_of(listener))
        await client.send(b"GET /nothing HTTP/1.0\r\n\r\n")
        answer, _ = await client.rest()
        await client.close()
        return answer.removeprefix(b"HTTP/1.0 ")[:3]

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    try:
        monkeypatch.setattr(source, "load", fails)
        # It opens the doors, were half of it taken.
        write(path, {"tls_server_config": TLS, "basic_auth_users": {}})
        await eventually(lambda: failures[0] >= 3)
        assert reloads[-1].successful is False
        assert lines().count("web configuration not reloaded") == 1
        assert await status() == b"401"
        monkeypatch.setattr(source, "load", load)
        await eventually(lambda: reloads[-1].successful)
        assert lines()[-1] == "web configuration reloaded"
        assert not (await status()).isdigit()
    finally:
        await guard.stop()
        listener.close()
        await runner.cleanup()


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestFiles:
    def test_no_certificates(self, pki: Pki) -> None:
        """A device without an end, a pipe without a writer, a disk image: one line
        names the file, soon.
        """
        pipe = pki.folder / "pipe"
        large = write(pki.folder / "large", "x")
        os.mkfifo(pipe)
        os.truncate(large, 5 << 20)
        begin = time.monotonic()
        odd = "not a regular file"
        for key in ("cert_file", "key_file", "client_ca_file"):
            for path, reason in (
                ("/dev/zero", odd),
                (str(pipe), odd),
                (str(large), "larger than 4 MiB"),
            ):
                document = {"tls_server_config": {**MUTUAL, key: path}}
                source = WebConfigFile(str(write(pki.folder / "web.yml", document)))
                message = f'tls_server_config.{key}: "{path}": {reason}'
                assert refusal(WebConfigError, source.load) == message, (key, path)
        assert time.monotonic() - begin < 60

    def test_folders_are_closed(self, pki: Pki) -> None:
        """What cannot be read is asked every second: nothing stays open."""
        tls = {**TLS, "cert_file": ".", "key_file": "/dev/null"}
        source = WebConfigFile(
            str(write(pki.folder / "web.yml", {"tls_server_config": tls}))
        )
        descriptors = _descriptors()
        for _ in range(20):
            source.look()

        assert _descriptors() == descriptors

    def test_null_is_the_same_as_left_out(self) -> None:
        """Nothing, in any of YAML's words, is the same as left out; in quotes, or as a
        name, it is a word.
        """
        for null in ("~", "null", "Null", "NULL", ""):
            text = f"tls_server_config: {null}\nbasic_auth_users: {null}\n"
            assert parse(fields.parse_yaml(text.encode())) == WebConfig(), null
            assert parse(fields.parse_yaml(null.encode())) == WebConfig(), null
        with pytest.raises(
            WebConfigError, match=r"^tls_server_config: settings are expected"
        ):
            parse(fields.parse_yaml(b"tls_server_config: '~'"))
        password_hash = hashed("x")
        assert parse(
            fields.parse_yaml(f"basic_auth_users: {{null: {password_hash}}}".encode())
        ).users == (("null", password_hash),)
