"""Every command but `serve` and `health`, one module or package each.

They may import everything.
"""
