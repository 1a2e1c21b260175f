"""The option table: every setting of `serve`, declared once.

Flags, environment, the YAML file, the help and `docs/reference/configuration.md` come from it. Other commands
take rows from it for settings that mean the same there.
"""

from __future__ import annotations

from ..config.options import Option
from ..config.values import (
    boolean,
    choice,
    duration,
    file,
    header,
    mask_header,
    mask_url,
    memory,
    parse_target,
    share,
    threshold,
    whole_number,
)
from ..economics.speculative_config import parse_speculation
from ..observe.state import DEFAULT_WINDOWS
from .request_options import REQUEST_OPTIONS
from .web_options import LISTEN_ADDRESS, MOST_REQUESTS, WEB_CONFIG_FILE

#: Looked at before the others, because it says what to do where they cannot be used.
STARTUP_ON_ERROR = Option(
    "startup.on-error",
    choice("exit", "wait"),
    "exit",
    "Where the exporter cannot start, because of a wrong setting or a port that is taken: exit, or, for a "
    "sidecar, wait: say so in log and metrics, stay healthy and try again. Not read from the file.",
    metavar="WHAT",
)

#: Every option of `serve`, in the order of the help and the documentation.
OPTIONS: tuple[Option, ...] = (
    Option(
        "vllm.url",
        parse_target,
        ("http://127.0.0.1:8000",),
        "Server to poll; repeat it for several. /metrics is added when there is no path; "
        "unix:/path/to.sock is a Unix socket.",
        metavar="URL",
        repeatable=True,
        mask=mask_url,
    ),
    Option("vllm.ca-file", file, None, "Certificates to trust for https, PEM.", metavar="FILE"),
    Option("vllm.cert-file", file, None, "Client certificate for https, PEM.", metavar="FILE"),
    Option("vllm.key-file", file, None, "Private key of the client certificate, PEM.", metavar="FILE"),
    Option("vllm.server-name", str, None, "Name to expect in the server's certificate.", metavar="NAME"),
    Option(
        "vllm.insecure-skip-verify",
        boolean,
        "false",
        "Accept any certificate of the server (true or false).",
        metavar="BOOL",
    ),
    Option(
        "vllm.bearer-token-file",
        file,
        None,
        "File with a bearer token for the server; read anew for every poll.",
        metavar="FILE",
    ),
    Option(
        "vllm.header",
        header,
        (),
        "Further request header, 'Name: value'; repeatable (in the environment: one a line).",
        metavar="HEADER",
        repeatable=True,
        separator="\n",
        mask=mask_header,
    ),
    Option("poll.interval", duration(0.1), "5s", "Time between two polls of a server.", metavar="DURATION"),
    Option(
        "poll.timeout",
        duration(0.05),
        None,
        "Time that a whole poll may take. Default: 4s, or 80 % of the interval where that is less.",
        metavar="DURATION",
    ),
    Option(
        "window",
        duration(1),
        tuple(window.name for window in DEFAULT_WINDOWS),
        "Window to publish derived values for; repeatable.",
        metavar="DURATION",
        repeatable=True,
    ),
    Option(
        "judgement.window",
        duration(1),
        None,
        "The window that judgement looks at. Default: the longest.",
        metavar="DURATION",
    ),
    Option(
        "spec.config",
        parse_speculation,
        None,
        "The very JSON given to vLLM's --speculative-config; method, draft model and K are read from it.",
        metavar="JSON",
    ),
    Option(
        "cost.profile",
        str,
        "auto",
        "What a step with drafts is taken to cost: a profile by name; auto goes by the method.",
        metavar="NAME",
    ),
    Option("cost.file", file, None, "YAML file with cost profiles of your own.", metavar="FILE"),
    Option(
        "cost.draft-size-ratio",
        share,
        None,
        "Size of the draft model over the target's, such as 1:9. Default: what their names tell, else 1:9.",
        metavar="RATIO",
    ),
    Option(
        "cost.draft-memory",
        memory,
        None,
        "Memory of the draft model, such as 16GB, for the return on speculation.",
        metavar="SIZE",
    ),
    Option(
        "cost.gpu-memory",
        memory,
        None,
        "Memory of the GPUs that the server uses, such as 160GB, for the same.",
        metavar="SIZE",
    ),
    Option(
        "baseline.file",
        file,
        None,
        "What the baseline command recorded without speculation: with it, speedup is measured.",
        metavar="FILE",
    ),
    Option(
        "threshold",
        threshold,
        (),
        "Change a threshold, name=number; repeatable. The defaults depend on the method.",
        metavar="NAME=NUMBER",
        repeatable=True,
    ),
    LISTEN_ADDRESS,
    WEB_CONFIG_FILE,
    Option(
        "web.max-requests",
        whole_number(0),
        str(MOST_REQUESTS),
        "Requests to the exporter that are answered at a time; others get status 503, but for probes. 0 for "
        "any number.",
        metavar="NUMBER",
    ),
    Option(
        "web.disable-exporter-metrics",
        boolean,
        "false",
        "Leave process_* and python_* out of /metrics (true or false).",
        metavar="BOOL",
    ),
    *REQUEST_OPTIONS,
    STARTUP_ON_ERROR,
    Option(
        "log.format", choice("logfmt", "json"), "logfmt", "Log lines as logfmt or json.", metavar="FORMAT"
    ),
    Option(
        "log.level",
        choice("debug", "info", "warning", "error"),
        "info",
        "The least level to log: debug, info, warning or error.",
        metavar="LEVEL",
    ),
    Option(
        "log.interval",
        duration(0),
        "1m",
        "Time between two aggregate log lines; 0s for none.",
        metavar="DURATION",
    ),
)
