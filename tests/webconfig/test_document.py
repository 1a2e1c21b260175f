"""What a web configuration file may say, and what is said of one that cannot be used."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.programs import COMMAND, clean_environment, find_program
from vllm_specdec_exporter.webconfig.document import WebConfig, parse
from vllm_specdec_exporter.webconfig.fields import WebConfigError
from vllm_specdec_exporter.webconfig.source import Source
from webconfig.pki import Pki

if TYPE_CHECKING:
    from vllm_specdec_exporter.webconfig.source import Loaded

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


@pytest.mark.parametrize("name", GOOD)
def test_good(folder: Path, name: str) -> None:
    """What is right is taken, and Prometheus' own checker takes it too."""
    loaded = Source(str(folder / name)).load()
    complaint = _complaint(folder / name)
    if name == "client-sans.good.yml" and complaint:
        # Debian's Prometheus is older than this one setting.
        assert "field client_allowed_sans not found" in complaint
        without = folder / "without"
        without.write_text((folder / name).read_text().partition("  client_allowed_sans")[0])
        complaint = _complaint(without)

    assert (loaded.context is not None) == (loaded.config.tls is not None)
    assert complaint == ""


def _complaint(path: Path) -> str:
    """What Prometheus' own checker has against a file, empty for nothing."""
    promtool = find_program("promtool", "prometheus")
    checked = subprocess.run([promtool, "check", "web-config", path], capture_output=True, text=True)
    return checked.stdout + checked.stderr if checked.returncode else ""


@pytest.mark.parametrize("name", BAD)
def test_bad(folder: Path, name: str) -> None:
    """What is wrong is told in one line, as the file's first line has it: the place, and what to do."""
    path = folder / name
    expected = path.read_text().split("\n")[0].removeprefix("# ").replace("FOLDER", str(folder))
    with pytest.raises(WebConfigError) as caught:
        Source(str(path)).load()
    message = str(caught.value)

    assert message.startswith(expected)
    assert message.isprintable()
    assert "$2" not in message


def test_not_there(tmp_path: Path) -> None:
    """A file that is not there is no empty file."""
    with pytest.raises(WebConfigError, match=r"^cannot be read: No such file or directory$"):
        Source(str(tmp_path / "none.yml")).load()


def test_not_utf8(tmp_path: Path) -> None:
    """Nor is one in another encoding."""
    (tmp_path / "web.yml").write_bytes(b"basic_auth_users: {\xff: x}")
    with pytest.raises(WebConfigError, match=r"^not YAML: not UTF-8$"):
        Source(str(tmp_path / "web.yml")).load()


def test_too_large(tmp_path: Path) -> None:
    """Whoever names a disk image by mistake is told so."""
    (tmp_path / "web.yml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(WebConfigError, match=r"^larger than 4 MiB$"):
        Source(str(tmp_path / "web.yml")).load()


@pytest.mark.parametrize("name", ["empty", "only-a-comment", "braces"])
def test_nothing_said(folder: Path, name: str) -> None:
    """A file that says nothing means no TLS, no users, no headers."""
    assert WebConfig() == _load(folder, name).config


def test_users(folder: Path) -> None:
    """Names stay as they are written, also where YAML would see a number."""
    assert [user for user, _ in _load(folder, "users").config.users] == ["alice", "0123", "bob.smith"]


def test_headers(folder: Path) -> None:
    """Headers are taken as they are written."""
    headers = dict(_load(folder, "headers").config.headers)

    assert (headers["X-XSS-Protection"], headers["X-Frame-Options"]) == ("1", "deny")
    assert len(headers) == 5


def test_paths_start_at_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths do not depend on where the exporter was started; absolute ones are as they are."""
    monkeypatch.chdir("/")
    tls = _load(folder, "tls").config.tls
    absolute = parse({"tls_server_config": {"cert_file": "/a/b", "key_file": "/c"}}, str(folder)).tls

    assert tls is not None
    assert tls.cert_file == str(folder / "server.pem")
    assert absolute is not None
    assert absolute.files == ("/a/b", "/c")


def _load(folder: Path, name: str) -> Loaded:
    return Source(str(folder / f"{name}.good.yml")).load()


_TEXTS = st.text(max_size=8) | st.sampled_from(["server.pem", "TLS12", "true", "X25519", "NoClientCert"])
_NAMES = st.text(max_size=6) | st.sampled_from(
    [
        "tls_server_config",
        "http_server_config",
        "basic_auth_users",
        "headers",
        "http2",
        "cert_file",
        "key_file",
        "cipher_suites",
        "client_auth_type",
        "client_ca_file",
        "min_version",
        "rate_limit",
    ]
)
_DOCUMENTS = st.recursive(
    st.none() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(_DOCUMENTS)
def test_whatever_it_is(document: object) -> None:
    """Every document either means something or is refused in one printable line."""
    found: object
    try:
        found = parse(document, "/folder")
    except WebConfigError as error:
        found = str(error)

    assert isinstance(found, WebConfig) or (isinstance(found, str) and found.isprintable())


class TestCommand:
    @pytest.mark.parametrize("flags", [(), ("--config.check",)], ids=["serve", "check"])
    @pytest.mark.parametrize("how", ["flag", "environment", "file"])
    def test_bad(self, folder: Path, tmp_path: Path, flags: tuple[str, ...], how: str) -> None:
        """Nothing is served with a file that cannot be used: one line that names it, and exit code 2."""
        path = folder / "version-unknown.bad.yml"
        done = _run(*flags, path=path, how=how, folder=tmp_path)

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f'vllm-specdec-exporter: error: --web.config.file "{path}": '
            'tls_server_config.min_version: "TLS111": allowed: TLS12, TLS13\n'
        )

    @pytest.mark.parametrize("how", ["flag", "environment", "file"])
    def test_good(self, folder: Path, tmp_path: Path, how: str) -> None:
        """A file that can be used is part of a configuration that is valid."""
        done = _run("--config.check", path=folder / "tls-and-users.good.yml", how=how, folder=tmp_path)

        assert (done.returncode, done.stdout, done.stderr) == (0, "the configuration is valid\n", "")


def _run(*flags: str, path: Path, how: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words, env = [COMMAND, *flags], {}
    if how == "flag":
        words += ["--web.config.file", str(path)]
    elif how == "environment":
        env["VLLM_SPECDEC_EXPORTER_WEB_CONFIG_FILE"] = str(path)
    else:
        (folder / "config.yml").write_text(f"web: {{config: {{file: {path}}}}}\n")
        words += ["--config.file", str(folder / "config.yml")]
    return subprocess.run(
        words, env=clean_environment(**(env or {})), capture_output=True, text=True, timeout=30
    )
