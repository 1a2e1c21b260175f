"""The tests of economics draw examples on machines whose speed says nothing about the code."""

from hypothesis import settings

settings.register_profile("economics", deadline=None, max_examples=60)
settings.load_profile("economics")
