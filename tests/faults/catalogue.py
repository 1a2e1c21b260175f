"""The catalogue of faults: what happens, and what the exporter promises then. Writes faults.md from it.

Each fault has a test in ``tests/faults/test_AREA.py`` or ``tests/attacks/test_AREA.py`` that injects it: the
function `test_NAME`, or a parameter with that id. The table of faulty responses is in ``test_responses.py``.

    PYTHONPATH=tests python -m faults.catalogue [--check]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"

INTRODUCTION = (
    "{count} faults, and what the exporter promises. Tests in `tests/faults` and `tests/attacks`, named in "
    "`tests/faults/catalogue.py`, inject each into the running exporter. Unless an exit is promised, they "
    "also check that the process lives, that `/-/healthy` and `/-/ready` answer 200, and that all is well "
    "once the fault is gone."
)

#: By area its name, its title, and what holds for all of its faults; by fault its name, what is injected, and
#: what is seen of the exporter meanwhile.
CATALOGUE = """\
## upstream: The server behind
With a reason: `vllm_specdec_up` is 0, `vllm_specdec_poll_errors_total` counts that reason alone, no
engine has series, and the log has one line. The first good answer restores everything.
- refused: nothing listens at the address => `refused`
- closes_at_once: the server accepts connections and closes them => `reset`
- hangs_before_headers: no answer => `timeout`
- hangs_within_body: half an answer, then nothing => `timeout`
- drips: a byte a second => `timeout`
- resets_within_body: reset within the answer => `malformed`
- truncated: shorter than its Content-Length => `malformed`
- unauthorized: status 401 => `http_status`
- forbidden: 403 => `http_status`
- not_found: 404 => `http_status`
- server_error: 500 => `http_status`
- unavailable: 503 with a Retry-After of an hour => `http_status`; the interval stays
- error_with_metrics: 503 with metrics => `http_status`
- redirect: a redirect to another host => `redirect`; that host is never contacted
- html: a login page with status 200 => `malformed`
- wrong_content_type: a wrong Content-Type => read all the same
- empty: an empty answer => `unrecognized`
- binary: a binary answer => `malformed`
- http_garbage: no HTTP => `malformed`
- endless_headers: headers without an end => `malformed`; memory below 150 MiB
- unasked_encoding: an encoding that was not requested => `malformed`
- half_written: cut off within a line => `malformed`
- other_software: metrics of other software for a while => `unrecognized`; windows begin anew without a
  reset
- too_large: 20 MiB => `too_large`; memory below 150 MiB
- many_series: 100,000 other series => `vllm_specdec_up` is 1, `/metrics` below 1 MiB
- many_engines: a thousand engines => `malformed`
- label_churn: another model name in each answer => only the newest has series
- nan_counter: a NaN counter => `malformed`
- negative_counter: a negative counter => `malformed`
- huge_counter: a counter of 1e300 => `malformed`
- duplicate_samples: each sample twice => `malformed`
- restart: counters restart between polls => `vllm_specdec_engine_resets_total` + 1, windows begin anew,
  a log line
- k_changes: K from 4 to 2 and to 6 => positions of the new K, no share above 1
- engines_merge: two engines become one => the series of the other end

## network: Names, addresses, sockets and TLS
Reasons as above. No restart or reload is needed.
- name_unknown: the name does not resolve yet => `unreachable`
- name_moves: the name gets another address => `refused`, until the name resolves to the new one
- name_service_silent: the name server does not answer => `timeout`; one waiting thread; SIGTERM ends
  the process at once
- connect_blackholed: packets vanish => `timeout`
- ipv6_only: IPv4 and IPv6 address, server on IPv6 alone => polled there without an error
- unix_socket_missing: a missing or stale Unix socket => `refused`
- certificate_unusable: an expired, untrusted or wrong certificate, or plain HTTP => `tls`; no request,
  no token is sent
- trusted_file_exchanged: `--vllm.ca-file` is corrected, later half written => used from the next poll;
  the last good one stays

## clock: Time
Intervals follow a clock that never jumps.
- wall_clock_jumps: the wall clock jumps by hours => no poll fails; only time stamps follow it
- stopped_for_long: the process stops for longer than interval and timeout => the next scrape has
  `vllm_specdec_up` 0 and no engine; the next poll restores everything
- stopped_for_a_moment: the process stops for a second => no error; missed polls are not made up for

## disk: Files and the log
An unusable file changes nothing in force. Polls, scrapes and probes continue.
- configuration_unusable: the file at a reload is missing, unreadable, cut off or wrong => status 500
  with the reason, `vllm_specdec_config_last_reload_successful` 0
