"""The catalogue of faults: what happens, and what the exporter promises then. Writes docs/faults.md from it.

Each fault has a test that injects it into the running exporter: `test_NAME` in ``tests/faults/test_AREA.py``.

    PYTHONPATH=tests python -m faults.catalogue [--check]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: what its test is called, and with the area its identifier.
        happens: what is injected.
        promise: what is seen of the exporter meanwhile, beyond what its area promises of all.
    """

    name: str
    happens: str
    promise: str


@dataclass(frozen=True, slots=True)
class Area:
    """Faults of one kind.

    Attributes:
        name: what the file of their tests is called.
        title: a heading.
        promise: what holds for all of them.
        faults: which there are.
    """

    name: str
    title: str
    promise: str
    faults: tuple[Fault, ...]


def _failed(reason: str, more: str = "") -> str:
    """What is promised of a poll that fails."""
    return f'`reason="{reason}"`{f"; {more}" if more else ""}'


UPSTREAM = Area(
    "upstream",
    "The server behind",
    "Where a reason is named: `vllm_specdec_up` is 0, `vllm_specdec_poll_errors_total` counts under "
    "that reason "
    "alone, and there is no series of any engine. The log says so once. With the first good answer "
    "everything is back.",
    (
        Fault("refused", "Nothing listens at the address, as while a model loads.", _failed("refused")),
        Fault("closes_at_once", "The server accepts connections and closes them.", _failed("reset")),
        Fault("hangs_before_headers", "The server takes the request and says nothing.", _failed("timeout")),
        Fault("hangs_within_body", "The server stops in the middle of its answer.", _failed("timeout")),
        Fault("drips", "The server sends its answer at a byte a second.", _failed("timeout")),
        Fault(
            "resets_within_body", "The connection is reset in the middle of the answer.", _failed("malformed")
        ),
        Fault("truncated", "The answer is shorter than its Content-Length.", _failed("malformed")),
        Fault("unauthorized", "The server answers 401.", _failed("http_status")),
        Fault("forbidden", "The server answers 403.", _failed("http_status")),
        Fault("not_found", "The server answers 404.", _failed("http_status")),
        Fault("server_error", "The server answers 500.", _failed("http_status")),
        Fault(
            "unavailable",
            "The server answers 503 and asks not to come back for an hour.",
            _failed("http_status", "polls go on as before"),
        ),
        Fault("error_with_metrics", "The server answers 503, with metrics.", _failed("http_status")),
        Fault(
            "redirect",
            "The server redirects to another host.",
            _failed("redirect", "the other host is never contacted"),
        ),
        Fault("html", "A proxy answers with its login page and status 200.", _failed("malformed")),
        Fault(
            "wrong_content_type",
            "The metrics come under a Content-Type that is not theirs.",
            "They are read all the same: `vllm_specdec_up` is 1, and no error is counted.",
        ),
        Fault("empty", "The answer is empty.", _failed("unrecognized")),
        Fault("binary", "The answer is binary.", _failed("malformed")),
        Fault("http_garbage", "What listens there does not speak HTTP.", _failed("malformed")),
        Fault(
            "endless_headers",
            "The headers of the answer do not end.",
            _failed("malformed", "memory stays below 150 MiB"),
        ),
        Fault(
            "unasked_encoding", "The answer is compressed in a way nobody asked for.", _failed("malformed")
        ),
        Fault(
            "half_written",
            "The answer ends within a line, with a Content-Length that fits.",
            _failed("malformed"),
        ),
        Fault(
            "other_software",
            "Other software with metrics of its own takes the server's place for a while.",
            _failed("unrecognized", "no window reaches back across it, and no reset is counted"),
        ),
        Fault("huge_body", "The answer has 20 MiB.", _failed("too_large", "memory stays below 150 MiB")),
        Fault(
            "gzip_bomb", "60 MiB come as 60 KiB of gzip.", _failed("too_large", "memory stays below 150 MiB")
        ),
        Fault(
            "many_series",
            "The answer has 100,000 series of others beside the server's own.",
            "`vllm_specdec_up` is 1, and `/metrics` stays below 1 MiB.",
        ),
        Fault("many_engines", "The answer has a thousand engines.", _failed("malformed")),
        Fault(
            "label_churn",
            "The model has another name with each answer.",
            "Only the newest name has series.",
        ),
        Fault("nan_counter", "A counter is NaN.", _failed("malformed")),
        Fault("negative_counter", "A counter is negative.", _failed("malformed")),
        Fault("huge_counter", "A counter is 1e300.", _failed("malformed")),
        Fault("duplicate_samples", "Each sample is there twice.", _failed("malformed")),
        Fault(
            "restart",
            "The counters begin anew, without a failed poll in between.",
            "`vllm_specdec_engine_resets_total` rises by 1, windows begin anew, nothing is negative, "
            "the log says it.",
        ),
        Fault(
            "k_changes",
            "K changes from 4 to 2 and to 6.",
            "Series per position are those of the new K; no share is above 1, nothing is negative.",
        ),
        Fault(
            "engines_merge",
            "Two engines become one.",
            "The series of the one that is gone are gone; nothing is negative.",
        ),
    ),
)

