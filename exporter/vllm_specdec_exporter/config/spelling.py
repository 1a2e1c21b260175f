"""Words that were probably meant, for errors about those that are not known."""

from collections.abc import Iterable


def nearest(word: object, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the known word that is most like `word`, empty if none has this likeness,
    0 to 1.
    """
    import difflib  # here, for the memory of a sidecar

    return "".join(difflib.get_close_matches(str(word), known, 1, likeness))


def hint(word: object, known: Iterable[str]) -> str:
    """Return what to append to an error, if a known word is like `word`."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""
