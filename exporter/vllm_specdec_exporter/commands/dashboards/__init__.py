"""`dashboards`: list the Grafana dashboards, or write them to files."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...config.options import ConfigError
from ...publish.terminal import wrap
from ..arguments import add_flag
from ..exit_codes import FINE, USAGE
from . import files

_PROGRAM = "vllm-specdec-exporter dashboards"

#: By flag, the one that it needs.
_NEEDS = {
    "provisioning": "out",
    "path": "provisioning",
    "configmaps": "out",
    "force": "out",
    "datasource": "out",
    "runbooks": "out",
}


def _form(pattern: str, allowed: str) -> Callable[[str], str]:
    """Return a parser of texts that match a pattern, which `allowed` describes."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"allowed: {allowed}")
        return text

    return parse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `dashboards` to `parser`."""
    parser.epilog = (
        f"Without --out, the dashboards are listed. Exit codes: {FINE} success; "
        f"{USAGE} bad usage, or a file cannot be written."
    )
    add = partial(add_flag, parser.add_argument_group("what is in them"))
    add(
        "--datasource UID",
        "Initial data source. Default: Grafana's default.",
        parse=_form(
            r"[A-Za-z0-9_.-]{1,40}",
            "the uid of a data source, which is in its address",
        ),
    )
    add(
        "--runbooks URL",
        "Address of your runbooks, for the links of alerts. Default: the rule in "
        "Grafana.",
        parse=_form(
            r"https?://[^\s\"'<>]+",
            "an address that begins with http:// or https://",
        ),
    )
    add = partial(add_flag, parser.add_argument_group("as files"))
    add("--out DIR", "Write JSON files to a folder.", parse=Path)
    add(
        "--provisioning FILE",
        "Also write a dashboard provider, for Grafana's folder "
        "provisioning/dashboards.",
        parse=Path,
    )
    add(
        "--path PATH",
        "Path of the --out folder for Grafana, for --provisioning.",
    )
    add(
        "--configmaps NAMESPACE",
        "Write ConfigMaps instead of JSON files, for the sidecar of Grafana's Helm "
        "chart.",
        parse=_form(
            r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",  # an RFC 1123 label
            "a namespace of Kubernetes: a-z, 0-9 and -",
        ),
    )
    add("--force", "Overwrite other files.")


def run(args: argparse.Namespace) -> int:
    """List or write the dashboards, and return the exit code."""
    _check(args)
    dashboards = files.load()
    if args.datasource:
        dashboards = [files.with_datasource(d, args.datasource) for d in dashboards]
    if args.runbooks:
        dashboards = [files.with_runbooks(d, args.runbooks) for d in dashboards]
    if args.out is None:
        _list(dashboards)
    else:
        _write(dashboards, args)
    return FINE


def _check(args: argparse.Namespace) -> None:
    values = {name: value for name, value in vars(args).items() if value or value == ""}
    for name, needed in _NEEDS.items():
        if name in values and needed not in values:
            raise ConfigError(f"--{name}: needs --{needed}")
    if "configmaps" in values and "provisioning" in values:
        raise ConfigError("--configmaps and --provisioning exclude each other")


def _list(dashboards: Sequence[files.Dashboard]) -> None:
    for dashboard in dashboards:
        print(f"{dashboard.uid}  {dashboard.title}")
        print("\n".join(wrap(dashboard.question, "    ", 4)))
    print(
        f"\nto install them, one of\n"
        f"  {_PROGRAM} --out DIR --provisioning FILE      files that Grafana reads\n"
        f"  {_PROGRAM} --out DIR --configmaps NAMESPACE   for the sidecar of "
        "Grafana's Helm chart\n"
        f"  {_PROGRAM} --out DIR                          then Dashboards, New, "
        "Import in Grafana"
    )


def _write(dashboards: Sequence[files.Dashboard], args: argparse.Namespace) -> None:
    out: Path = args.out
    next_step = ""
    if args.configmaps is not None:
        wanted = files.config_maps(dashboards, out, args.configmaps)
        next_step = (
            f"next: kubectl apply --server-side -f {out} (the folder must contain only "
            "ConfigMaps)\n"
        )
    else:
        wanted = files.json_files(dashboards, out)
    if args.provisioning is not None:
        seen_at = (args.path or str(out.absolute())).rstrip("/") or "/"
        wanted.append(files.provider_file(args.provisioning, seen_at))
        next_step = "next: restart Grafana, which reads providers only at its start\n"
    for result, path in files.write(wanted, force=args.force):
        print(f"{result:<9}  {path}")
    # Not on standard output, which lists files for other programs.
    sys.stderr.write(next_step)
