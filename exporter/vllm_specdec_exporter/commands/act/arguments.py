"""The flags of `act`, and their validation at startup."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...config import files
from ...config.options import ConfigError
from ...config.values import format_duration, parse_listen_address
from ..arguments import converter, parsed, seconds_of, whole_between
from .decision import argument_problem
from .history import FORGET_AFTER, Limits, State, StateError, load_state
from .process import Kubernetes, Script, Workload
from .runner import RunnerSettings
from .server import TokenError, is_loopback, read_token

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_KINDS = ("deployment", "statefulset")
#: Names of Kubernetes objects: RFC 1123 subdomains; of namespaces: RFC 1123 labels.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class ActConfig:
    """The validated configuration.

    Attributes:
        settings: of the runner.
        state: the content of the state file.
        listen: host and port.
        token_file: the bearer token of clients; ``None`` to accept every client.
        log_file: the file for events; ``None`` for standard output.
    """

    settings: RunnerSettings
    state: State
    listen: tuple[str, int]
    token_file: Path | None
    log_file: Path | None


def add_flags_of_act(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `act` to `parser`."""
    group = parser.add_argument_group("what to do")
    group.add_argument(
        "--execute",
        action="store_true",
        help="Really do it, with --script or --kubernetes.workload. Default: dry-run, which only tells.",
    )
    group.add_argument(
        "--script",
        dest="script",
        metavar="PATH",
        help="Program to run, without a shell: PATH ACTION MODEL_NAME RECOMMENDED_K NAMESPACE CLUSTER, with "
        "the alert as JSON on standard input.",
    )
    group.add_argument(
        "--script.timeout",
        dest="script_timeout",
        default="60s",
        metavar="DURATION",
        help="Time that the program (or kubectl) may take before it is killed. Default: 60s.",
    )
    group.add_argument(
        "--kubernetes.workload",
        dest="workloads",
        type=converter(_workload),
        action="append",
        default=[],
        metavar="MODEL=[CLUSTER/]NAMESPACE/KIND/NAME",
        help="Workload that serves a model, to annotate with kubectl; KIND is deployment or statefulset, "
        "CLUSTER the label of its alerts if they have one; repeatable.",
    )
    group.add_argument(
        "--kubernetes.context",
        dest="context",
        type=converter(_context),
        metavar="NAME",
        help="Context of the kubeconfig. Default: its current one.",
    )
    group.add_argument(
        "--kubernetes.restart",
        dest="restart",
        action="store_true",
        help="Annotate the pod template instead, which replaces all pods (a rollout).",
    )
    _add_limits(parser)
    _add_web(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how often, and what is remembered")
    group.add_argument(
        "--limit.per-model",
        dest="per_model",
        default=format_duration(Limits().per_model),
        metavar="DURATION",
        help="Least time between two actions on one model. Default: 1h.",
    )
    group.add_argument(
        "--limit.per-hour",
        dest="per_hour",
        type=converter(whole_between(1, 1000)),
        default=Limits().per_hour,
        metavar="N",
        help="Most actions in an hour, over all models. Default: 4.",
    )
    group.add_argument(
        "--state.file",
        dest="state_file",
        type=Path,
        metavar="FILE",
        help="File that remembers across restarts what was done. Default: none.",
    )
    group.add_argument(
        "--log.file",
        dest="log_file",
        type=Path,
        metavar="FILE",
        help="File that gets the events, one JSON line each. Default: standard output.",
    )


def _add_web(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("who may send alerts")
    group.add_argument(
        "--web.listen-address",
        dest="listen_address",
        default="127.0.0.1:9851",
        metavar="ADDRESS",
        help="Address to listen on. Default: 127.0.0.1:9851.",
    )
    group.add_argument(
        "--web.token-file",
        dest="token_file",
        type=Path,
        metavar="FILE",
        help="File with the bearer token that Alertmanager sends; read anew when it changes.",
    )
    group.add_argument(
        "--web.insecure",
        dest="insecure",
        action="store_true",
        help="Take alerts from anybody who can reach an address other than loopback.",
    )


def read_config(args: argparse.Namespace) -> ActConfig:
    """Return the configuration.

    Raises:
        ConfigError: a flag is not valid, or a file cannot be used.
    """
    settings = RunnerSettings(
        execute=args.execute,
        executor=_executor(args),
        timeout=seconds_of("--script.timeout", args.script_timeout, 0.1, 3600.0),
        limits=Limits(seconds_of("--limit.per-model", args.per_model, 0.0, FORGET_AFTER), args.per_hour),
        state_file=args.state_file,
    )
    if settings.execute and settings.executor is None:
        raise ConfigError("--execute: needs --script or --kubernetes.workload to say what is done")
    state = _state(args.state_file)
    _check_log(args.log_file)
    _check_token(args.token_file)
    return ActConfig(settings, state, _listen(args), args.token_file, args.log_file)


def _executor(args: argparse.Namespace) -> Script | Kubernetes | None:
    if args.script is not None and args.workloads:
        raise ConfigError("--script and --kubernetes.workload: give one of them")
    if not args.workloads and (args.context or args.restart):
        flag = "--kubernetes.context" if args.context else "--kubernetes.restart"
        raise ConfigError(f"{flag}: needs --kubernetes.workload")
    if args.script is not None:
        return Script(_program(args.script))
    if args.workloads:
        if args.execute and shutil.which("kubectl") is None:
            raise ConfigError("--kubernetes.workload: there is no kubectl on PATH")
        return Kubernetes(_by_model(args.workloads), args.context or "", args.restart)
    return None


def _program(text: str) -> str:
    path = Path(text).absolute()  # PATH is not searched
    if not path.is_file():
        raise ConfigError(f"--script {json.dumps(text)}: is no file")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"--script {json.dumps(text)}: is not executable")
    return str(path)


def _by_model(pairs: Sequence[tuple[str, Workload]]) -> dict[str, Workload]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ConfigError("--kubernetes.workload: a model is given twice; each has one workload")
    return found


def _state(path: Path | None) -> State:
    if path is None:
        return State()
    flag = f"--state.file {json.dumps(str(path))}"
    try:
        state = load_state(path)
        files.try_to_write(path)
    except StateError as error:
        raise ConfigError(
            f"{flag}: {error}; remove the file to begin anew, and what was done is forgotten"
        ) from error
    except OSError as error:
        raise ConfigError(f"{flag}: cannot be written: {error.strerror}") from error
    return state


def _check_log(path: Path | None) -> None:
    if path is None:
        return
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--log.file {json.dumps(str(path))}: cannot be written: {error.strerror}"
        ) from error


def _check_token(path: Path | None) -> None:
    try:
        if path is not None:
            read_token(path)
    except TokenError as error:
        raise ConfigError(f"--web.token-file {json.dumps(str(path))}: {error}") from error


def _listen(args: argparse.Namespace) -> tuple[str, int]:
    flag, text = "--web.listen-address", args.listen_address
    host, port = parsed(flag, text, parse_listen_address)
    secured = args.token_file is not None
    if secured and args.insecure:
        raise ConfigError("--web.insecure and --web.token-file: give one of them")
    if not (secured or args.insecure or is_loopback(host)):
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
