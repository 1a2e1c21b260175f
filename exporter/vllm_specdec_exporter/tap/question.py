"""The question: which requests are asked for their usage, and how that is put into their bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..per_request.exchange import Exchange
from ..per_request.usage import put_question

if TYPE_CHECKING:
    from .heads import RequestHead

#: Bytes of a request that are held back until it is whole; larger ones are not asked.
MAX_ASKED = 8 * 1024 * 1024

_LENGTH = re.compile(rb"(?im)^(content-length:[ \t]*)(\d+)([ \t]*\r?)$")
_CODINGS = re.compile(rb"(?im)^(accept-encoding:)[^\r\n]*")
_PLAIN_REFUSED = re.compile(r"(identity|\*)\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


def may_be_asked(head: RequestHead) -> bool:
    """Tell whether a request may be a stream that is asked, by its head.

    One that waits for a ``100 Continue`` sends its body after its head, in which the length would change. One
    that insists on a compressed answer would get one from which nothing can be taken out.
    """
    headers = head.headers
    if head.length is None or not 0 < head.length <= MAX_ASKED or "expect" in headers:
        return False
    if headers.get("te", "trailers").lower() != "trailers" or _PLAIN_REFUSED.search(
        headers.get("accept-encoding", "")
    ):
        return False
    return Exchange.concerns(head.method, head.path, headers)


def put_into(head: bytes, body: bytearray) -> bytes | None:
    """Put the question into `body`, and return the head that goes with it; ``None`` where it is not due.

    It is due in a stream that says nothing of its options. Its answer is not to be compressed, or else
    nothing could be taken out of it.
    """
    if len(_LENGTH.findall(head)) != 1:
        return None
    try:
        if not put_question(body):
            return None
    except Exception:  # noqa: BLE001 - traffic must go on; who observes meets the same defect, and says so
        return None
    length = b"%d" % len(body)
    head = _LENGTH.sub(lambda found: found[1] + length + found[3], head)
    return _CODINGS.sub(rb"\1 identity", head)