NETWORK = Area(
    "network",
    "Names, addresses, sockets and TLS",
    "Where a reason is named, the same holds as for the server behind. Nobody has to restart or "
    "reload anything.",
    (
        Fault(
            "name_unknown", "The server's name does not resolve yet.", _failed("unreachable", "until it does")
        ),
        Fault(
            "name_moves",
            "The server comes back at another address under the same name.",
            _failed("refused", "until the name is that of the new one, which is polled at once"),
        ),
        Fault(
            "name_service_silent",
            "The name server does not answer.",
            _failed(
                "timeout", "one thread waits, however many polls there are; SIGTERM ends the process at once"
            ),
        ),
        Fault(
            "connect_blackholed",
            "Packets to the server vanish.",
            _failed("timeout", "until they arrive again"),
        ),
        Fault(
            "ipv6_only",
            "The name has an IPv4 and an IPv6 address, and the server listens on IPv6 alone.",
            "It is polled there, and no error is counted.",
        ),
        Fault(
            "unix_socket_missing",
            "The Unix socket is not there yet, or is left over from a server that was killed.",
            _failed("refused"),
        ),
        Fault(
            "certificate_expired",
            "The server's certificate has expired.",
            _failed("tls", "no request, and no token, is sent; a renewed certificate counts at once"),
        ),
        Fault(
            "certificate_of_another",
            "The server's certificate is for another name.",
            _failed("tls", "no request, and no token, is sent"),
        ),
        Fault(
            "authority_unknown",
            "The server's certificate comes from an authority that is not trusted.",
            _failed(
                "tls", "once `--vllm.ca-file` has been exchanged for the right one, the next poll succeeds"
            ),
        ),
        Fault(
            "trusted_file_half_written",
            "`--vllm.ca-file` is half written while the exporter runs.",
            "What was trusted stays so, no poll fails, and the log says it once.",
        ),
        Fault(
            "plain_http_behind_https", "An https address where the server speaks plain HTTP.", _failed("tls")
        ),
    ),
)

CLOCK = Area(
    "clock",
    "Time",
    "Windows and intervals go by a clock that never jumps.",
    (
        Fault(
            "wall_clock_forward",
            "The wall clock jumps forward by six hours, and back again.",
            "No poll fails, windows grow by the time that really passed; only time stamps follow the "
            "wall clock.",
        ),
        Fault("wall_clock_back", "The wall clock jumps back by six hours, and forward again.", "The same."),
        Fault(
            "stopped_for_long",
            "The process stands still (SIGSTOP, a frozen node) for longer than interval and timeout.",
            "The very first scrape afterwards has `vllm_specdec_up` 0 and no series of any engine: "
            "nothing stale is "
            "served. The next poll brings everything back.",
        ),
        Fault(
            "stopped_for_a_moment",
            "The process stands still for a second.",
            "No error; the second is in the window, and the polls that were missed are not made up for.",
        ),
    ),
)

