"""Write `dashboards/json/*.json` and `docs/reference/panels.md` from `*.dashboard.py`, or check that they are current.

python dashboards/generate.py [--check]
python dashboards/generate.py --out FOLDER [--job REGEX] [--cluster LABEL] [--tags A,B] [--interval 30s]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grafana_panels.catalogue import catalogue
from grafana_panels.dashboard import Dashboard, encode
from grafana_panels.mixin import Mixin

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
    parser.add_argument("--job", default="", help="regular expression of the exporter's job")
    parser.add_argument("--cluster", default="", help="label of the cluster")
    parser.add_argument("--tags", default="", help="tags of all dashboards, with commas")
    parser.add_argument("--interval", default="", help="scrape interval")
    args = parser.parse_args()
    mixin = Mixin(args.job, args.cluster, tuple(filter(None, args.tags.split(","))), args.interval)
    if mixin != Mixin() and args.out == JSON:
        parser.error("--job, --cluster, --tags and --interval need --out: the committed files have none")
    found = list(dashboards())
    try:
        texts = {args.out / f"{one.uid}.json": _adapted(encode(one), mixin) for one in found}
    except ValueError as error:
        parser.error(str(error))
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


def _adapted(text: str, mixin: Mixin) -> str:
    adapted = mixin.apply(json.loads(text))
    return json.dumps(adapted, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
