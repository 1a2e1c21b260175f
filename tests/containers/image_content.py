"""What the Dockerfile put into the image: the locked packages and the exporter,
compiled, small, and no more.

    python -m containers.image_content FOLDER

FOLDER is a copy of the virtual environment of the image.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

from docker.test_dockerfile import locked
from support.repository import text_of
from vllm_specdec_exporter import __version__

#: What the image may add to its base.
LARGEST = 30 * 2**20


def check_packages(venv: Path) -> None:
    """No pip, build backend or tests, but rules and dashboards."""
    expected = {name: version for name, (version, _) in locked("runtime").items()}
    (packages,) = venv.glob("lib/python3.*/site-packages")
    installed = {
        re.sub(r"[-_.]+", "-", distribution.name).lower(): distribution.version
        for distribution in importlib.metadata.distributions(path=[str(packages)])
    }
    assert installed == expected | {"vllm-specdec-exporter": __version__}, installed
    package = packages / "vllm_specdec_exporter"
    assert list((package / "rules").glob("*.yml"))
    assert list((package / "dashboards").glob("*.json"))
    assert not list(package.rglob("test_*.py"))
    assert not list(venv.glob("bin/pip*"))


def check_bytecode(venv: Path) -> None:
    """By hash, unchecked: whatever the time stamps, no start-up compiles anything."""
    sources = list(venv.glob("lib/python3.*/site-packages/**/*.py"))
    assert len(sources) > 300
    for source in sources:
        (code,) = (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")
        assert int.from_bytes(code.read_bytes()[4:8], "little") == 0b01, code


def check_size(venv: Path) -> None:
    """What docs/deployment.md says to a tenth: until an image is pulled, vLLM beside it
    does not start.
    """
    text = text_of("docs/deployment.md")
    (said,) = re.findall(r"\| ([\d.]+) MiB and \[Python's slim image", text)
    files = (
        path for path in venv.rglob("*") if path.is_file() and not path.is_symlink()
    )
    added = sum(path.stat().st_size for path in files)
    assert abs(added / 2**20 / float(said) - 1) < 0.1, added
    assert added < LARGEST
    print(
        f"          it adds {added / 2**20:.1f} MiB to its base; documented: {said} MiB"
    )


if __name__ == "__main__":
    for check in (check_packages, check_bytecode, check_size):
        check(Path(sys.argv[1]))
