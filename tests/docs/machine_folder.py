"""A folder that looks like a copy of the repository on a machine with the programs that
pages name.
"""

import os
import shlex
import sys
import sysconfig
from pathlib import Path

from docs.services import EXPORTER, Services
from helm.charts import helm3
from injection.kubectl_program import kubectl
from support.programs import COMMAND, clean_environment, find_program, write_script
from support.repository import ROOT
from vllm_specdec_exporter.commands.table import PROGRAM

#: Commands with an exit code beside 0 by which they report findings.
_FINDINGS = ("check 1", "check 3", "compare 1", "plan 1", "requests 1", "requests 3")
#: What of the repository commands name.
_SHOWN = (
    "alerts",
    "bench",
    "dashboards",
    "docs",
    "exporter",
    "helm",
    "release",
    "requirements",
    "tests",
    "Makefile",
    "pyproject.toml",
    "LICENSE",
    "README.md",
)
#: Where nothing listens: for addresses of others that a command only remembers.
NOWHERE = "127.0.0.1:1"
#: A cluster that is not there.
_KUBECONFIG = f"""
apiVersion: v1
kind: Config
current-context: none
contexts: [{{name: none, context: {{cluster: none, user: none}}}}]
clusters: [{{name: none, cluster: {{server: "https://{NOWHERE}"}}}}]
users: [{{name: none, user: {{token: none}}}}]
"""


def set_up(folder: Path, services: Services) -> dict[str, str]:
    """Fill a folder, and return the environment in which its commands run."""
    home = folder / "home"
    programs = folder / "bin"
    installed = folder / "installed"
    folder.mkdir(exist_ok=True)
    for name in _SHOWN:
        (folder / name).symlink_to(ROOT / name)
    amtool = f"alertmanager.url: {services.alertmanager}\nauthor: somebody\n"
    settings = {
        "home/.config/amtool/config.yml": amtool,
        "home/.config/prometheus/amtool.yml": amtool,  # where Debian's looks
        "home/kubeconfig": _KUBECONFIG,
        "installed/.installed": "",  # what `make` takes for its virtual environment
    }
    for name, text in {**services.files, **settings}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            (folder / name).chmod(0o755)
    for name in ("python", PROGRAM):
        _program(installed / "bin" / name, str(Path(sys.executable).with_name(name)))
    for name in ("python", "python3"):
        _program(programs / name, sys.executable)
    findings = "".join(f'"{finding}") exit 0;; ' for finding in _FINDINGS)
    ours = (
        f'{shlex.quote(COMMAND)} "$@"\ncode=$?\ncase "$1 $code" in {findings}esac\n'
        "exit $code"
    )
    write_script(programs / PROGRAM, ours)
    # Where docs/deployment.md installs it.
    write_script(folder / "root/opt/vllm-specdec-exporter/bin" / PROGRAM, ours)
    # An answer that is an error fails its command, and so does a filter that finds
    # nothing.
    _program(programs / "curl", find_program("curl", "curl"), "--fail-with-body")
    _program(programs / "jq", find_program("jq", "jq"), "-e")
    _program(programs / "kubectl", str(kubectl()))
    # This Helm is from 2021, and takes a cluster to be of then.
    write_script(
        programs / "helm",
        f'exec {shlex.quote(str(helm3()))} "$@" --kube-version 1.36.0',
    )
    return clean_environment(
        PATH=f"{programs}:{os.environ['PATH']}",
        HOME=str(home),
        KUBECONFIG=str(home / "kubeconfig"),
        MAKEFLAGS=f"VENV={installed} --no-print-directory",
        # A program that a block installs has its own package, and finds here what it
        # depends on.
        PYTHONPATH=sysconfig.get_paths()["purelib"],
        PIP_NO_DEPS="1",
        PIP_NO_INDEX="1",
        SPEC_CONFIG='{"method": "eagle3", "num_speculative_tokens": 3}',
        VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS=services.addresses[EXPORTER[0]],
    )


def _program(path: Path, program: str, *flags: str) -> None:
    write_script(path, f'exec {shlex.join((program, *flags))} "$@"')
