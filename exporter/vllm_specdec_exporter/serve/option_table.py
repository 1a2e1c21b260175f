"""The option table: every setting of `serve`, declared once.

Flags, environment variables, keys of the YAML file, the help and `docs/reference/configuration.md` come from
it. Other commands use its rows for the same settings.
"""

from __future__ import annotations

from ..config.options import Option, duration_option, file_option, switch_option
from ..config.values import (
    choice,
    duration,
    header,
    mask_header,
    mask_url,
    memory,
    parse_servers,
    share,
    threshold,
)
from ..economics.hardware import parse_machine
from ..economics.speculative_config import parse_speculation
from ..observe.state import DEFAULT_WINDOWS
from .request_options import REQUEST_OPTIONS
from .web_config import LISTEN_ADDRESS, WEB_CONFIG_FILE

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
        "resolved anew at each interval (only serve).",
        metavar="URL",
        repeatable=True,
        mask=mask_url,
    ),
    file_option("vllm.ca-file", "Certificates to trust for https, PEM."),
    file_option("vllm.cert-file", "Client certificate for https, PEM."),
    file_option("vllm.key-file", "Private key of the client certificate, PEM."),
    Option("vllm.server-name", str, None, "Name to expect in the server's certificate.", metavar="NAME"),
    switch_option("vllm.insecure-skip-verify", "Accept any certificate of the server"),
    file_option("vllm.bearer-token-file", "File with a bearer token for the server; read for every poll."),
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
    duration_option("poll.interval", 0.1, "5s", "Time between two polls of a server."),
    duration_option(
        "poll.timeout",
        0.05,
        None,
        "Deadline of a whole poll. Default: 4s, or 80 % of the interval if that is less.",
    ),
    Option(
        "window",
        duration(1),
        tuple(window.name for window in DEFAULT_WINDOWS),
        "Window to publish derived values for; repeatable.",
        metavar="DURATION",
        repeatable=True,
    ),
    duration_option("judgement.window", 1, None, "Window that the judgement uses. Default: the longest."),
    Option(
        "spec.config",
        parse_speculation,
        None,
        "The JSON given to vLLM's --speculative-config; method, draft model and K are read from it.",
        metavar="JSON",
    ),
    switch_option(
        "spec.server-info",
        "Read method and top-k of SGLang from its /server_info, and keep nothing else of it",
    ),
    Option(
        "cost.profile",
        str,
        "auto",
        "Assumed cost of a step with drafts: the name of a profile; auto selects it by the method.",
        metavar="NAME",
    ),
    file_option("cost.file", "YAML file with your own cost profiles."),
    Option(
        "cost.hardware",
        parse_machine,
        None,
        "GPUs of the server, such as h100 or 4xh100 (tensor parallel), to estimate the speedup for; or their "
        "data, such as bandwidth=1792GB/s,fp16=210TFLOPS, and fp8=, int8=, fp4= (dense), link=, memory=.",
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
    file_option(
        "baseline.file",
        "Result of the baseline command, recorded without speculation; needed to measure the speedup.",
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
    switch_option("web.disable-exporter-metrics", "Leave process_* and python_* out of /metrics"),
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
    duration_option("log.interval", 0, "1m", "Time between two aggregate log lines; 0s for none."),
)
