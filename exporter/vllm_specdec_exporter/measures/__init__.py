"""Measures: what an engine did within a window, from its counters."""
