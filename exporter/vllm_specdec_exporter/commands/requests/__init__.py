"""`requests`: what files of recorded answers say about single requests."""
