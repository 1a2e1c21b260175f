"""Write generated files, or check that they are current; for rules, dashboards and
chart.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def bring_up_to_date(
    texts: Mapping[Path, str], left: Iterable[Path] = (), *, check: bool = False
) -> int:
    """Write what differs and remove what is left over; return the exit code.

    Args:
        texts: what each file must hold.
        left: files that nothing generates any more.
        check: change nothing, and fail if a file is not current.
    """
    stale = [
        path
        for path, text in texts.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    removed = [path for path in left if path not in texts]
    names = ", ".join(path.name for path in stale + removed)
    if check and names:
        sys.stderr.write(f"not current: {names}; run `make generate`\n")
        return 1
    for path in removed:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
    if names:
        sys.stdout.write(f"written: {names}\n")
    return 0
