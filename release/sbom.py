"""Write the software bill of materials: the exporter and what it needs at run time, as
CycloneDX.

    python release/sbom.py FILE

Names, versions, hashes and what needs what come from requirements/runtime.txt, licences
from the metadata of the installed packages, which have to be the locked ones. The same
tree gives the same bytes.
"""

import argparse
import importlib.metadata
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.contrib.license.exceptions import FactoryException
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from vllm_specdec_exporter import __version__

LOCK = Path(__file__).parents[1] / "requirements" / "runtime.txt"
NAME = "vllm-specdec-exporter"

#: Names of licences that packages give instead of SPDX identifiers.
_SPDX = {"Apache 2.0": "Apache-2.0"}

#: Licences of packages whose metadata names none, as their licence files have them.
_LOOKED_UP = {"jinja2": "BSD-3-Clause"}
_LICENCE_FIELDS = ("License-Expression", "License")
_ENTRY = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+) \\\n(?P<rest>(?:^ .*\n)+)", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(
    r"^ +#(?: +via)? +([a-z0-9-]+)(?: \(pyproject\.toml\))?$", re.MULTILINE
)


class SbomError(RuntimeError):
    """The bill cannot be made; the message says what to do."""


@dataclass(frozen=True)
class Locked:
    """A package of the lock file.

    Attributes:
        version: as it is pinned.
        hashes: SHA-256 of each of its files, in hex.
        via: the packages that need it; `NAME` for what the exporter itself needs.
    """

    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]


def locked(text: str) -> dict[str, Locked]:
    """Return the packages of a lock file of pip-compile, by name.

    Raises:
        SbomError: an entry lacks hashes, or who needs it.
    """
    packages = {
        match["name"]: Locked(
            match["version"],
            tuple(sorted(_HASH.findall(match["rest"]))),
            tuple(_VIA.findall(match["rest"])),
        )
        for match in _ENTRY.finditer(text)
    }
    # Read in another way, so that an entry that the pattern misses is noticed.
    pinned = re.findall(r"^([^\s#=]+)==", text, re.MULTILINE)
    incomplete = [
        name
        for name in pinned
        if name not in packages or not packages[name].hashes or not packages[name].via
    ]
    if incomplete or not packages:
        msg = (
            f"{LOCK.name}: no hashes, or nothing that needs it: "
            f"{', '.join(incomplete) or 'no package'}"
        )
        raise SbomError(msg)
    return packages


def licence(name: str, version: str) -> License:
    """Return the licence of an installed package.

    Raises:
        SbomError: it is not installed in this version, or its licence is none that SPDX
            knows.
    """
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    # Another version may have another licence.
    if metadata is None or metadata["Version"] != version:
        msg = f"{name} {version} is not installed, so its licence is not known"
        raise SbomError(msg)
    # The newer field first: a package that has both keeps the older for old tools.
    stated = _LOOKED_UP.get(name, "")
    for field in reversed(_LICENCE_FIELDS):
        if field in metadata:
            stated = metadata[field]
    factory = LicenseFactory()
    spdx = _SPDX.get(stated, stated)
    try:
        if " " in spdx:
            return factory.make_with_expression(spdx)
        return factory.make_with_id(spdx)
    except FactoryException as error:
        msg = (
            f"{name} {version} gives as its licence {stated!r}, "
            "which SPDX does not know"
        )
        raise SbomError(msg) from error


def bill(packages: Mapping[str, Locked]) -> Bom:
    """Return the bill of materials of the exporter with these packages.

    Raises:
        SbomError: a licence is not known.
    """
    exporter = _component(
        NAME,
        __version__,
        ComponentType.APPLICATION,
        LicenseFactory().make_with_id("Apache-2.0"),
    )
    components = {NAME: exporter}
    for name, package in packages.items():
        component = _component(
            name, package.version, ComponentType.LIBRARY, licence(name, package.version)
        )
        # A package has a file for each platform. They are listed here and not as the
        # component's own hashes, which are of one thing.
        component.external_references.add(
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(str(component.purl)),
                comment="any one of these files, by platform",
                hashes=[
                    HashType(alg=HashAlgorithm.SHA_256, content=digest)
                    for digest in package.hashes
                ],
            )
        )
        components[name] = component
    made = Bom(
        components=[
            component for name, component in components.items() if name != NAME
        ],
        # From the content: the same for the same.
        serial_number=uuid.uuid5(
            uuid.NAMESPACE_URL, f"{NAME}@{__version__} {sorted(packages.items())}"
        ),
        metadata=BomMetaData(component=exporter),
    )
    # The library fills in the present time, and writes none for None.
    made.metadata.timestamp = None  # type: ignore[assignment]
    for name, component in components.items():
        made.register_dependency(
            component,
            [
                components[dependent]
                for dependent in packages
                if name in packages[dependent].via
            ],
        )
    return made


def _component(name: str, version: str, kind: ComponentType, of: License) -> Component:
    purl = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=kind,
        purl=purl,
        bom_ref=str(purl),
        licenses=[of],
    )


def document(made: Bom) -> str:
    """Return a bill as JSON."""
    text: str = make_outputter(
        made, OutputFormat.JSON, SchemaVersion.V1_6
    ).output_as_string(indent=2)
    return text + "\n"


def main() -> int:
    """Write the bill; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file", type=Path, help="what is written, such as dist/sbom.cdx.json"
    )
    args = parser.parse_args()
    try:
        text = document(bill(locked(LOCK.read_text("utf-8"))))
    except SbomError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    args.file.parent.mkdir(parents=True, exist_ok=True)
    args.file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
