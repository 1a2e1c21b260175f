"""The page that draws dashboards is built from pinned packages, and only when it has to be."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from dashboards.render import bundle as bundles
from dashboards.render.bundle import bundle
from support.npm import NpmError

# In a fresh checkout packages are installed.
pytestmark = pytest.mark.timeout(600)


def test_the_bundle_is_built_once() -> None:
    """What is current is not built again."""
    bundle()
    before = (bundles.BUILD / "page.js").stat().st_mtime_ns
    bundle()
    assert (bundles.BUILD / "page.js").stat().st_mtime_ns == before


def test_the_types_of_the_page_are_right() -> None:
    """As TypeScript sees them, against those of Grafana's packages."""
    bundle()
    command = ("npm", "run", "--silent", "check")
    done = subprocess.run(command, cwd=bundles.HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_without_npm_the_bundle_says_what_to_install(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Debian packages by name."""
    (tmp_path / "src").mkdir()
    for name in ("package.json", "package-lock.json", ".npmrc"):
        (tmp_path / name).write_bytes((bundles.HERE / name).read_bytes())
    for name, place in (("HERE", tmp_path), ("BUILD", tmp_path / "build")):
        monkeypatch.setattr(bundles, name, place)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NpmError, match="nodejs and npm"):
        bundle()


def test_the_lock_file_pins_contents_and_names_no_host() -> None:
    """A hash for each package, and no address of any."""
    packages = json.loads((bundles.HERE / "package-lock.json").read_text("utf-8"))["packages"]
    assert len(packages) > 100
    installed = {name: one for name, one in packages.items() if name}
    assert [name for name, one in installed.items() if "integrity" not in one or "resolved" in one] == []
