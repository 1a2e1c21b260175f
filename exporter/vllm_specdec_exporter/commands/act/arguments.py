"""The flags of `act`, and their validation at startup."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.bearer_token import TokenError, read_token
from ...config.options import ConfigError
from ...config.values import format_duration, parse_listen_address
from ..arguments import add_flag, check_writable, parsed, seconds_of, whole_between
from .decision import argument_problem
from .history import FORGET_AFTER, Limits, State, StateError, load_state
from .process import Kubernetes, Script, Workload
from .runner import RunnerSettings

if TYPE_CHECKING:
    import argparse

_KINDS = ("deployment", "statefulset")
#: Names of Kubernetes objects: RFC 1123 subdomains; of namespaces: RFC 1123 labels.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a listen address; an empty one is for all."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ActConfig:
    """The validated configuration."""

    settings: RunnerSettings
    state: State
    listen: tuple[str, int]
    token_file: Path | None  # the bearer token of clients; ``None`` to accept every client
    log_file: Path | None  # the file for events; ``None`` for standard output


def add_flags_of_act(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `act` to `parser`."""
    group = parser.add_argument_group("what to do")
    execute = "Really do it, with --script or --kubernetes.workload. Default: dry-run, which only tells."
    add_flag(group, "--execute", execute)
    add_flag(
        group,
        "--script PATH",
        "Program to run, without a shell: PATH ACTION MODEL_NAME RECOMMENDED_K NAMESPACE CLUSTER, with the "
        "alert as JSON on standard input.",
    )
    took = "Time that the program (or kubectl) may take before it is killed."
    add_flag(group, "--script.timeout DURATION", took, "60s")
    add_flag(
        group,
        "--kubernetes.workload MODEL=[CLUSTER/]NAMESPACE/KIND/NAME",
        "Workload that serves a model, to annotate with kubectl; KIND is deployment or statefulset, CLUSTER "
        "the label of its alerts if they have one; repeatable.",
        parse=_workload,
        action="append",
        default=[],
    )
    context = "Context of the kubeconfig. Default: its current one."
    add_flag(group, "--kubernetes.context NAME", context, parse=_context)
    restart = "Annotate the pod template instead, which replaces all pods (a rollout)."
    add_flag(group, "--kubernetes.restart", restart)

    group = parser.add_argument_group("how often, and what is remembered")
    per_model = format_duration(Limits().per_model)
    add_flag(group, "--limit.per-model DURATION", "Least time between two actions on one model.", per_model)
    most = "Most actions in an hour, over all models."
    add_flag(group, "--limit.per-hour N", most, f"{Limits().per_hour}", whole_between(1, 1000))
    state = "File that remembers across restarts what was done. Default: none."
    add_flag(group, "--state.file FILE", state, parse=Path)
    log = "File that gets the events, one JSON line each. Default: standard output."
    add_flag(group, "--log.file FILE", log, parse=Path)

    group = parser.add_argument_group("who may send alerts")
    add_flag(group, "--web.listen-address ADDRESS", "Address to listen on.", "127.0.0.1:9851")
    bearer = "File with the bearer token that Alertmanager sends; read anew when it changes."
    add_flag(group, "--web.token-file FILE", bearer, parse=Path)
    insecure = "Take alerts from anybody who can reach an address other than loopback."
    add_flag(group, "--web.insecure", insecure)


def read_config(args: argparse.Namespace) -> ActConfig:
    """Return the configuration; ConfigError if a flag is not valid, or a file cannot be used."""
    executor = _executor(args)
    timeout = seconds_of("--script.timeout", args.script_timeout, 0.1, 3600.0)
    per_model = seconds_of("--limit.per-model", args.limit_per_model, 0.0, FORGET_AFTER)
    limits = Limits(per_model, args.limit_per_hour)
    settings = RunnerSettings(args.execute, executor, timeout, limits, args.state_file)
    if settings.execute and settings.executor is None:
        raise ConfigError("--execute: needs --script or --kubernetes.workload to say what is done")
    state = _state(args.state_file)
    _check_log(args.log_file)
    _check_token(args.web_token_file)
    return ActConfig(settings, state, _listen(args), args.web_token_file, args.log_file)


def _executor(args: argparse.Namespace) -> Script | Kubernetes | None:
    workloads, context, restart = args.kubernetes_workload, args.kubernetes_context, args.kubernetes_restart
    if args.script is not None and workloads:
        raise ConfigError("--script and --kubernetes.workload: give one of them")
    if not workloads and (context or restart):
        flag = "--kubernetes.context" if context else "--kubernetes.restart"
        raise ConfigError(f"{flag}: needs --kubernetes.workload")
    if args.script is not None:
        return Script(_program(args.script))
    if workloads:
        if args.execute and shutil.which("kubectl") is None:
            raise ConfigError("--kubernetes.workload: there is no kubectl on PATH")
        by_model = dict(workloads)
        if len(by_model) < len(workloads):
            raise ConfigError("--kubernetes.workload: a model is given twice; each has one workload")
        return Kubernetes(by_model, context or "", restart)
    return None


def _program(text: str) -> str:
    path = Path(text).absolute()  # PATH is not searched
    if not path.is_file():
        raise ConfigError(f"--script {json.dumps(text)}: is no file")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"--script {json.dumps(text)}: is not executable")
    return str(path)


def _state(path: Path | None) -> State:
    if path is None:
        return State()
    try:
        state = load_state(path)
    except StateError as error:
        where = f"--state.file {json.dumps(str(path))}: {error}"
        raise ConfigError(
            f"{where}; remove the file to begin anew, and what was done is forgotten"
        ) from error
    check_writable("--state.file", path)
    return state


def _check_log(path: Path | None) -> None:
    try:
        if path is not None:
            path.open("a").close()
    except OSError as error:
        where = f"--log.file {json.dumps(str(path))}"
        raise ConfigError(f"{where}: cannot be written: {error.strerror}") from error


def _check_token(path: Path | None) -> None:
    try:
        if path is not None:
            read_token(path)
    except TokenError as error:
        raise ConfigError(f"--web.token-file {json.dumps(str(path))}: {error}") from error


def _listen(args: argparse.Namespace) -> tuple[str, int]:
    flag, text = "--web.listen-address", args.web_listen_address
    host, port = parsed(flag, text, parse_listen_address)
    secured = args.web_token_file is not None
    if secured and args.web_insecure:
        raise ConfigError("--web.insecure and --web.token-file: give one of them")
    if not (secured or args.web_insecure or is_loopback(host)):
        raise ConfigError(
            f"{flag} {json.dumps(text)}: others can reach it: give --web.token-file, or a loopback address, "
            "or --web.insecure"
        )
    return host, port


def _workload(text: str) -> tuple[str, Workload]:
    model, _, place = text.rpartition("=")
    *cluster, namespace, kind, name = ["", "", *place.rsplit("/", 3)][-4:]
    if not (model and namespace):
        raise ValueError("allowed: MODEL=[CLUSTER/]NAMESPACE/KIND/NAME")
    if kind not in _KINDS:
        raise ValueError(f"KIND is {' or '.join(_KINDS)}")
    if not (_LABEL.fullmatch(namespace) and _NAME.fullmatch(name)):
        raise ValueError("NAMESPACE and NAME are Kubernetes names: a-z, 0-9, - and, in NAME, dots")
    return model, Workload(namespace, kind, name, *cluster)


def _context(text: str) -> str:
    problem = argument_problem(text) or ("" if text else "is empty")
    if problem:
        raise ValueError(f"{problem}; allowed: the name of a context of the kubeconfig")
    return text
