"""Settings of a reporter from environment variables, for programs that take no others.

Their names do not begin with ``VLLM_``: vLLM warns of such that are not its own, or refuses to start.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from .reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .watch import Labels

#: The variables, and what each means.
VARIABLES = {
    "SPECDEC_PUSH_URL": "address of the exporter, such as `http://127.0.0.1:9850`; needed",
    "SPECDEC_PUSH_TOKEN_FILE": "file with the bearer token, read anew for every push; needed",
    "SPECDEC_PUSH_CA_FILE": "certificates that vouch for the exporter's, PEM; by default those of the system",
    "SPECDEC_PUSH_TYPE_HEADER": "request header with the type; by default `X-Request-Type`, empty for none",
    "SPECDEC_PUSH_TYPES": "rules for requests without that header, one a line, as in `--requests.type`",
    "SPECDEC_PUSH_TENANT_HEADER": "request header that names the tenant",
    "SPECDEC_PUSH_TENANTS": "tenants that are named to the exporter, between commas; every other is `other`",
}


def reporter_from(environ: Mapping[str, str]) -> Reporter:
    """Return the reporter that the environment describes.

    Raises:
        ValueError: a variable is missing, or means nothing; the message names it.
    """
    for name in ("SPECDEC_PUSH_URL", "SPECDEC_PUSH_TOKEN_FILE"):
        if not environ.get(name):
            msg = f"the environment variable {name} is needed: {VARIABLES[name]}"
            raise ValueError(msg)
    tls = None
    if ca_file := environ.get("SPECDEC_PUSH_CA_FILE"):
        try:
            tls = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            msg = f"SPECDEC_PUSH_CA_FILE: {ca_file} cannot be used: {error}"
            raise ValueError(msg) from error
    url = environ["SPECDEC_PUSH_URL"]
    try:
        return Reporter(url, token_file=environ["SPECDEC_PUSH_TOKEN_FILE"], tls=tls)
    except ValueError as error:
        msg = f"SPECDEC_PUSH_URL: {error}"
        raise ValueError(msg) from error


def labels_from(environ: Mapping[str, str]) -> Labels:
    """Return how the environment says that requests are classified."""
    labels: Labels = {}
    if (type_header := environ.get("SPECDEC_PUSH_TYPE_HEADER")) is not None:
        labels["type_header"] = type_header
    if rules := environ.get("SPECDEC_PUSH_TYPES"):
        labels["types"] = [line.strip() for line in rules.splitlines() if line.strip()]
    if header := environ.get("SPECDEC_PUSH_TENANT_HEADER"):
        labels["tenant_header"] = header
    if tenants := environ.get("SPECDEC_PUSH_TENANTS"):
        labels["tenants"] = [name.strip() for name in tenants.split(",") if name.strip()]
    return labels
