"""A file of cost profiles, as `calibrate` writes one: with it, a speedup near 1 has a
verdict too.
"""

import atexit
import shutil
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import yaml

from vllm_specdec_exporter import economics


@cache
def calibrated_file() -> str:
    """Return the path of a file for `--cost.file` with the shipped profiles as if
    measured on the machine.
    """
    shipped = Path(economics.__file__).with_name("profiles.toml")
    document = tomllib.loads(shipped.read_text("utf-8"))
    for profile in document["profiles"].values():
        profile |= {"basis": "calibrated", "uncertainty": 0.15}
        # what is measured, is so with one draft model
        if ratio := profile.get("typical_size_ratio"):
            profile["size_ratio"] = ratio
    folder = tempfile.mkdtemp(prefix="calibrated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "profiles.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return str(path)
