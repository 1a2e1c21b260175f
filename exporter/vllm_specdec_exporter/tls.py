"""TLS towards others: whom to trust."""

from __future__ import annotations

import json
import ssl


def trusting(ca_file: str | None, *, insecure: bool, flag: str) -> ssl.SSLContext:
    """Return settings that trust the system's certificates, or those of a file.

    Args:
        ca_file: certificates to trust instead of the system's; empty for none.
        insecure: whether to accept any certificate.
        flag: where the file was named, for the message.

    Raises:
        ValueError: the file holds no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (ssl.SSLError, OSError) as error:
        msg = f"{flag} {json.dumps(ca_file)}: no certificates in it ({error})"
        raise ValueError(msg) from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
