"""A container without Docker: util-linux and the kernel's namespaces.

The root is read-only and holds nothing but the machine's programs and one virtual environment. The user is
65532, who has no entry in /etc/passwd, no home, no capabilities and no way to new privileges. The network is
the machine's, so that tests reach the port.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

USER = 65532

# $1: where to make the root. Up to "--": folders to show, read-only. Then the command.
_SCRIPT = """
set -eu
PATH=$PATH:/usr/sbin:/sbin  # pivot_root is there, which is not on the path of everybody
root=$1; shift
mount -t tmpfs -o size=1m,mode=755 tmpfs "$root"
for link in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$link" ]; then ln -s "$(readlink "/$link")" "$root/$link"
  elif [ -d "/$link" ]; then set -- "/$link" "$@"; fi
done
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --rbind "$1" "$root$1"
  mount -o remount,bind,ro "$root$1"
  shift
done
shift
mkdir -p "$root/proc" "$root/dev" "$root/tmp"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
cd "$root"
pivot_root . .
umount -l .
cd /
exec "$@"
"""


def _namespaces() -> tuple[list[str], list[str]]:
    """Return what makes a mount namespace, and what drops everything within; not root: with two users."""
    if os.geteuid() == 0:
        dropped = ("--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
        return ["unshare", "--mount"], ["setpriv", f"--reuid={USER}", f"--regid={USER}", *dropped]
    become = ["unshare", "--user", f"--map-user={USER}", f"--map-group={USER}", "setpriv", "--no-new-privs"]
    return ["unshare", "--user", "--map-root-user", "--mount"], become


def enclosed(
    command: Sequence[str], environment: Mapping[str, str], *, root: Path, shown: Sequence[Path]
) -> list[str]:
    """Return the command that runs another one, by its path, in the sandbox, made in an empty folder.

    It sees the `shown` folders, besides the machine's programs, and nothing but this environment.
    """
    prefix = Path(sys.base_prefix).resolve()
    folders = [Path("/usr"), Path("/etc"), *([] if prefix.is_relative_to("/usr") else [prefix]), *shown]
    variables = [f"{name}={value}" for name, value in environment.items()]
    unshare, become = _namespaces()
    return [
        *(*unshare, "sh", "-c", _SCRIPT, "sandbox", str(root)),
        *(*map(str, folders), "--"),
        *(*become, "env", "-i", *variables, *command),
    ]


@cache
def forbidden() -> str:
    """Return why the kernel has no such sandbox for this user; empty where it has."""
    with tempfile.TemporaryDirectory() as root:
        command = enclosed(["/usr/bin/true"], {}, root=Path(root), shown=[])
        done = subprocess.run(command, capture_output=True, text=True)
    return (done.stderr.strip() or f"code {done.returncode}") if done.returncode else ""
