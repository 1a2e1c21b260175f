"""What a message of judgement says, by its name and numbers instead of its words."""

from vllm_specdec_exporter.judgement.messages import Message


def name_of(sentence: object) -> str:
    """The name of a message; empty for any other text."""
    if isinstance(sentence, Message):
        return sentence.name
    return ""


def values_of(sentence: object) -> dict[str, object]:
    """The values of a message."""
    assert isinstance(sentence, Message), sentence
    return sentence.values
