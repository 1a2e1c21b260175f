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
    "{count} faults, and what the exporter promises of each. Every one is injected into the running "
    "exporter by the test of its name in `tests/faults` or `tests/attacks`, which also sees that the "
    "process lives, that `/-/healthy` and `/-/ready` answer 200, and that everything is well again once the "
    "fault is gone, unless an exit is what is promised."
)

#: By area its name, its title, and what holds for all of its faults; by fault its name, what is injected, and
#: what is seen of the exporter meanwhile.
CATALOGUE = """\
## upstream: The server behind
Where a reason is named: `vllm_specdec_up` is 0, `vllm_specdec_poll_errors_total` counts under that reason
alone, and there is no series of any engine. The log says so once. With the first good answer everything is
back.
- refused: Nothing listens at the address, as while a model loads. => `reason="refused"`.
- closes_at_once: The server accepts connections and closes them. => `reason="reset"`.
- hangs_before_headers: The server takes the request and says nothing. => `reason="timeout"`.
- hangs_within_body: The server stops in the middle of its answer. => `reason="timeout"`.
- drips: The server sends its answer at a byte a second. => `reason="timeout"`.
- resets_within_body: The connection is reset in the middle of the answer. => `reason="malformed"`.
- truncated: The answer is shorter than its Content-Length. => `reason="malformed"`.
- unauthorized: The server answers 401. => `reason="http_status"`.
- forbidden: The server answers 403. => `reason="http_status"`.
- not_found: The server answers 404. => `reason="http_status"`.
- server_error: The server answers 500. => `reason="http_status"`.
- unavailable: The server answers 503 and asks not to come back for an hour. => `reason="http_status"`;
  polls go on as before.
- error_with_metrics: The server answers 503, with metrics. => `reason="http_status"`.
- redirect: The server redirects to another host. => `reason="redirect"`; the other host is never contacted.
- html: A proxy answers with its login page and status 200. => `reason="malformed"`.
- wrong_content_type: The metrics come under a Content-Type that is not theirs. => They are read all the
  same: `vllm_specdec_up` is 1, and no error is counted.
- empty: The answer is empty. => `reason="unrecognized"`.
- binary: The answer is binary. => `reason="malformed"`.
- http_garbage: What listens there does not speak HTTP. => `reason="malformed"`.
- endless_headers: The headers of the answer do not end. => `reason="malformed"`; memory stays below 150
  MiB.
- unasked_encoding: The answer is compressed, which nobody asked for. => `reason="malformed"`.
- half_written: The answer ends within a line, with a Content-Length that fits. => `reason="malformed"`.
- other_software: Other software with metrics of its own takes the server's place for a while. =>
  `reason="unrecognized"`; no window reaches back across it, and no reset is counted.
- too_large: The answer has 20 MiB. => `reason="too_large"`; memory stays below 150 MiB.
- many_series: The answer has 100,000 series of others beside the server's own. => `vllm_specdec_up` is 1,
  and `/metrics` stays below 1 MiB.
- many_engines: The answer has a thousand engines. => `reason="malformed"`.
- label_churn: The model has another name with each answer. => Only the newest name has series.
- nan_counter: A counter is NaN. => `reason="malformed"`.
- negative_counter: A counter is negative. => `reason="malformed"`.
- huge_counter: A counter is 1e300. => `reason="malformed"`.
- duplicate_samples: Each sample is there twice. => `reason="malformed"`.
- restart: The counters begin anew, without a failed poll in between. => `vllm_specdec_engine_resets_total`
  rises by 1, windows begin anew, nothing is negative, the log says it.
- k_changes: K changes from 4 to 2 and to 6. => Series per position are those of the new K; no share is
  above 1, nothing is negative.
- engines_merge: Two engines become one. => The series of the one that is gone are gone; nothing is
  negative.

## network: Names, addresses, sockets and TLS
Where a reason is named, the same holds as for the server behind. Nobody has to restart or reload anything.
- name_unknown: The server's name does not resolve yet. => `reason="unreachable"`; until it does.
- name_moves: The server comes back at another address under the same name. => `reason="refused"`; until the
  name is that of the new one, which is polled at once.
- name_service_silent: The name server does not answer. => `reason="timeout"`; one thread waits, however
  many polls there are; SIGTERM ends the process at once.
- connect_blackholed: Packets to the server vanish. => `reason="timeout"`; until they arrive again.
- ipv6_only: The name has an IPv4 and an IPv6 address, and the server listens on IPv6 alone. => It is polled
  there, and no error is counted.
- unix_socket_missing: The Unix socket is not there yet, or is left over from a server that was killed. =>
  `reason="refused"`.
- certificate_unusable: The server's certificate has expired, is for another name, or comes from an authority
  that is not trusted, or the server speaks plain HTTP where https is expected. => `reason="tls"`; no request,
  and no token, is sent; a renewed certificate counts at once.
- trusted_file_exchanged: `--vllm.ca-file` is exchanged for the right one, and later half written. => The next
  poll after the exchange succeeds. While the file is half written, what was trusted stays so, no poll fails,
  and the log says it once.

## clock: Time
Windows and intervals go by a clock that never jumps.
- wall_clock_jumps: The wall clock jumps forward by six hours, back by twelve, and to the right time. => No
  poll fails, windows grow by the time that really passed; only time stamps follow the wall clock.
- stopped_for_long: The process stands still (SIGSTOP, a frozen node) for longer than interval and timeout.
  => The very first scrape afterwards has `vllm_specdec_up` 0 and no series of any engine: nothing stale is
  served. The next poll brings everything back.
- stopped_for_a_moment: The process stands still for a second. => No error; the second is in the window, and
  the polls that were missed are not made up for.

## disk: Files and the log
A file that cannot be used changes nothing that is in force. Polls, scrapes and probes go on.
- configuration_unusable: The configuration file is gone, cannot be read, is half written, or has a wrong
  value at a reload. => Status 500 with the reason, `vllm_specdec_config_last_reload_successful` is 0; the old
  one stays in force. A reload of the mended file sets it to 1.
- configuration_link_swapped: The file is exchanged by a link further up, as Kubernetes does. => The next
  reload takes what the link points to.
- token_unusable: The bearer token file is removed, or is empty. => `reason="credentials"`; the server is not
  asked without a token. With another token in the file, polls succeed again.
- token_replaced: The bearer token file is exchanged. => The next poll shows the new one; no poll fails.
- web_configuration_emptied: The web configuration file is empty, only a comment, or cut off before the
  users. => Passwords are asked for as before, `vllm_specdec_config_last_reload_successful` is 0, the log
  says why; the mended file is in force by itself.
- no_room_to_write: No file can be written: a read-only file system, or a full one. => Nothing of it is
  seen: the exporter writes no files.
- act_state_disk_full: The state file of `act` cannot be written. => The command is not run, and a line says
  why. The repeated alert is acted upon once there is room, once.
- log_reader_stops: Nobody reads the pipe behind standard error any more. => Nothing waits for it. Lines are
  kept up to 256 KiB, the rest is left out, and a line says how many. SIGTERM ends the process with 0.
- log_unwritable: The other end of the pipe behind standard error is closed, or standard error is a file on a
  full disk, or is closed from the start. => Nothing of it is seen but the lines that lack; SIGTERM ends the
  process with 0.

## limits: Memory and descriptors
The process lives, and is itself again when there is enough.
- memory_exhausted: An answer of 16 MiB comes where 8 MiB are left. => `reason="internal"`; the log has the
  traceback; usual answers are read as before.
- descriptors_exhausted: The process may open no descriptor more. => `reason="unreachable"`; who is
  connected is answered, who comes waits; both go on by themselves. No traceback, and no line for each
  attempt.

## signals: Signals
SIGTERM and SIGINT end the process within two seconds, with exit code 0, `stopping` as the last line of its
log, and no traceback.
- sigterm_during_poll: SIGTERM while a poll hangs. => The poll is given up.
- sigterm_during_scrape: SIGTERM while a scraper does not take its answers. => It is cut off.
- sigterm_twice: SIGTERM, and more of it until the end. => The same as once.
- sigint: SIGINT while a poll hangs. => The same as SIGTERM.
- sigterm_before_it_serves: SIGTERM while the process starts. => It ends, without a traceback.
- sighup_storm: 300 SIGHUP in a row. => Each server is polled once an interval as before; windows go on, no
  reset is counted.
- sigpipe: SIGPIPE, and scrapers that go away while they are answered. => Nothing of it is seen.
- sigkill: SIGKILL, and a new process at the same port. => Counters are the server's: nothing is lost or
  counted twice. Windows and advice begin anew.

## configuration: Configuration changed at work
A reload waits for no poll. What is known of a server that stays is kept.
- reload_while_polls_hang: A reload while polls hang. => It takes effect at once.
- target_removed: A server is taken out of the file. => Its series are gone with the reload, and it is asked
  no more; the windows of the others go on.
- target_added: A server is added to the file. => Both have series; the first has lost nothing.
- interval_changed: `poll.interval` is changed. => Polls keep to the new one; windows go on, no reset.
- threshold_changed: A threshold is changed. => `vllm_specdec_threshold` and the judgement follow with the
  next poll; windows go on.

## certificates: The exporter's own certificate
A new certificate that can be used is in force within seconds, without a reload.
- expires_while_serving: The certificate expires while it is in force. => It is shown as before: scrapers
  that check it refuse it, probes are answered. A renewed one is taken by itself.
- unusable: The certificate is replaced by half of one, its file is gone, or its key is replaced by one that
  does not fit. => The old one stays in force, `vllm_specdec_config_last_reload_successful` is 0, the log says
  why.

## ports: Ports that are taken
One line names the flag, the address and the reason.
- taken_at_start: The port is taken. => Exit code 1.
- taken_by_itself: A second exporter is started on the port of the first. => Exit code 1; the first goes on.
- taken_for_a_sidecar: The port is taken, with `--startup.on-error=wait`, and freed later. => It waits, and
  serves within seconds of the port being free.
- taken_until_sigterm: The same, and SIGTERM comes first. => Exit code 0, at once.
- tap_taken: The tap's port is taken. => Exit code 1.
- tap_taken_for_a_sidecar: The tap's port is taken, with `--startup.on-error=wait`, and freed later. => The
  exporter serves, `vllm_specdec_tap_listening` is 0; the tap follows within seconds of the port being free.

## scrapers: Scrapers and other clients
Probes and scrapes of others are answered within two seconds all the while, and nothing is left of it
afterwards.
- never_reads: 60 scrapers ask and never read. => Memory stays below 150 MiB.
- asks_and_never_reads: 8 scrapers send 200 requests each and never read. => The process comes to rest:
  answers that nobody takes are not made. Memory stays below 150 MiB.
- dawdling: 6 clients connect and say nothing, and 6 send headers at two bytes a second. => They are cut off
  after 10 s.
- too_many_connections: More connections come than there may be at a time. => Each new one ends the one that
  has been idle for longest.
- stampede: 60 scrapes at once. => Each gets its answer; `/-/healthy` within 5 s.
- refused: A header or an address of 200 kB, a TLS handshake, or nonsense. => An error, or the end of the
  connection.
- pipelined: 39 requests come before the first answer. => They are answered in order.
- wrong_method: Methods that an address does not take. => Status 405; nothing is reloaded.
- aborts: 50 scrapers go away in the middle of their answers. => No warning in the log.

## requests: Single requests
The tap passes bytes on as they are, whatever becomes of the observation.
- tap_server_refuses: vLLM is not there behind the tap. => The client gets a 502,
  `vllm_specdec_tap_upstream_errors_total` counts `refused`.
- tap_server_dies_in_answer: vLLM dies in the middle of a streamed answer. => The client gets what there was
  and then the end; `vllm_specdec_tap_unobserved_total` counts `aborted`.
- tap_record_malformed: The record in an answer is impossible. => The client gets its answer; the record is
  counted as `malformed`, and no number comes of it.
- tap_exporter_told_to_end: SIGTERM while an answer passes through the tap, and SIGTERM again. => The first
  waits for the answer and says so, the second ends it at once, with exit code 0.
- push_token_wrong: A push with a wrong token. => Status 401; nothing is counted, and the token is not in
  the answer or the log.
- push_token_file_empty: The token file for pushes is empty. => Status 503 for everybody, also for an empty
  token, until it has one again.
- push_nonsense: Pushes that are no JSON, or hold impossible observations. => Status 400, or the good
  observations of a push are taken; `vllm_specdec_push_rejected_total` counts the rest.
- push_too_large: A push of 2 MiB. => Status 413.

## listeners: Attacks on ports and by servers
Through the tap every byte passes as it came, and the stream of another client goes on. Memory and processor
time stay far below the chart's limits; of 100 probes, 99 are answered within 200 ms of the process's time.
Nothing of it is left afterwards.
- endless_head: A header, its name or a URL without an end comes to the tap. => It is not collected.
- heads_of_many_names: 150 heads of 9,000 headers each come to the tap. => Only headers that are needed are
  kept.
- request_with_many_names: A request has 700,000 names in its JSON. => It is observed.
- request_in_tiny_chunks: A request comes in a million chunks. => It is not observed.
- answer_with_many_objects: An answer has two million choices, or a record of 700,000 names. => It is
  observed.
- event_in_small_pieces: An event of 3.9 MB comes in chunks of 100 bytes. => It is observed.
- streams_of_tiny_pieces: A stream has a million chunks, or a million events. => It is not observed.
- connections_that_take_all_descriptors: More connections come to the tap than the process may have. => Some
  are left for polls and for port 9850; the rest wait.
- compressed_bodies: 197 KB that become 200 MiB are posted. => No body is decompressed; a push gets 415.
- many_requests_at_a_time: 12 connections of each of four addresses ask all the time. => All are answered.
- requests_that_are_sent_ahead: 20 requests on each of 12 connections come before the first answer. => They
  are answered in turn.
- long_lists_of_encodings: A request accepts 24,000 encodings, or more. => It is answered, or not read.
- heads_that_never_end: Requests have headers without an end. => The connection is closed after 64 KiB, or
  after 10 s.
- heads_behind_requests: The same, behind a whole request. => The same, after its answer.
- empty_lines: Only empty lines come. => The connection is closed after 10 s.
- silent_connections_over_tls: 64 TLS connections are idle, as many as there may be. => They take less than
  30 MiB.
- server_with_many_positions: The server has 240 engines of 74 positions each. => Values per position are left
  out, with a finding; `/metrics` and the page stay below 3 MiB.
- credentials_that_the_server_quotes: The server repeats a token, a header's value or a secret of the URL in
  a reason phrase, a redirect or a malformed line. => They are masked on pages, in the log and by commands.
- model_name_that_turns_the_text_of_the_log: A model's name has controls of the direction of text. => They are
  escaped in the log.

## act: Attacks on `act`
By somebody who may send alerts, or write beside its state file.
- other_begins_do_not_repeat_an_action: Alerts request one decision again, with other begins and reasons. =>
  It is carried out once.
- a_payload_of_many_repeats_is_saved_once: A payload has many repeats of a decision. => The state file is
  written once, and only its user can read it.
- the_lock_does_not_empty_what_a_link_points_to: The lock file is a link to another file. => `act` does not
  start; that file keeps its content.
- scripts_do_not_see_the_credentials_of_an_exporter: The environment has the exporter's secrets. => The
  program does not get them.
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
        rows = (f"| `{area.name}/{each.name}` | {each.happens} | {each.promise} |" for each in area.faults)
        yield f"## {area.title}"
        yield area.promise
        yield "\n".join(["| fault | what happens | what is promised |", "|---|---|---|", *rows])


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
