"""Examples take as long as a busy machine needs."""

from hypothesis import settings

settings.register_profile("fuzz", deadline=None, max_examples=100)
settings.load_profile("fuzz")