- configuration_link_swapped: the file is exchanged by a link, as in Kubernetes => the next reload
  follows it
- token_unusable: the bearer token file is missing or empty => `credentials`; no request without a token
- token_replaced: the token file is exchanged => used from the next poll
- web_configuration_emptied: the web configuration is empty or cut off => passwords stay required;
  `vllm_specdec_config_last_reload_successful` 0, a log line
- no_room_to_write: no file can be written => no effect
- act_state_disk_full: the state file of `act` cannot be written => the command is not run; the repeated
  alert runs it once
- log_reader_stops: the pipe behind standard error is not read => nothing blocks; 256 KiB are kept, the
  number of dropped lines is logged
- log_unwritable: standard error is closed or on a full disk => only log lines are lost

## limits: Memory and descriptors
The process lives, and recovers.
- memory_exhausted: an answer of 16 MiB with 8 MiB left => `internal`; the log has the traceback
- descriptors_exhausted: no descriptor is left => `unreachable`; new clients wait, no log line for each
  attempt

## signals: Signals
SIGTERM and SIGINT end the process within two seconds with code 0, `stopping` as last log line and no
traceback.
- sigterm_during_poll: SIGTERM while a poll hangs => as above
- sigterm_during_scrape: while a scraper does not read => as above
- sigterm_twice: several SIGTERM => as above
- sigint: SIGINT while a poll hangs => as above
- sigterm_before_it_serves: while it starts => as above
- sighup_storm: 300 SIGHUP => one poll an interval; windows go on
- sigpipe: SIGPIPE, scrapers that leave => no effect
- sigkill: SIGKILL, then a new process => counters are the server's; windows begin anew

## configuration: Configuration changed at work
A reload waits for no poll, and keeps the data of servers that stay.
- reload_while_polls_hang: a reload while polls hang => in effect at once
- target_removed: a server is removed => its series end
- target_added: a server is added => both have series
- interval_changed: `poll.interval` changes => polls follow; windows go on
- threshold_changed: a threshold changes => `vllm_specdec_threshold` and verdicts follow with the next
  poll

## certificates: The exporter's own certificate
A usable new certificate is in force within seconds, without a reload.
- expires_while_serving: the certificate expires => still served; a renewed one is used within seconds
- unusable: certificate or key becomes unusable => the old one stays,
  `vllm_specdec_config_last_reload_successful` 0, a log line

## ports: Ports that are taken
One line has the flag, the address and the reason.
- taken_at_start: the port is taken => code 1
- taken_by_itself: a second exporter on the same port => code 1; the first goes on
- taken_for_a_sidecar: the port is taken, with `--startup.on-error=wait` => serves within
  seconds of the port being free
- taken_until_sigterm: the same, then SIGTERM => code 0 at once
- tap_taken: the tap's port is taken => code 1
- tap_taken_for_a_sidecar: the tap's port is taken, with `--startup.on-error=wait` => the exporter serves,
  `vllm_specdec_tap_listening` is 0; the tap follows

## scrapers: Scrapers and other clients
Others are answered within two seconds; nothing is left afterwards.
- never_reads: 60 scrapers never read => memory below 150 MiB
- asks_and_never_reads: 8 send 200 requests each and never read => memory below 150 MiB
- dawdling: 6 silent clients, 6 at two bytes a second => closed after 10 s
- too_many_connections: connections above the limit => the longest idle one is closed
- stampede: 60 scrapes at once => each is answered; `/-/healthy` within 5 s
- refused: headers of 200 kB, a TLS handshake, nonsense => an error, or the connection ends
- pipelined: 39 requests ahead of the first answer => answered in order
- wrong_method: wrong methods => status 405
- aborts: 50 scrapers leave within answers => no warning

## requests: Single requests
The tap relays every byte unchanged.
- tap_server_refuses: vLLM is down => 502, `vllm_specdec_tap_upstream_errors_total` counts `refused`
- tap_server_dies_in_answer: vLLM dies within a stream => the client gets what came; `aborted` is
  counted
- tap_record_malformed: an impossible record => `malformed` is counted, no value used
- tap_exporter_told_to_end: SIGTERM during an answer => waits for it, and logs that; a second one ends
  it with code 0
- push_token_wrong: a wrong push token => status 401
- push_token_file_empty: an empty token file for pushes => status 503 for every push
- push_nonsense: no JSON, impossible observations => status 400, or the good ones are used;
  `vllm_specdec_push_rejected_total` counts the rest
