"""`dashboards`: list the Grafana dashboards, or write them to files."""

import argparse
import json
import re
import sys
from pathlib import Path

from ...config.options import ConfigError
from ...publish.wording import wrap
from ..arguments import add_flag
from . import files

_PROGRAM = "vllm-specdec-exporter dashboards"

# Exit codes.
SUCCESS = 0
USAGE = 2

#: A Kubernetes namespace: an RFC 1123 label.
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")
_DATASOURCE = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `dashboards` to `parser`."""
    parser.epilog = (
        f"Without --out, the dashboards are listed. Exit codes: {SUCCESS} success; "
        f"{USAGE} bad usage, or a "
        "file cannot be written."
    )
    group = parser.add_argument_group("what is in them")
    add_flag(
        group, "--datasource UID", "Initial data source. Default: Grafana's default."
    )
    runbooks = (
        "Address of your runbooks, for the links of alerts. Default: the rule in "
        "Grafana."
    )
    add_flag(group, "--runbooks URL", runbooks)
    group = parser.add_argument_group("as files")
    add_flag(group, "--out DIR", "Write JSON files to a folder.", parse=Path)
    provider = (
        "Also write a dashboard provider, for Grafana's folder provisioning/dashboards."
    )
    add_flag(group, "--provisioning FILE", provider, parse=Path)
    add_flag(
        group,
        "--path PATH",
        "Path of the --out folder for Grafana, for --provisioning.",
    )
    maps = (
        "Write ConfigMaps instead of JSON files, for the sidecar of Grafana's Helm "
        "chart."
    )
    add_flag(group, "--configmaps NAMESPACE", maps)
    add_flag(group, "--force", "Overwrite other files.")


def run(args: argparse.Namespace) -> int:
    """List or write the dashboards, and return the exit code."""
    _check(args)
    dashboards = files.load()
    if args.datasource:
        dashboards = tuple(
            files.with_datasource(one, args.datasource) for one in dashboards
        )
    if args.runbooks:
        dashboards = tuple(
            files.with_runbooks(one, args.runbooks) for one in dashboards
        )
    if args.out is not None:
        return _write(dashboards, args)
    _list(dashboards)
    return SUCCESS


def _check(args: argparse.Namespace) -> None:
    needs = (
        ("--provisioning", args.provisioning, "--out", args.out),
        ("--path", args.path, "--provisioning", args.provisioning),
        ("--configmaps", args.configmaps, "--out", args.out),
        ("--force", args.force or None, "--out", args.out),
        ("--datasource", args.datasource, "--out", args.out),
        ("--runbooks", args.runbooks, "--out", args.out),
    )
    for flag, given, needed, there in needs:
        if given is not None and there is None:
            raise ConfigError(f"{flag}: needs {needed}")
    if args.configmaps is not None and args.provisioning is not None:
        raise ConfigError("--configmaps and --provisioning exclude each other")
    for flag, text, form, allowed in (
        (
            "--configmaps",
            args.configmaps,
            _NAMESPACE,
            "a namespace of Kubernetes: a-z, 0-9 and -",
        ),
        (
            "--datasource",
            args.datasource,
            _DATASOURCE,
            "the uid of a data source, which is in its address",
        ),
        (
            "--runbooks",
            args.runbooks,
            _ADDRESS,
            "an address that begins with http:// or https://",
        ),
    ):
        if text is not None and not form.fullmatch(text):
            raise ConfigError(
                f"{flag} {json.dumps(text, ensure_ascii=False)}: allowed: {allowed}"
            )


def _list(dashboards: tuple[files.Dashboard, ...]) -> None:
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


def _write(dashboards: tuple[files.Dashboard, ...], args: argparse.Namespace) -> int:
    out: Path = args.out
    seen_at = (args.path or str(out.absolute())).rstrip("/") or "/"
    if args.configmaps is not None:
        wanted = files.config_maps(dashboards, out, args.configmaps)
    else:
        wanted = [
            files.OutputFile(out / one.file, one.body, one.uid) for one in dashboards
        ]
    if args.provisioning is not None:
        wanted.append(files.provider_file(args.provisioning, seen_at))
    for written, result in files.write(wanted, force=args.force):
        print(f"{result:<9}  {written.path}")
    if args.configmaps is not None:
        words = (
            f"next: kubectl apply --server-side -f {out} (the folder must contain only "
            "ConfigMaps)"
        )
        print(words, file=sys.stderr)
    elif args.provisioning is not None:
        print(
            "next: restart Grafana, which reads providers only at its start",
            file=sys.stderr,
        )
    return SUCCESS
