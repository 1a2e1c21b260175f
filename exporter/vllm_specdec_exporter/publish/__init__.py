"""Publication: results as metrics, JSON, pages, log events and reports.

Reads results only.
"""