- push_too_large: a push of 2 MiB => status 413

## listeners: Attacks on ports and by servers
The tap relays every byte, other streams go on, memory and CPU stay far below the chart's limits, and 99
of 100 probes take less than 200 ms of the process's time.
- endless_head: an endless header, name or URL to the tap => not collected
- heads_of_many_names: 150 heads of 9,000 headers => only needed headers are kept
- request_with_many_names: 700,000 names in a request => observed
- request_in_tiny_chunks: a request in a million chunks => not observed
- answer_with_many_objects: two million choices, or a record of 700,000 names => observed
- event_in_small_pieces: an event of 3.9 MB in chunks of 100 bytes => observed
- streams_of_tiny_pieces: a stream of a million chunks or events => not observed
- connections_that_take_all_descriptors: more connections than descriptors => some stay free for polls
  and port 9850
- compressed_bodies: 197 KB that become 200 MiB => not decompressed; 415
- many_requests_at_a_time: 12 busy connections of each of four addresses => all answered
- requests_that_are_sent_ahead: 20 requests ahead on 12 connections => all answered
- long_lists_of_encodings: 24,000 accepted encodings => answered, or not read
- heads_that_never_end: headers without an end => closed after 64 KiB or 10 s
- heads_behind_requests: the same behind a request => the same
- empty_lines: only empty lines => closed after 10 s
- silent_connections_over_tls: 64 idle TLS connections, the limit => less than 30 MiB
- server_with_many_positions: 240 engines of 74 positions => values per position are left out, with a
  finding
- credentials_that_the_server_quotes: the server repeats credentials in reasons, redirects or lines =>
  masked everywhere
- model_name_that_turns_the_text_of_the_log: a model name with controls of text direction => escaped in
  the log

## act: Attacks on `act`
By someone who may send alerts, or write beside the state file.
- other_labels_do_not_lift_the_limit_of_a_workload: alerts with other clusters, or contradictions => one
  change of the workload an hour; none for a contradiction
- a_payload_of_many_repeats_is_saved_once: many repeats of a decision => the private state file is
  written once
- repeats_do_not_push_out_the_action_that_limits_a_workload: more decisions than are kept => none within
  the limits is dropped
- the_lock_does_not_empty_what_a_link_points_to: the lock file is a link => `act` does not start; the
  target is untouched
- scripts_do_not_see_the_credentials_of_an_exporter: secrets in the environment => scripts do not get
  them
"""


class Fault(NamedTuple):
    """A fault: what its test is called, what happens, what is promised beyond what its area promises."""

    name: str
    happens: str
    promise: str


class Area(NamedTuple):
    """Faults of one kind, with the name of the file of their tests, a heading, and what holds for all."""

    name: str
    title: str
    promise: str
    faults: tuple[Fault, ...]


def _area(block: str) -> Area:
    heading, rest = block.split("\n", 1)
    name, title = heading.split(": ", 1)
    promise, *faults = (" ".join(part.split()) for part in rest.split("\n- "))
    found = (one.partition(": ")[::2] for one in faults)
    return Area(name, title, promise, tuple(Fault(name, *said.split(" => ")) for name, said in found))


AREAS = tuple(map(_area, CATALOGUE.removeprefix("## ").split("\n## ")))


def document() -> Iterator[str]:
    """Yield the paragraphs of docs/reference/faults.md."""
    yield "<!-- Generated by `make generate`; do not edit. -->\n# Faults"
    yield INTRODUCTION.format(count=sum(len(area.faults) for area in AREAS))
    for area in AREAS:
        yield f"## {area.title}"
        yield area.promise
        yield "\n".join(["| what happens | what is promised |", "|---|---|", *_rows(area)])


def _rows(area: Area) -> Iterator[str]:
    """Yield a row for each promise of an area, with all faults of which it is promised."""
    by_promise: dict[str, list[Fault]] = {}
    for fault in area.faults:
        by_promise.setdefault(fault.promise, []).append(fault)
    for promise, faults in by_promise.items():
        yield f"| {'; '.join(fault.happens for fault in faults)} | {promise} |"


def main(words: list[str]) -> int:
    """Write the document, or tell by the exit code whether it is current."""
    new = "\n\n".join(document()) + "\n"
    if words != ["--check"]:
        DOCUMENT.write_text(new)
    elif not DOCUMENT.exists() or DOCUMENT.read_text() != new:
        sys.stderr.write(f"not current: {DOCUMENT.name}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