DISK = Area(
    "disk",
    "Files and the log",
    "A file that cannot be used changes nothing that is in force. Polls, scrapes and probes go on.",
    (
        Fault(
            "configuration_gone",
            "The configuration file is gone when a reload is asked for.",
            "Status 500 with the reason, `vllm_specdec_config_last_reload_successful` is 0; the old "
            "one stays in force. "
            "A reload of the mended file sets it to 1.",
        ),
        Fault("configuration_unreadable", "The configuration file cannot be read at a reload.", "The same."),
        Fault(
            "configuration_half_written", "The configuration file is half written at a reload.", "The same."
        ),
        Fault(
            "configuration_link_swapped",
            "The file is exchanged by a link further up, as Kubernetes does.",
            "The next reload takes what the link points to.",
        ),
        Fault(
            "token_removed",
            "The bearer token file is removed.",
            _failed("credentials", "the server is not asked without a token"),
        ),
        Fault(
            "token_empty",
            "The bearer token file is empty, and later has another token.",
            _failed("credentials"),
        ),
        Fault(
            "token_replaced",
            "The bearer token file is exchanged.",
            "The next poll shows the new one; no poll fails.",
        ),
        Fault(
            "web_configuration_emptied",
            "A full disk leaves the web configuration file empty.",
            "Passwords are asked for as before, `vllm_specdec_config_last_reload_successful` is 0, "
            "the log says why; "
            "the mended file is in force by itself.",
        ),
        Fault(
            "no_room_to_write",
            "No file can be written: a read-only file system, or a full one.",
            "Nothing of it is seen: the exporter writes no files.",
        ),
        Fault(
            "act_state_disk_full",
            "The state file of `act` cannot be written.",
            "The command is not run, and a line says why. The repeated alert is acted upon once "
            "there is room, once.",
        ),
        Fault(
            "log_reader_stops",
            "Nobody reads the pipe behind standard error any more.",
            "Nothing waits for it. Lines are kept up to 256 KiB, the rest is left out, and a line "
            "says how many. "
            "SIGTERM ends the process with 0.",
        ),
        Fault(
            "log_reader_gone",
            "The other end of the pipe behind standard error is closed.",
            "Nothing of it is seen but the lines that lack; SIGTERM ends the process with 0.",
        ),
        Fault("log_disk_full", "Standard error is a file on a full disk.", "The same."),
        Fault("log_closed", "Standard error is closed from the start.", "The same."),
    ),
)

LIMITS = Area(
    "limits",
    "Memory and descriptors",
    "The process lives, and is itself again when there is enough.",
    (
        Fault(
            "memory_exhausted",
            "An answer of 16 MiB comes where 8 MiB are left.",
            _failed("internal", "the log has the traceback; usual answers are read as before"),
        ),
        Fault(
            "descriptors_exhausted",
            "The process may open no descriptor more.",
            _failed(
                "unreachable",
                "who is connected is answered, who comes waits; both go on by themselves. No "
                "traceback, and no "
                "line for each attempt",
            ),
        ),
    ),
)

SIGNALS = Area(
    "signals",
    "Signals",
    "SIGTERM and SIGINT end the process within two seconds, with exit code 0, `stopping` as the last "
    "line of its log, "
    "and no traceback.",
    (
        Fault("sigterm_during_poll", "SIGTERM while a poll hangs.", "The poll is given up."),
        Fault(
            "sigterm_during_scrape", "SIGTERM while a scraper does not take its answers.", "It is cut off."
        ),
        Fault("sigterm_twice", "SIGTERM, and more of it until the end.", "The same as once."),
        Fault("sigint", "SIGINT while a poll hangs.", "The same as SIGTERM."),
        Fault(
            "sigterm_before_it_serves",
            "SIGTERM while the process starts.",
            "It ends, without a traceback.",
        ),
        Fault(
            "sighup_storm",
            "300 SIGHUP in a row.",
            "Each server is polled once an interval as before; windows go on, no reset is counted.",
        ),
        Fault(
            "sigpipe", "SIGPIPE, and scrapers that go away while they are answered.", "Nothing of it is seen."
        ),
        Fault(
            "sigkill",
            "SIGKILL, and a new process at the same port.",
            "Counters are the server's: nothing is lost or counted twice. Windows and advice begin anew.",
        ),
    ),
)

