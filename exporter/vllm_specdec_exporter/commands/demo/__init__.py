"""`demo`: the whole thing in one terminal, with nothing to set up."""
