"""Inference engines: what is known of each, the dialects of their metrics, and their
normal form.
"""

from .dialect import Dialect, Unrecognized
from .documents import UNREADABLE, read_version
from .engine import Engine
from .response import Reader, ReadingEmptiesError, read
from .sglang import MAX_SERVER_INFO, ServerInfo, add_server_info, read_server_info
from .tables import DIALECT_NAMED, DIALECTS, ENGINE_OF, ENGINES

__all__ = [
    "DIALECTS",
    "DIALECT_NAMED",
    "ENGINES",
    "ENGINE_OF",
    "MAX_SERVER_INFO",
    "UNREADABLE",
    "Dialect",
    "Engine",
    "Reader",
    "ReadingEmptiesError",
    "ServerInfo",
    "Unrecognized",
    "add_server_info",
    "read",
    "read_server_info",
    "read_version",
]
