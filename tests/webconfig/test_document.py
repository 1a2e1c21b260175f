"""What a web configuration file may say, and what is said of one that cannot be used."""

import contextlib
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

from support.builders import refusal
from support.commands import Outcome, run_here
from support.programs import find_program
from vllm_specdec_exporter.serve.web_config import document
from vllm_specdec_exporter.serve.web_config.document import Loaded, WebConfig, WebConfigFile, parse
from vllm_specdec_exporter.serve.web_config.fields import WebConfigError
from vllm_specdec_exporter.serve.web_config.server_tls import ClientAuth, TLSSettings
from webconfig.https import MUTUAL, TLS, write
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
    assert (len(GOOD), len(BAD)) > (15, 50)


def test_good(folder: Path) -> None:
    """What is right is taken, and Prometheus' own checker takes it too."""
    wrong = []
    for name in GOOD:
        loaded = WebConfigFile(str(folder / name)).load()
        complaint = _complaint(folder / name)
        if name == "client-sans.good.yml" and complaint:
            # Debian's Prometheus is older than this one setting.
            assert "field client_allowed_sans not found" in complaint
            without = folder / "without"
            without.write_text((folder / name).read_text().partition("  client_allowed_sans")[0])
            complaint = _complaint(without)
        if complaint or (loaded.context is not None) != (loaded.config.tls is not None):
            wrong.append(f"{name}: {loaded.context} {loaded.config.tls} {complaint}")
    assert wrong == []


def _complaint(path: Path) -> str:
    """What Prometheus' own checker has against a file, empty for nothing."""
    promtool = find_program("promtool", "prometheus")
    checked = subprocess.run([promtool, "check", "web-config", path], capture_output=True, text=True)
    return checked.stdout + checked.stderr if checked.returncode else ""


def test_bad(folder: Path) -> None:
    """What is wrong is told in one line, as the file's first line has it: the place, and what to do."""
    wrong = []
    for name in BAD:
        expected = (folder / name).read_text().split("\n")[0].removeprefix("# ")
        told = refusal(WebConfigError, WebConfigFile(str(folder / name)).load)
        starts = told.startswith(expected.replace("FOLDER", str(folder)))
        if not (starts and told and told.isprintable()) or "$2" in told:
            wrong.append(f"{name}: {told!r} instead of {expected!r}")
    assert wrong == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"basic_auth_users: {\xff: x}", "not YAML: not UTF-8"),
        (b"#" * (5 << 20), "larger than 4 MiB"),
    ],
    ids=["not there", "another encoding", "disk image"],
)
def test_no_file(tmp_path: Path, content: bytes | None, why: str) -> None:
    """What is no file to read is told so."""
    if content is not None:
        (tmp_path / "web.yml").write_bytes(content)
    assert refusal(WebConfigError, WebConfigFile(str(tmp_path / "web.yml")).load) == why


def test_what_is_taken(folder: Path) -> None:
    """Nothing is no TLS, no users, no headers. Names stay as written, also where YAML would see a number."""
    for name in ("empty", "only-a-comment", "braces"):
        assert WebConfig() == _load(folder, name).config, name
    assert [user for user, _ in _load(folder, "users").config.users] == ["alice", "0123", "bob.smith"]
    headers = dict(_load(folder, "headers").config.headers)
    assert (headers["X-XSS-Protection"], headers["X-Frame-Options"], len(headers)) == ("1", "deny", 5)


def test_paths_start_at_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths do not depend on where the exporter was started; absolute ones are as they are."""
    monkeypatch.chdir("/")
    tls = _load(folder, "tls").config.tls
    absolute = parse({"tls_server_config": {"cert_file": "/a/b", "key_file": "/c"}}, str(folder)).tls

    assert tls is not None
    assert tls.cert_file == str(folder / "server.pem")
    assert absolute is not None
    assert absolute.files == ("/a/b", "/c")


def test_no_file_that_is_cut_off_opens_a_door(folder: Path) -> None:
    """A reload refuses what lacks a protection that the old file had; what turns it off says so."""
    users = f"basic_auth_users:\n  alice: {hashed('one')}\n"
    tls = yaml.safe_dump({"tls_server_config": {**MUTUAL, "min_version": "TLS13"}}, sort_keys=True)
    names = "  client_allowed_sans: [prometheus.example]\n"
    path = folder / "cut.yml"
    for text in (tls + names + users, users + tls + names):
        path.write_text(text)
        old = WebConfigFile(str(path)).load()
        taken = []
        for length in range(len(text)):
            path.write_text(text[:length])
            with contextlib.suppress(WebConfigError):
                new = WebConfigFile(str(path)).load()
                new.require_protections_of(old)
                taken.append(new.config)
        assert all(config.tls and config.tls.client_auth is ClientAuth.REQUIRE_AND_VERIFY for config in taken)
        assert all(config.tls.client_allowed_sans and config.users for config in taken if config.tls)
        assert all(config.tls.min_version == "TLS13" for config in taken if config.tls)

    plain = {"tls_server_config": TLS}
    for new_document, reason in (
        ({}, None),
        ({"tls_server_config": {}, "basic_auth_users": {}}, None),
        (plain | {"basic_auth_users": {}}, "tls_server_config.client_auth_type; .* `client_auth_type: No"),
        ({"tls_server_config": {**MUTUAL, "min_version": "TLS12"}, "basic_auth_users": {}}, "next start$"),
    ):
        path.write_text(yaml.safe_dump(new_document))
        new = WebConfigFile(str(path)).load()
        with pytest.raises(WebConfigError, match=reason) if reason else contextlib.nullcontext():
            new.require_protections_of(old)


def test_one_moment(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are exchanged while they are read are read again, until they are those of one moment."""
    source = WebConfigFile(str(write(pki.folder / "web.yml", {"tls_server_config": TLS})))
    made, exchanges = document.make_context, [pki.renew, pki.renew]

    def make(settings: TLSSettings) -> ssl.SSLContext:
        key = (pki.folder / "server.key").read_bytes()
        if exchanges:
            exchanges.pop()()
        if len(exchanges) == 1:
            (pki.folder / "server.key").write_bytes(key)  # as between the two files: they do not match
        return made(settings)

    monkeypatch.setattr(document, "make_context", make)
    assert source.load().contents == source.look()
    assert exchanges == []
    exchanges += [pki.renew] * 9
    assert refusal(WebConfigError, source.load) == "the files change faster than they can be read"


def _load(folder: Path, name: str) -> Loaded:
    return WebConfigFile(str(folder / f"{name}.good.yml")).load()


def test_the_command(folder: Path) -> None:
    """Nothing is served with a file that cannot be used: one line, and exit code 2."""
    path = folder / "version-unknown.bad.yml"
    error = f'vllm-specdec-exporter: error: --web.config.file "{path}": '
    error += 'tls_server_config.min_version: "TLS111": allowed: TLS12, TLS13\n'
    for checks in ((), ("--config.check",)):
        assert run_here(*checks, "--web.config.file", str(path)) == Outcome(2, "", error)
    good = str(folder / "tls-and-users.good.yml")
    assert run_here("--config.check", "--web.config.file", good).code == 0
