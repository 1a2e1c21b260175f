"""The bill of materials: valid CycloneDX, locked packages with hashes and licences, the same each time."""

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

from docker.test_dockerfile import locked
from release.tree import ROOT, python, run, succeed
from support.scripts import script
from vllm_specdec_exporter import __version__

pytestmark = pytest.mark.full

sbom = script("release/sbom.py")

LOCK = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
OURS = f"pkg:pypi/vllm-specdec-exporter@{__version__}"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bill, as the script writes it."""
    path = tmp_path_factory.mktemp("bill") / "new" / "sbom.cdx.json"
    succeed(python("-W", "error", "release/sbom.py", path), ROOT)
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def bill(text: str) -> dict[str, Any]:
    """The bill, read."""
    document: dict[str, Any] = json.loads(text)
    return document


def test_it_is_valid(text: str, bill: dict[str, Any]) -> None:
    """By the schema of CycloneDX itself, in its strict form; and that schema does refuse."""
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(json.dumps({**bill, "serialNumber": "one"})) is not None


def test_it_is_the_same_each_time(text: str, tmp_path: Path) -> None:
    """In another process with another hash seed, later; nothing in it tells the time or a registry."""
    succeed(python("release/sbom.py", tmp_path / "again"), ROOT, PYTHONHASHSEED="7", TZ="Asia/Tokyo")
    assert (tmp_path / "again").read_text("utf-8") == text
    assert "timestamp" not in json.loads(text)["metadata"]
    # Packages come from wherever they are mirrored; the hashes tell what they are.
    assert "://" not in json.dumps(
        {key: value for key, value in json.loads(text).items() if key != "$schema"}
    )


def test_it_lists_what_is_locked(bill: dict[str, Any]) -> None:
    """Every package with its version, and all hashes that may be installed."""
    found = {
        one["name"]: (
            one["version"],
            {
                digest["content"]
                for reference in one["externalReferences"]
                for digest in reference["hashes"]
                if digest["alg"] == "SHA-256"
            },
        )
        for one in bill["components"]
    }
    assert found == {name: (version, set(hashes)) for name, (version, hashes) in locked("runtime").items()}


def test_every_package_has_a_licence(bill: dict[str, Any]) -> None:
    """One that SPDX knows; ours is that of the repository."""
    for one in (*bill["components"], bill["metadata"]["component"]):
        (licence,) = one["licenses"]
        assert licence.get("expression") or licence["license"]["id"], one["name"]
    assert bill["metadata"]["component"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_our_own_dependencies_are_named(bill: dict[str, Any]) -> None:
    """As our metadata has them."""
    names = {one["bom-ref"]: one["name"] for one in bill["components"]}
    (own,) = (one for one in bill["dependencies"] if one["ref"] == OURS)
    needed = map(Requirement, importlib.metadata.requires("vllm-specdec-exporter") or ())
    assert {names[ref] for ref in own["dependsOn"]} == {one.name for one in needed if one.marker is None}


def test_a_lock_file_with_holes_is_an_error() -> None:
    """No bill is better than one with a hole: a package that nobody needs, or without hashes, or no lock."""
    for spoilt in (
        LOCK.replace("    # via vllm-specdec-exporter (pyproject.toml)\n", "", 1),
        re.sub(r"^(idna==.*?)(?: \\\n    --hash=\S+)+", r"\1", LOCK, flags=re.MULTILINE),
        "",
    ):
        assert spoilt != LOCK
        with pytest.raises(sbom.SbomError, match=r"runtime\.txt: no hashes"):
            sbom.locked(spoilt)


def test_another_version_than_the_locked_one_is_an_error(tree: Path, tmp_path: Path) -> None:
    """Its licence may be another; nothing is written."""
    lock = tree / "requirements" / "runtime.txt"
    lock.write_text(re.sub(r"^(idna==)\S+", r"\g<1>0.0.1", LOCK, flags=re.MULTILINE), encoding="utf-8")
    done = run(python("release/sbom.py", tmp_path / "bill"), tree)
    assert done.returncode == 1
    assert done.stderr == "error: idna 0.0.1 is not installed, so its licence is not known\n"
    assert not (tmp_path / "bill").exists()


@pytest.mark.parametrize("said", ["Apache 2.0", "Apache-2.0.0"], ids=["no-expression", "no-identifier"])
def test_a_licence_that_nobody_knows_is_an_error(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has to be looked up by somebody, and written down."""
    (version,) = re.findall(r"^aiosignal==(\S+)", LOCK, re.MULTILINE)
    monkeypatch.setattr(sbom, "_SPDX", {"Apache 2.0": said})
    with pytest.raises(sbom.SbomError, match="which SPDX does not know"):
        sbom.licence("aiosignal", version)
