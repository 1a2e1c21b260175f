"""For all tests of the tap: examples take as long as a busy machine needs."""

from hypothesis import settings

settings.register_profile("tap", deadline=None)
settings.load_profile("tap")
