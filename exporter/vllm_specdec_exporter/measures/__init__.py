"""Measures: windows, ratios and distributions of an engine, from its counters."""
