"""Every command but `serve`, one module or package each.

They may import everything.
"""
