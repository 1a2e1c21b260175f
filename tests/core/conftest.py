"""The tests of the core draw examples on machines whose speed says nothing about the code."""

from hypothesis import settings

settings.register_profile("core", deadline=None, max_examples=60)
settings.load_profile("core")
