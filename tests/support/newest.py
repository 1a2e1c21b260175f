"""Programs as Debian's newest suite has them: unpacked beside the tests' Python, and
not installed.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

#: Unpacked once for a virtual environment: the suite moves on, a run does not.
_FOLDER = Path(sys.prefix) / "newest-debian"
_SUITE = "sid"
#: A suite's index takes some seconds; a mirror that hangs is not waited for.
_SECONDS = 300


def newest_program(name: str, package: str) -> str | None:
    """Return the path of a program from the newest suite of this machine's Debian
    archive.

    None where that cannot be had: no Debian, no network, no such package.
    """
    folder = _FOLDER / package
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Tests run in several processes, which unpack one package once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            _unpack(package, folder)
            done.touch()
    program = folder / "root/usr/bin" / name
    if program.exists():
        return str(program)
    return None


def _unpack(package: str, folder: Path) -> None:
    """Download a package by a list of sources of its own, and unpack it."""
    try:
        archive = _archive()
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "newest.list").write_text(f"deb {archive} {_SUITE} main\n")
        options = {
            "Dir::Etc::sourcelist": folder / "newest.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "APT::Sandbox::User": "root",
        }
        arguments = [f"-o{name}={value}" for name, value in options.items()]
        _run(folder, "apt-get", *arguments, "update")
        _run(folder, "apt-get", *arguments, "download", package)
        (found,) = folder.glob("*.deb")
        _run(folder, "dpkg", "-x", found.name, "root")
    except (OSError, ValueError, subprocess.SubprocessError):
        return


def _archive() -> str:
    """Return the address of the archive that this machine installs from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    printed = subprocess.run(
        [*command, "Created-By: Packages", "Component: main"],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    addresses = [
        line
        for line in printed.stdout.splitlines()
        if line.rstrip("/").endswith("debian")
    ]
    if not addresses:
        msg = "apt has no Debian archive"
        raise ValueError(msg)
    return addresses[0]


def _run(folder: Path, *command: str) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        check=True,
        timeout=_SECONDS,
    )