CONFIGURATION = Area(
    "configuration",
    "Configuration changed at work",
    "A reload waits for no poll. What is known of a server that stays is kept.",
    (
        Fault("reload_while_polls_hang", "A reload while polls hang.", "It takes effect at once."),
        Fault(
            "reload_of_nonsense",
            "A reload of a file with a wrong value.",
            "Status 500, which names the setting; `vllm_specdec_config_last_reload_successful` is 0, "
            "and windows go on.",
        ),
        Fault(
            "target_removed",
            "A server is taken out of the file.",
            "Its series are gone with the reload, and it is asked no more; the windows of the others go on.",
        ),
        Fault(
            "target_added", "A server is added to the file.", "Both have series; the first has lost nothing."
        ),
        Fault(
            "interval_changed",
            "`poll.interval` is changed.",
            "Polls keep to the new one; windows go on, no reset.",
        ),
        Fault(
            "threshold_changed",
            "A threshold is changed.",
            "`vllm_specdec_threshold` and the judgement follow with the next poll; windows go on.",
        ),
    ),
)

CERTIFICATES = Area(
    "certificates",
    "The exporter's own certificate",
    "A new certificate that can be used is in force within seconds, without a reload.",
    (
        Fault(
            "expires_while_serving",
            "The certificate expires while it is in force.",
            "It is shown as before: scrapers that check it refuse it, probes are answered. A renewed "
            "one is taken by "
            "itself.",
        ),
        Fault(
            "replaced_by_a_broken_one",
            "The certificate is replaced by half of one.",
            "The old one stays in force, `vllm_specdec_config_last_reload_successful` is 0, the log "
            "says why.",
        ),
        Fault("key_does_not_fit", "The key is replaced by one that does not fit.", "The same."),
        Fault("file_gone", "The certificate's file is gone.", "The same."),
    ),
)

PORTS = Area(
    "ports",
    "Ports that are taken",
    "One line names the flag, the address and the reason.",
    (
        Fault("taken_at_start", "The port is taken.", "Exit code 1."),
        Fault(
            "taken_by_itself",
            "A second exporter is started on the port of the first.",
            "Exit code 1; the first goes on.",
        ),
        Fault(
            "taken_for_a_sidecar",
            "The port is taken, with `--startup.on-error=wait`, and freed later.",
            "It waits, and serves within seconds of the port being free.",
        ),
        Fault("taken_until_sigterm", "The same, and SIGTERM comes first.", "Exit code 0, at once."),
        Fault("tap_taken", "The tap's port is taken.", "Exit code 1."),
        Fault(
            "tap_taken_for_a_sidecar",
            "The tap's port is taken, with `--startup.on-error=wait`, and freed later.",
            "The exporter serves, `vllm_specdec_tap_listening` is 0; the tap follows within seconds "
            "of the port being "
            "free.",
        ),
    ),
)

REQUESTS = Area(
    "requests",
    "Single requests",
    "The tap passes bytes on as they are, whatever becomes of the observation.",
    (
        Fault(
            "tap_server_refuses",
            "vLLM is not there behind the tap.",
            "The client gets a 502, `vllm_specdec_tap_upstream_errors_total` counts `refused`.",
        ),
        Fault(
            "tap_server_dies_in_answer",
            "vLLM dies in the middle of a streamed answer.",
            "The client gets what there was and then the end; `vllm_specdec_tap_unobserved_total` "
            "counts `aborted`.",
        ),
        Fault(
            "tap_record_malformed",
            "The record in an answer is impossible.",
            "The client gets its answer; the record is counted as `malformed`, and no number comes of it.",
        ),
        Fault(
            "tap_exporter_told_to_end",
            "SIGTERM while an answer passes through the tap, and SIGTERM again.",
            "The first waits for the answer and says so, the second ends it at once, with exit code 0.",
        ),
        Fault(
            "push_token_wrong",
            "A push with a wrong token.",
            "Status 401; nothing is counted, and the token is not in the answer or the log.",
        ),
        Fault(
            "push_token_file_empty",
            "The token file for pushes is empty.",
            "Status 503 for everybody, also for an empty token, until it has one again.",
        ),
        Fault(
            "push_nonsense",
            "Pushes that are no JSON, or hold impossible observations.",
            "Status 400, or the good observations of a push are taken; "
            "`vllm_specdec_push_rejected_total` counts the "
            "rest.",
        ),
        Fault("push_too_large", "A push of 2 MiB.", "Status 413."),
    ),
)

