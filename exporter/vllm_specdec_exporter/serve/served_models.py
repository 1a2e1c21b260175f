"""The models of all targets: one --spec.config is of one model. Pure."""

from collections.abc import Iterable


class ServedModels:
    """The models that the targets of one exporter serve, as far as they are known.

    Attributes:
        models: of all of them.
    """

    def __init__(self) -> None:
        self.models: frozenset[str] = frozenset()
        self._by_target: dict[str, frozenset[str]] = {}

    def note(self, target: str, models: Iterable[str]) -> None:
        """Record what a target serves now."""
        served = frozenset(models)
        # They rarely change, and with a thousand targets a union is no small part of a
        # poll.
        if self._by_target.get(target) != served:
            self._by_target[target] = served
            self._join()

    def forget(self, target: str) -> None:
        """Forget a target that is gone."""
        if self._by_target.pop(target, None) is not None:
            self._join()

    def _join(self) -> None:
        self.models = frozenset().union(*self._by_target.values())
