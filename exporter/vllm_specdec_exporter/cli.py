"""The command line: dispatch to the subcommands, their help, and errors in one line.

Each subcommand is a module with `add_arguments(parser)` and `run(args)`. Only the
called one is imported, which keeps the memory of `serve` low.
"""

import contextlib
import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from types import ModuleType

from . import __version__
from .commands.exit_codes import BROKEN_PIPE, CANNOT_WRITE, FINE, INTERRUPTED, USAGE
from .commands.table import COMMANDS, GROUPS, PROGRAM
from .config.spelling import nearest

_VERSION = f"{PROGRAM} {__version__}"

_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        if error.errno not in _WRITE_ERRORS or error.filename is not None:
            raise
        code = CANNOT_WRITE
        with contextlib.suppress(OSError):
            _fail(PROGRAM, f"the output cannot be written: {error.strerror}")
    # Without this, the flush at exit would raise the error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, TextIOWrapper):
        # a terminal without Unicode still gets its report
        sys.stdout.reconfigure(errors="replace")
    name = "serve"
    if arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
    elif arguments[:1] in (["-h"], ["--help"]):
        print(_overview(), end="")
        return FINE
    if name not in COMMANDS:
        return _fail(PROGRAM, f"unknown command {name!r}; {_hint(name)}")
    is_exporter = name == "serve" and argv is None
    if is_exporter:
        # PID 1 of a container has no default signal actions: SIGTERM during the imports
        # would be lost, and the pod would wait for its whole grace period. SIGHUP,
        # which reloads, would end other processes.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if arguments[:1] == ["--version"]:
        print(_VERSION)
        return FINE
    if is_exporter:
        with _no_certificates(), _no_collections():
            module = _module(name)
    else:
        module = _module(name)
    return _run_command(name, module, arguments)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f".{COMMANDS[name][0]}", __package__)


@contextlib.contextmanager
def _no_certificates() -> Iterator[None]:
    """Let no module read the system's certificates while it is imported.

    aiohttp's client, which comes with its server, reads them twice for contexts that
    `serve` never uses: a third of the processor time of a start, and 2 MiB. They stay
    empty, so this is for a process that is the exporter's own.
    """
    variable = "SSL_CERT_FILE"  # OpenSSL reads that file in place of its default
    given = os.environ.get(variable)
    os.environ[variable] = os.devnull
    try:
        yield
    finally:
        del os.environ[variable]
        if given is not None:
            os.environ[variable] = given


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Keep the garbage collector off what is imported, now and later.

    Modules stay for the life of the process. To look at their objects again and again
    takes an eighth of a start, and a part of every poll.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _run_command(name: str, module: ModuleType, arguments: list[str]) -> int:
    # here, so that --version and --help start fast
    from .config.options import ConfigError, Parser

    _, summary = COMMANDS[name]
    command = f"{PROGRAM} {name}"
    program = PROGRAM if name == "serve" else command
    parser = Parser(program, f"{name}: {summary}.", shown_by=command)
    module.add_arguments(parser)
    parser.add_argument("--version", action="version", version=_VERSION)
    try:
        try:
            args = parser.parse_args(arguments)
        except SystemExit as end:
            if name != "serve" or end.code != 2:
                raise
            code = module.stand_by(arguments)
            if code is None:
                raise
            return int(code)
        return int(module.run(args))
    except ConfigError as error:
        from .publish.terminal import printable  # here, so that `health` starts fast

        return _fail(program, printable(str(error)))
    except KeyboardInterrupt:
        return INTERRUPTED


def _fail(program: str, why: str) -> int:
    """Print an error, and return the exit code of bad usage."""
    print(f"{program}: error: {why}", file=sys.stderr)
    return USAGE


def _overview() -> str:
    """Return the help of the program: at most 24 lines of 80 columns."""
    groups = []
    for title, commands in GROUPS.items():
        groups.append(f"\n{title}:\n")
        for name, (_, summary) in commands.items():
            groups.append(f"  {name:<12}{summary}\n")
    return f"""\
usage: {PROGRAM} [COMMAND] [FLAG ...]
Is speculative decoding paying off right now, and if not, what should I change?
{"".join(groups)}\
Example: {PROGRAM} check http://127.0.0.1:8000
Flags: {PROGRAM} COMMAND --help. Tab key: completion bash or zsh.
"""


def _hint(name: str) -> str:
    if "://" in name:
        return f"a server is given with --vllm.url, or as {PROGRAM} check URL"
    near = nearest(name, COMMANDS)
    if near:
        return f"did you mean {near}?"
    return f"known: {', '.join(COMMANDS)}"
