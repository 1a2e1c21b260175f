"""Observation: from one answer of a server to the published result of each of its engines."""
