"""The rules that come with the exporter, written down once; `alerts/generate.py` makes
plain YAML of them.

Rule modules import `series` as `s` (names of series, pieces of PromQL) and `text` as
`t` (pieces of texts).
"""
