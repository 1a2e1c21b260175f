"""Write `dashboards/json/*.json` and `docs/reference/panels.md` from `*.dashboard.py`, or check that they are current.

python dashboards/generate.py [--check] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grafana_panels.catalogue import catalogue
from grafana_panels.dashboard import Dashboard, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
JSON = HERE / "json"
CATALOGUE = HERE.parent / "docs" / "reference" / "panels.md"


def dashboards() -> Iterator[Dashboard]:
    """Yield the dashboard of every `*.dashboard.py`, as grafanalib's own command would find it."""
    for path in sorted(HERE.glob("*.dashboard.py")):
        spec = importlib.util.spec_from_file_location(path.stem.replace(".", "_"), path)
        if spec is None or spec.loader is None:
            msg = f"{path} cannot be loaded"
            raise ImportError(msg)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module.dashboard


def main() -> int:
    """Write or check the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not current")
    parser.add_argument("--out", type=Path, default=JSON, help="where the files go")
    args = parser.parse_args()
    found = list(dashboards())
    texts = {args.out / f"{one.uid}.json": encode(one) for one in found}
    if args.out == JSON:
        texts[CATALOGUE] = catalogue(found)
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    left = [path for path in args.out.glob("*.json") if path not in texts] if args.out == JSON else []
    if args.check and (stale or left):
        names = ", ".join(path.name for path in stale + left)
        print(f"not current: {names}; run `make generate`", file=sys.stderr)
        return 1
    if not args.check:
        args.out.mkdir(parents=True, exist_ok=True)
        for path in stale:
            path.write_text(texts[path], encoding="utf-8")
        for path in left:
            path.unlink()
        if stale:
            print(f"written: {', '.join(path.name for path in stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
