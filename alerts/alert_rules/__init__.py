"""The rules that come with the exporter, written down once; `alerts/generate.py` makes plain YAML of them."""
