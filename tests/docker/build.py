"""The Dockerfile's own steps, executed with the machine's Python: every RUN and COPY, below a folder."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from docker.dockerfile import ROOT, Stage, stage, stages

#: Folders of the image that the stages write to.
_FOLDERS = re.compile(r"(?<![\w./-])/(opt|dist|src)(?=[/\s]|$)")
_STEP_SECONDS = 300.0


@dataclass(frozen=True)
class Image:
    """What came out."""

    root: Path  # the folder that stands for the root of the image

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a container: what the last stage sets, over what its base has."""
        values = {
            name: Template(mapped(value, self.root)).substitute(PATH="/usr/local/bin:/usr/bin:/bin")
            for name, value in stage("").environment.items()
        }
        return {"LANG": "C.UTF-8", **values}

    @property
    def venv(self) -> Path:
        """The virtual environment."""
        return self.root / "opt" / "vllm-specdec-exporter"

    def command(self, argv: list[str]) -> list[str]:
        """Return a command of the Dockerfile with the path of its program, as PATH finds it."""
        program = shutil.which(argv[0], path=self.environment["PATH"])
        assert program is not None, argv
        return [program, *argv[1:]]


def mapped(text: str, root: Path) -> str:
    """Return a text with the folders of the image below another root, and with the machine's cache of pip."""
    return _FOLDERS.sub(lambda found: f"{root}/{found[1]}", text.replace("--no-cache-dir ", ""))


def build(folder: Path) -> Image:
    """Execute the stages in an empty folder, and return what the last one has."""
    programs = folder / "bin"
    programs.mkdir()
    python = programs / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    roots: dict[str, Path] = {}
    for one in stages():
        roots[one.name] = folder / f"stage-{one.name or 'image'}"
        roots[one.name].mkdir()
        _run_stage(one, roots, programs)
    return Image(roots[""])


def _run_stage(one: Stage, roots: dict[str, Path], programs: Path) -> None:
    root = roots[one.name]
    workdir = root
    for step in one.instructions:
        if step.name == "WORKDIR":
            workdir = Path(mapped(step.text, root)) if step.text != "/" else root
            workdir.mkdir(parents=True, exist_ok=True)
        elif step.name == "COPY":
            *sources, target = step.arguments.split()
            origin = step.flags.get("from")
            for source in sources:
                found = Path(mapped(source, roots[origin])) if origin else ROOT / source
                _copy(found, target, root, workdir)
        elif step.name == "RUN":
            done = subprocess.run(
                ["/bin/sh", "-c", mapped(step.text, root)],
                cwd=workdir,
                env=_of_the_builder(programs),
                capture_output=True,
                text=True,
                timeout=_STEP_SECONDS,
            )
            assert done.returncode == 0, f"{step.text}\n{done.stdout}{done.stderr}"


def _copy(source: Path, target: str, root: Path, workdir: Path) -> None:
    """Copy as COPY does: the contents of a folder, or a file, into the target or to it."""
    place = Path(mapped(target, root)) if target.startswith("/") else workdir / target
    if source.is_dir():
        ignore = shutil.ignore_patterns("__pycache__") if source.is_relative_to(ROOT) else None
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, ignore=ignore)
        _relink(place, source)
        return
    if target.endswith("/"):
        place.mkdir(parents=True, exist_ok=True)
        place /= source.name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, place)


def _relink(place: Path, source: Path) -> None:
    """Put the new folder in the place of the old one in the scripts of a virtual environment.

    In the image both stages have the environment at the same path; here each has a root of its own.
    """
    scripts = place / "bin"
    if (place / "pyvenv.cfg").is_file():
        for script in (one for one in scripts.iterdir() if one.is_file() and not one.is_symlink()):
            data = script.read_bytes()
            script.write_bytes(data.replace(str(source).encode(), str(place).encode()))


def _of_the_builder(programs: Path) -> dict[str, str]:
    """The environment of a build step: the machine's, without what is Python's or ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VLLM_SPECDEC", "VIRTUAL_ENV", "SOURCE_DATE_EPOCH"))
    }
    return {**kept, "PATH": f"{programs}:{os.environ['PATH']}"}
