"""Imports aiohttp without what it reads of the system; import this before anything of aiohttp.

At import aiohttp loads the system's certificate authorities, into two contexts that are not used here
(`tls.client_context` makes its own), and the system's table of file types, for files, which are not served.
Both together would take 2.5 MiB of a sidecar, and a quarter of the processor time of its start. Another MiB
would be libraries for archives, which `shutil` does without.
"""

from __future__ import annotations

import mimetypes
import ssl
import sys

_ARCHIVES = {"bz2", "lzma"} - sys.modules.keys()

mimetypes.knownfiles.clear()
# Marks them as not there, for as long as aiohttp imports.
sys.modules.update(dict.fromkeys(_ARCHIVES))  # type: ignore[arg-type]
# Hides the method of the base class, which the deletion shows again. An https request through aiohttp's own
# contexts would now fail, because they trust nobody.
ssl.SSLContext.set_default_verify_paths = lambda _context: None  # type: ignore[assignment, method-assign]
try:
    import aiohttp  # noqa: F401
finally:
    for name in _ARCHIVES:
        del sys.modules[name]
    del ssl.SSLContext.set_default_verify_paths
