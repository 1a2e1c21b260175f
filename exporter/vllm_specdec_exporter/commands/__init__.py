"""The other commands, one module or package each. They may import everything."""
