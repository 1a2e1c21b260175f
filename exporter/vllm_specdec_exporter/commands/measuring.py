"""What the commands share that measure how fast a server is without speculation, and
write a file for the exporter: `baseline`, `calibrate`, and `history` with ``--out``.
"""

from pathlib import Path

from msgspec import Struct

from ..economics.speculative_config import WITHOUT_MODEL
from . import arguments as cli

#: Why steps with drafts and steps without come from one server only without a draft
#: model.
NOT_PLAIN = "with a draft model, steps with K=0 still cost its first pass"
#: Methods that draft without a model, as a text.
LOOKUPS = ", ".join(sorted(WITHOUT_MODEL))


class ExporterFile(Struct, frozen=True):
    """The file of ``--out``."""

    path: Path
    option: str  # of the exporter, which reads it

    def check(self) -> None:
        """Raise ConfigError if it cannot be written: before minutes of measuring, not
        after them.
        """
        cli.check_writable("--out", self.path)

    def write(self, body: bytes) -> None:
        """Write it, or raise ConfigError."""
        cli.write_file("--out", self.path, body)

    @property
    def next_step(self) -> str:
        """What to do with it, in words."""
        return f"give it to the exporter with {self.option} {self.path}"

    @property
    def written(self) -> str:
        """Where it is, and what to do with it."""
        return f"written to {self.path}; {self.next_step}"
