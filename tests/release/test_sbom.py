"""The bill of materials: valid CycloneDX, locked packages with hashes and licences, the
same each time.
"""

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
from release.tree import python, succeed
from support.repository import ROOT, text_of
from support.scripts import script
from vllm_specdec_exporter import __version__

pytestmark = pytest.mark.full

sbom = script("release/sbom.py")

LOCK = text_of("requirements/runtime.txt")
OURS = f"pkg:pypi/vllm-specdec-exporter@{__version__}"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bill, as the script writes it."""
    path = tmp_path_factory.mktemp("bill") / "new/sbom.cdx.json"
    succeed(python("-W", "error", "release/sbom.py", path), ROOT)
    return path.read_text("utf-8")


@pytest.fixture
def bill(text: str) -> Any:
    """The bill, read."""
    return json.loads(text)


def test_it_is_valid_and_the_same_each_time(
    text: str, bill: Any, tmp_path: Path
) -> None:
    """By the strict schema of CycloneDX; in another process with another hash seed,
    later.
    """
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    succeed(
        python("release/sbom.py", tmp_path / "again"),
        ROOT,
        PYTHONHASHSEED="7",
        TZ="Asia/Tokyo",
    )
    assert (tmp_path / "again").read_text("utf-8") == text
    assert "timestamp" not in bill["metadata"]
    # Packages come from wherever they are mirrored; the hashes tell what they are.
    assert "://" not in json.dumps({**bill, "$schema": ""})


def test_it_lists_what_is_locked(bill: Any) -> None:
    """Every package with its version, and all hashes that may be installed."""
    components = {}
    for component in bill["components"]:
        hashes = set()
        for reference in component["externalReferences"]:
            hashes |= {
                digest["content"]
                for digest in reference["hashes"]
                if digest["alg"] == "SHA-256"
            }
        components[component["name"]] = (component["version"], hashes)
    assert components == locked("runtime")


def test_every_package_has_a_licence(bill: Any) -> None:
    """One that SPDX knows; ours is that of the repository."""
    for component in (*bill["components"], bill["metadata"]["component"]):
        (licence,) = component["licenses"]
        assert licence.get("expression") or licence["license"]["id"], component["name"]
    assert bill["metadata"]["component"]["licenses"] == [
        {"license": {"id": "Apache-2.0"}}
    ]


def test_our_own_dependencies_are_named(bill: Any) -> None:
    """As our metadata has them, in versions that it allows."""
    names = {
        component["bom-ref"]: component["name"] for component in bill["components"]
    }
    versions = {
        component["name"]: component["version"] for component in bill["components"]
    }
    (exporter,) = (
        dependency for dependency in bill["dependencies"] if dependency["ref"] == OURS
    )
    stated = map(
        Requirement, importlib.metadata.requires("vllm-specdec-exporter") or ()
    )
    needed = {
        requirement.name: requirement.specifier
        for requirement in stated
        if requirement.marker is None
    }
    assert {names[ref] for ref in exporter["dependsOn"]} == needed.keys()
    for name, allowed in needed.items():
        assert allowed.contains(versions[name]), name


@pytest.mark.parametrize(
    "spoilt",
    [
        LOCK.replace("    # via vllm-specdec-exporter (pyproject.toml)\n", "", 1),
        re.sub(r"(?m)^(idna==.*?)(?: \\\n    --hash=\S+)+", r"\1", LOCK),
        "",
    ],
    ids=["not needed", "no hashes", "empty"],
)
def test_a_lock_file_with_holes_is_an_error(spoilt: str) -> None:
    """No bill is better than one with a hole: a package that nobody needs, or without
    hashes, or no lock.
    """
    assert spoilt != LOCK
    with pytest.raises(sbom.SbomError, match=r"runtime\.txt: no hashes"):
        sbom.locked(spoilt)


def test_another_version_than_the_locked_one_is_an_error() -> None:
    """Its licence may be another."""
    with pytest.raises(
        sbom.SbomError,
        match=r"idna 0\.0\.1 is not installed, so its licence is not known",
    ):
        sbom.licence("idna", "0.0.1")


@pytest.mark.parametrize(
    "said", ["Apache 2.0", "Apache-2.0.0"], ids=["no-expression", "no-identifier"]
)
def test_a_licence_that_nobody_knows_is_an_error(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to be looked up by somebody, and written down."""
    (version,) = re.findall(r"(?m)^aiosignal==(\S+)", LOCK)
    monkeypatch.setattr(sbom, "_SPDX", {"Apache 2.0": said})
    with pytest.raises(sbom.SbomError, match="which SPDX does not know"):
        sbom.licence("aiosignal", version)
