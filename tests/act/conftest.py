"""The tests of `act` draw examples on machines whose speed says nothing about the code."""

from hypothesis import settings

settings.register_profile("act", deadline=None, max_examples=60)
settings.load_profile("act")
