"""The tests of single requests draw examples on machines whose speed says nothing about the code."""

from hypothesis import settings

settings.register_profile("per_request", deadline=None, max_examples=60)
settings.load_profile("per_request")
