"""The option table: every setting of `serve`, declared once.

Flags, environment variables, keys of the YAML file, the help and `docs/reference/configuration.md` come from
it. Other commands use its rows for the same settings.
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
    parse_servers,
    share,
    threshold,
    whole_number,
)
from ..economics.hardware import parse_machine
from ..economics.speculative_config import parse_speculation
from ..observe.state import DEFAULT_WINDOWS
from .request_options import REQUEST_OPTIONS
from .web_config import LISTEN_ADDRESS, MOST_REQUESTS, WEB_CONFIG_FILE

#: Parsed before the others, because it applies if they cannot be used.
STARTUP_ON_ERROR = Option(
    "startup.on-error",
    choice("exit", "wait"),
    "exit",
    "If the exporter cannot start because of a wrong setting or a port that is in use: exit, or, for a "
    "sidecar, wait: report it in log and metrics, stay healthy and retry. Not read from the file.",
    metavar="WHAT",
)

#: Every option of `serve`, in the order of the help and the documentation.
OPTIONS: tuple[Option, ...] = (
    Option(
        "vllm.url",
        parse_servers,
        ("http://127.0.0.1:8000",),
        "Server to poll; repeat it for several. /metrics is added when there is no path; "
        "unix:/path/to.sock is a Unix socket. dns+http://name:port polls every address of the name, "
        "dnssrv+http://name every SRV record, resolved anew at each interval (only serve).",
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
        "File with a bearer token for the server; read for every poll.",
        metavar="FILE",
    ),
    Option(
        "vllm.header",
        header,
        (),
        "Further request header, 'Name: value'; repeatable (in the environment: one per line).",
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
        "Deadline of a whole poll. Default: 4s, or 80 % of the interval if that is less.",
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
        "Window that the judgement uses. Default: the longest.",
        metavar="DURATION",
    ),
    Option(
        "spec.config",
        parse_speculation,
        None,
        "The JSON given to vLLM's --speculative-config; method, draft model and K are read from it.",
        metavar="JSON",
    ),
    Option(
        "spec.server-info",
        boolean,
        "false",
        "Read method and top-k of SGLang from its /server_info, and keep nothing else of it (true or false).",
        metavar="BOOL",
    ),
    Option(
        "cost.profile",
        str,
        "auto",
        "Assumed cost of a step with drafts: the name of a profile; auto selects it by the method.",
        metavar="NAME",
    ),
    Option("cost.file", file, None, "YAML file with your own cost profiles.", metavar="FILE"),
    Option(
        "cost.hardware",
        parse_machine,
        None,
        "GPUs of the server, such as h100 or 4xh100 (tensor parallel), to estimate the speedup for.",
        metavar="GPUS",
    ),
    Option(
        "cost.model",
        str,
        None,
        "Size of the served model: 70B, 30B-A3B, 8B:fp8, or its config.json; and details such as "
        "8B,layers=32,kv-heads=8,kv=fp8 or 30B-A3B,experts=8/128. Default: from its served name.",
        metavar="SIZE",
    ),
    Option(
        "cost.draft-size-ratio",
        share,
        None,
        "Size of the draft model over the target's, such as 1:9. Default: from their names, else 1:9.",
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
        "Memory of the server's GPUs, such as 160GB, for the same.",
        metavar="SIZE",
    ),
    Option(
        "baseline.file",
        file,
        None,
        "Result of the baseline command, recorded without speculation; needed to measure the speedup.",
        metavar="FILE",
    ),
    Option(
        "threshold",
        threshold,
        (),
        "Override a threshold, name=number; repeatable. The defaults depend on the method; `published` "
        "sets the published ones for any method.",
        metavar="NAME=NUMBER",
        repeatable=True,
    ),
    LISTEN_ADDRESS,
    WEB_CONFIG_FILE,
    Option(
        "web.max-requests",
        whole_number(0),
        str(MOST_REQUESTS),
        "Limit of concurrent requests to the exporter; others except probes get status 503. 0 for no limit.",
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
        "Lowest level to log: debug, info, warning or error.",
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
