"""Wheel and sdist: the same bytes everywhere, complete, with nothing else inside, and
installable.
"""

import hashlib
import os
import re
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from packaging.metadata import Metadata

from release.tree import build, python, run, succeed, unpack
from support.repository import ROOT, text_of
from vllm_specdec_exporter import __version__

pytestmark = pytest.mark.full

PACKAGE = "vllm_specdec_exporter"
DIST_INFO = f"{PACKAGE}-{__version__}.dist-info"
#: What work leaves behind in a tree.
STRAY = (
    "node_modules/one/index.js",
    "tests/helm/node_modules/two/index.js",
    ".hypothesis/examples/one",
    "tests/dashboards/render/build/bundle.js",
    "dist/old.whl",
    "build/lib/old.py",
    ".venv/lib/one.py",
    ".venv-vllm/lib/two.py",
    "tests/.pytest_cache/one",
    "exporter/.mypy_cache/one",
    "docs/.ruff_cache/one",
    f"exporter/{PACKAGE}/__pycache__/cli.cpython-311.pyc",
    f"exporter/{PACKAGE}.egg-info/PKG-INFO",
)
#: The kinds of files that the package reads.
SUFFIXES = {
    ".css",
    ".html",
    ".js",
    ".json",
    ".py",
    ".toml",
    ".txt",
    ".typed",
    ".yaml",
    ".yml",
}


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files in a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
    }


@pytest.fixture(scope="module")
def wheel(built: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel, opened."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Metadata:
    """The wheel's metadata, which has to be valid."""
    return Metadata.from_email(wheel.read(f"{DIST_INFO}/METADATA"), validate=True)


# --- the same bytes


def test_an_unpacked_sdist_gives_the_same_sdist_and_wheel(
    built: Path, tmp_path: Path
) -> None:
    """In another folder, by a user with another umask, zone and hash seed, with files
    of another time.
    """
    (sdist,) = built.glob("*.tar.gz")
    root = unpack(sdist, tmp_path / "elsewhere")
    for path in root.rglob("*"):
        mode = 0o600
        if path.is_dir() or os.access(path, os.X_OK):
            mode = 0o700
        path.chmod(mode)
        os.utime(path, (1e9, 1e9))
    for name in STRAY:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("stray")
    umask = os.umask(0o077)
    try:
        build(root, tmp_path / "again", TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    finally:
        os.umask(umask)
    assert digests(tmp_path / "again") == digests(built)


def test_dist_refuses_what_two_builds_disagree_on(tree: Path) -> None:
    """Here a file that an sdist does not carry on."""
    file = "/exporter/vllm_specdec_exporter/py.typed"
    heading = "[tool.hatch.build.targets.wheel]\n"
    with (tree / ".gitignore").open("a") as ignored:
        ignored.write(f"{file}\n")
    project = tree / "pyproject.toml"
    text = project.read_text("utf-8")
    assert heading in text
    project.write_text(
        text.replace(heading, f'{heading}artifacts = ["{file}"]\n'), encoding="utf-8"
    )
    done = run(["release/dist.sh", python()[0]], tree)
    assert done.returncode != 0
    assert "whl" in done.stdout + done.stderr
    assert not (tree / "dist/SHA256SUMS").exists()


# --- what is inside


def listed(name: str, folder: Path) -> set[str]:
    """Return the files of a folder of the repository, as the package has them."""
    return {f"{PACKAGE}/{name}/{path.name}" for path in folder.iterdir()}


def test_the_wheel_holds_the_package_rules_and_dashboards(
    wheel: zipfile.ZipFile,
) -> None:
    """All of them, and nothing that is not read at run time."""
    inside = {name for name in wheel.namelist() if not name.startswith(f"{DIST_INFO}/")}
    source = ROOT / "exporter"
    package = {
        path.relative_to(source).as_posix()
        for path in (source / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    rules = listed("rules", ROOT / "alerts/rules")
    dashboards = listed("dashboards", ROOT / "dashboards/json")
    assert rules
    assert dashboards
    assert inside == package | rules | dashboards
    assert {PurePosixPath(name).suffix for name in inside} <= SUFFIXES
    assert f"{PACKAGE}/py.typed" in inside


def test_the_page_at_the_index_is_the_readme_with_whole_links(
    metadata: Metadata,
) -> None:
    """No file is beside it there: each leads to the release's tag, pictures to their
    bytes.
    """
    tree = f"{metadata.project_urls['Repository']}/{{}}/v{__version__}/"
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)#][^)]*)\)", metadata.description)
    assert len(links) > 20
    for picture, link in links:
        kind = "blob"
        if picture:
            kind = "raw"
        assert link.startswith(tree.format(kind)), link
    text = metadata.description
    for kind in ("raw", "blob"):
        text = text.replace(f"]({tree.format(kind)}", "](")
    assert text == text_of("README.md")


# --- installed


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a fresh environment with the wheel, installed by its
    hash.

    What it needs is that of the tests' environment, whose own path file to the package
    is not read from here.
    """
    folder = tmp_path_factory.mktemp("installed")
    (path,) = built.glob("*.whl")
    lock = folder / "lock.txt"
    lock.write_text(f"{path.as_uri()} --hash=sha256:{digests(built)[path.name]}\n")
    succeed(python("-m", "venv", "--without-pip", folder / "venv"), folder)
    interpreter = folder / "venv/bin/python"
    (site,) = (folder / "venv").glob("lib/python3.*/site-packages")
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = (
        f"-m pip --python {interpreter} install --no-index --no-deps "
        f"--require-hashes --no-compile -r {lock}"
    )
    succeed(python(*install.split()), folder)
    return folder / "venv/bin"


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    """The wheel's, not that of the tree; with the dashboards that it brings."""
    program = installed / "vllm-specdec-exporter"
    said = succeed([program, "--version"], tmp_path, PYTHONPATH="")
    assert said == f"vllm-specdec-exporter {__version__}\n"
    code = "import vllm_specdec_exporter as package; print(package.__file__)"
    where = succeed([installed / "python", "-c", code], tmp_path, PYTHONPATH="").strip()
    assert Path(where).is_relative_to(installed.parent)
    succeed([program, "dashboards", "--out", tmp_path / "out"], tmp_path, PYTHONPATH="")
    written = listed("dashboards", tmp_path / "out")
    assert written == listed("dashboards", ROOT / "dashboards/json")
