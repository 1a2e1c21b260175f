"""`dashboards`: list the Grafana dashboards, write them to files, or save them in a Grafana."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...config.options import ConfigError, Option, add_flags, gather
from ...config.values import boolean, duration, file, mask_url, whole_number
from ...publish.wording import printable, wrap
from ..arguments import add_flag, parsed
from . import files
from .client import Connection, Grafana, GrafanaError, parse_url, read_token
from .push import FolderError, PushOptions, PushProgress, push

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_PROGRAM = "vllm-specdec-exporter dashboards"

# Exit codes.
SUCCESS, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 4

#: A Kubernetes namespace: an RFC 1123 label.
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")
_DATASOURCE = re.compile(r"[A-Za-z0-9_.-]{1,40}")


#: How to reach a Grafana.
OPTIONS = (
    Option(
        "grafana.token-file",
        file,
        None,
        "File with the token of a service account that has the role Editor (--home: Admin).",
        "FILE",
    ),
    Option("grafana.ca-file", file, None, "Certificates to trust for https, PEM.", "FILE"),
    Option(
        "grafana.insecure-skip-verify",
        boolean,
        "false",
        "Accept any certificate of Grafana (true or false).",
        "BOOL",
    ),
    Option("grafana.org-id", whole_number(1), None, "Organization. Default: the token's.", "ID"),
    Option("grafana.timeout", duration(0.1), "30s", "Time that one request may take.", "DURATION"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `dashboards` to `parser`."""
    parser.epilog = (
        "Without --out and --push, the dashboards are listed. Exit codes: "
        f"{SUCCESS} success; {REFUSED} Grafana refused a dashboard or folder; {USAGE} bad usage, or a file "
        f"cannot be written; {UNREACHABLE} Grafana cannot be reached, or the token is invalid."
    )
    group = parser.add_argument_group("which dashboards")
    names = "Names, such as overview,requests."
    add_flag(group, "--select NAMES", names, action="append", default=[])
    add_flag(group, "--datasource UID", "Initial data source. Default: Grafana's default.")
    runbooks = "Address of your runbooks, for the links of alerts. Default: the rule in Grafana."
    add_flag(group, "--runbooks URL", runbooks)
    add_flag(group, "--from DIR", "Folder with your own dashboards.", parse=Path, dest="source")
    add_flag(group, "--folder NAME", "Folder in Grafana.", files.FOLDER)
    home = f"Make {files.HOME} the home of the organization; with --out, print how to do that."
    add_flag(group, "--home", home)
    group = parser.add_argument_group("as files")
    add_flag(group, "--out DIR", "Write JSON files to a folder.", parse=Path)
    provider = "Also write a dashboard provider, for Grafana's folder provisioning/dashboards."
    add_flag(group, "--provisioning FILE", provider, parse=Path)
    add_flag(group, "--path PATH", "Path of the --out folder for Grafana, for --provisioning.")
    maps = "Write ConfigMaps instead of JSON files, for the sidecar of Grafana's Helm chart."
    add_flag(group, "--configmaps NAMESPACE", maps)
    add_flag(group, "--force", "Overwrite other files.")
    group = parser.add_argument_group("into a Grafana")
    add_flag(group, "--push URL", "Save them in the Grafana at this address.")
    add_flag(group, "--dry-run", "Only print what --push would do.")
    add_flags(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """List, write or push the dashboards, and return the exit code."""
    _check(args)
    names = [name.strip() for text in args.select for name in text.split(",")]
    dashboards = files.select(files.load(args.source), names)
    if args.datasource:
        dashboards = tuple(files.with_datasource(one, args.datasource) for one in dashboards)
    if args.runbooks:
        dashboards = tuple(files.with_runbooks(one, args.runbooks) for one in dashboards)
    if args.home and not any(dashboard.uid == files.HOME for dashboard in dashboards):
        raise ConfigError(f"--home: {files.HOME} is not among the dashboards selected")
    if args.out is not None:
        return _write(dashboards, args)
    if args.push is not None:
        return _push(dashboards, args)
    _list(dashboards)
    return SUCCESS


def _check(args: argparse.Namespace) -> None:
    """Raise ConfigError for flags that contradict each other, and for invalid values."""
    needs = (
        ("--provisioning", args.provisioning, "--out", args.out),
        ("--path", args.path, "--provisioning", args.provisioning),
        ("--configmaps", args.configmaps, "--out", args.out),
        ("--force", args.force or None, "--out", args.out),
        ("--dry-run", args.dry_run or None, "--push", args.push),
        ("--home", args.home or None, "--push or --out", args.push or args.out),
        ("--datasource", args.datasource, "--push or --out", args.push or args.out),
        ("--runbooks", args.runbooks, "--push or --out", args.push or args.out),
    )
    for flag, given, needed, there in needs:
        if given is not None and there is None:
            raise ConfigError(f"{flag}: needs {needed}")
    if args.push is None and any(getattr(args, option.name, None) is not None for option in OPTIONS):
        raise ConfigError("--grafana.*: needs --push")
    for one, other in (("out", "push"), ("configmaps", "provisioning")):
        if getattr(args, one) is not None and getattr(args, other) is not None:
            raise ConfigError(f"--{one} and --{other} exclude each other")
    for flag, text, form, allowed in (
        ("--configmaps", args.configmaps, _NAMESPACE, "a namespace of Kubernetes: a-z, 0-9 and -"),
        ("--datasource", args.datasource, _DATASOURCE, "the uid of a data source, which is in its address"),
        ("--runbooks", args.runbooks, _ADDRESS, "an address that begins with http:// or https://"),
    ):
        if text is not None and not form.fullmatch(text):
            raise ConfigError(f"{flag} {json.dumps(text, ensure_ascii=False)}: allowed: {allowed}")
    if not args.folder.strip() or not args.folder.isprintable() or "/" in args.folder:
        allowed = "allowed: the title of a top-level folder, without a slash"
        raise ConfigError(f"--folder {json.dumps(args.folder)}: {allowed}")


def _list(dashboards: tuple[files.Dashboard, ...]) -> None:
    for dashboard in dashboards:
        print(f"{dashboard.uid}  {printable(dashboard.title)}")
        if dashboard.question:
            print("\n".join(wrap(printable(dashboard.question), "    ", 4)))
    print(
        f"\nto install them, one of\n"
        f"  {_PROGRAM} --push https://grafana.example.com --grafana.token-file FILE\n"
        f"  {_PROGRAM} --out DIR --provisioning FILE      files that Grafana reads\n"
        f"  {_PROGRAM} --out DIR --configmaps NAMESPACE   for the sidecar of Grafana's Helm chart\n"
        f"  {_PROGRAM} --out DIR                          then Dashboards, New, Import in Grafana"
    )


def _write(dashboards: tuple[files.Dashboard, ...], args: argparse.Namespace) -> int:
    out: Path = args.out
    seen_at = (args.path or str(out.absolute())).rstrip("/") or "/"
    if args.configmaps is not None:
        wanted = files.config_maps(dashboards, out, args.configmaps, args.folder)
    else:
        wanted = files.dashboard_files(dashboards, out)
    if args.provisioning is not None:
        wanted.append(files.provider_file(args.provisioning, seen_at, args.folder))
    for written, result in files.write(wanted, force=args.force):
        print(f"{result:<9}  {written.path}")
    if args.configmaps is not None:
        words = f"next: kubectl apply --server-side -f {out} (the folder must contain only ConfigMaps)"
        print(words, file=sys.stderr)
    elif args.provisioning is not None:
        print("next: restart Grafana, which reads providers only at its start", file=sys.stderr)
    if args.home:
        variable = "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
        print(f"for the home, start Grafana with {variable}={Path(seen_at) / files.HOME}.json")
    return SUCCESS


def _push(dashboards: tuple[files.Dashboard, ...], args: argparse.Namespace) -> int:
    connection = _connection(args.push, gather(OPTIONS, vars(args), os.environ, None)[0])
    options = PushOptions(connection.url, args.folder, args.home, args.dry_run)
    progress = PushProgress([dashboard.uid for dashboard in dashboards])
    local = urlsplit(connection.url).hostname in ("localhost", "127.0.0.1", "::1")
    if connection.token and connection.url.startswith("http:") and not local:
        print(f"{_PROGRAM}: warning: the token is sent unencrypted, over http", file=sys.stderr)
    try:
        grafana = Grafana(connection)
    except ValueError as error:
        raise ConfigError(str(error)) from error

    async def work() -> bool:
        async with grafana:
            return await push(grafana, dashboards, options, progress, _log)

    dry = "dry run, nothing was saved: " if options.dry_run else ""
    try:
        accepted = asyncio.run(work())
    except (GrafanaError, FolderError) as error:
        print(f"{_PROGRAM}: error: {connection.url}: {printable(str(error))}", file=sys.stderr)
        print(f"{_PROGRAM}: {dry}{progress.summary}", file=sys.stderr)
        return UNREACHABLE if isinstance(error, GrafanaError) else REFUSED
    except (KeyboardInterrupt, BrokenPipeError):
        print(f"{_PROGRAM}: interrupted\n{_PROGRAM}: {dry}{progress.summary}", file=sys.stderr)
        raise
    print(f"{dry}{progress.summary}", file=sys.stdout if accepted else sys.stderr)
    return SUCCESS if accepted else REFUSED


def _connection(url: str, values: Mapping[str, Any]) -> Connection:
    try:
        address = parse_url(url)
    except ValueError as error:
        raise ConfigError(f"--push {json.dumps(mask_url(url), ensure_ascii=False)}: {error}") from error
    token_file = values["grafana.token-file"]
    token = parsed("--grafana.token-file", token_file, read_token) if token_file else ""
    return Connection(
        url=address,
        token=token,
        ca_file=values["grafana.ca-file"] or "",
        insecure=values["grafana.insecure-skip-verify"],
        org_id=values["grafana.org-id"],
        timeout=values["grafana.timeout"],
    )


def _log(line: str) -> None:
    print(printable(line), flush=True)