SCRAPERS = Area(
    "scrapers",
    "Scrapers and other clients",
    "Probes and scrapes of others are answered within two seconds all the while, and nothing is left of it "
    "afterwards.",
    (
        Fault("never_reads", "200 scrapers ask and never read.", "Memory stays below 150 MiB."),
        Fault(
            "asks_and_never_reads",
            "10 scrapers send 200 requests each and never read.",
            "The process comes to rest: answers that nobody takes are not made. Memory stays below 150 MiB.",
        ),
        Fault("half_open", "60 clients connect and say nothing.", "They are cut off after 10 s."),
        Fault(
            "slow_headers", "60 clients send headers at two bytes a second.", "They are cut off after 10 s."
        ),
        Fault(
            "too_many_connections",
            "More connections come than there may be at a time.",
            "Each new one ends the one that has been idle for longest.",
        ),
        Fault(
            "stampede",
            "500 scrapes at once.",
            "Each gets its answer, 200, or 503 where too many are answered at a time; `/-/healthy` "
            "within 5 s.",
        ),
        Fault("huge_header", "A header of 200 kB.", "An error, or the end of the connection."),
        Fault("huge_url", "An address of 200 kB.", "An error, or the end of the connection."),
        Fault("no_http", "A TLS handshake, or nonsense.", "Status 400, or the end of the connection."),
        Fault("pipelined", "39 requests come before the first answer.", "They are answered in order."),
        Fault("wrong_method", "Methods that an address does not take.", "Status 405; nothing is reloaded."),
        Fault("aborts", "50 scrapers go away in the middle of their answers.", "No warning in the log."),
    ),
)

AREAS = (
    UPSTREAM,
    NETWORK,
    CLOCK,
    DISK,
    LIMITS,
    SIGNALS,
    CONFIGURATION,
    CERTIFICATES,
    PORTS,
    SCRAPERS,
    REQUESTS,
)


def document() -> Iterator[str]:
    """Yield the lines of docs/faults.md."""
    count = sum(len(area.faults) for area in AREAS)
    yield "<!-- Generated by `make generate`; do not edit. -->"
    yield "# Faults"
    yield ""
    yield (
        f"{count} faults, and what the exporter promises of each. Every one is injected into the "
        f"running exporter by "
        "the test of its name in `tests/faults`, which also sees that the process lives, that "
        "`/-/healthy` and "
        "`/-/ready` answer 200, and that everything is well again once the fault is gone, unless an "
        "exit is what is "
        "promised."
    )
    for area in AREAS:
        yield ""
        yield f"## {area.title}"
        yield ""
        yield area.promise
        yield ""
        yield "| fault | what happens | what is promised |"
        yield "|---|---|---|"
        yield from (
            f"| `{area.name}/{fault.name}` | {fault.happens} | {_begun(fault.promise)} |"
            for fault in area.faults
        )


def _begun(promise: str) -> str:
    return promise if promise.endswith(".") else f"{promise}."


def text(lines: Iterable[str]) -> str:
    """Return what is in the file."""
    return "".join(f"{line}\n" for line in lines)


def main(words: list[str]) -> int:
    """Write the document, or tell by the exit code whether it is current."""
    new = text(document())
    if words == ["--check"]:
        if DOCUMENT.exists() and DOCUMENT.read_text() == new:
            return 0
        sys.stderr.write(f"not current: {DOCUMENT.name}\n")
        return 1
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
