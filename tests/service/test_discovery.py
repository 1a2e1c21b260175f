"""Discovery by DNS: names in --vllm.url, answers of name servers, and the whole against a real one."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dnslib import QTYPE, RR, SRV, DNSRecord
from hypothesis import given
from hypothesis import strategies as st

from support.programs import find_program
from vllm_specdec_exporter.config.values import parse_servers
from vllm_specdec_exporter.serve.dns import decode_answer, encode_query

CASES = Path(__file__).with_name("discovery_cases.py")
#: Port 53 and the addresses of 10.0.0.0/8 for the command behind it, with name servers of its own.
_NETWORK = """
set -eu
mount --bind "$1" /etc/resolv.conf
ip link set lo up
ip address add 10.0.0.1/8 dev lo
ip address add fd00::ffff/64 dev lo nodad
shift
exec "$@"
"""


@pytest.mark.full
def test_against_a_dns_server(tmp_path: Path) -> None:
    """Names that appear and vanish, 200 pods, and no answer: `discovery_cases.py`."""
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text(
        "search example.internal cluster.local\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
    )
    find_program("ip", "iproute2")
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    inner = (sys.executable, "-m", "pytest", str(CASES), "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = ("unshare", *user, "--net", "--mount", "sh", "-c", _NETWORK, "sh", str(resolv_conf), *inner)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    if "unshare: " in done.stderr:
        pytest.skip(f"the kernel has no namespaces for this user: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_are_told_from_addresses() -> None:
    """Both spellings of Thanos; what cannot be a name is refused; the rest is as without."""
    for text, discovery, url in (
        ("http://vllm:8000", "", "http://vllm:8000/metrics"),
        ("dns+http://vllm.llm.svc:8000", "dns", "http://vllm.llm.svc:8000/metrics"),
        ("dns+https://vllm.llm.svc/m", "dns", "https://vllm.llm.svc/m"),
        ("dnssrv+http://_http._tcp.vllm.llm.svc", "dnssrv", "http://_http._tcp.vllm.llm.svc/metrics"),
    ):
        target = parse_servers(text)
        assert (target.discovery, target.url) == (discovery, url)
    for text in ("dns+unix:/tmp/x", "dnssrv+http://vllm:8000", "dns+vllm:8000", "srv+http://vllm"):
        with pytest.raises(ValueError, match=r"name|port|address"):
            parse_servers(text)


def test_answers_of_other_programs_are_read() -> None:
    """Each record once, sorted, with names that are compressed; the root is no server."""
    query = DNSRecord.parse(encode_query("_http._tcp.vllm.llm"))
    assert (str(query.q.qname), QTYPE[query.q.qtype]) == ("_http._tcp.vllm.llm.", "SRV")
    reply = query.reply()
    for host, port in (("b.vllm.llm", 8000), ("a.vllm.llm", 8001), ("b.vllm.llm", 8000), (".", 1)):
        reply.add_answer(RR("_http._tcp.vllm.llm", QTYPE.SRV, rdata=SRV(0, 0, port, host)))
    whole = bytes(reply.pack())
    sent = encode_query("_http._tcp.vllm.llm")
    assert decode_answer(whole[:2] + sent[2:], whole) == [("a.vllm.llm", 8001), ("b.vllm.llm", 8000)]
    for length in range(len(whole)):
        with pytest.raises(OSError, match=r".+"):
            decode_answer(whole, whole[:length])


@given(st.binary(max_size=80))
def test_hostile_answers_fail_as_answers(data: bytes) -> None:
    """Whatever stands in it, the answer is read or refused, and nothing loops."""
    head = b"ab\x84\x00\x00\x01\x00\x02\x00\x00\x00\x00"
    with contextlib.suppress(OSError):
        decode_answer(b"ab", head + data)


@pytest.mark.timeout(20)
def test_a_name_that_points_into_itself_is_refused() -> None:
    """Read on, it would never end: a label, and behind it a pointer to that label."""
    head = b"ab\x80\0" + bytes.fromhex("0001 0000 0000 0000")
    with pytest.raises(OSError, match="points"):
        decode_answer(b"ab", head + b"\x01a\xc0\x0c" + bytes(4))
