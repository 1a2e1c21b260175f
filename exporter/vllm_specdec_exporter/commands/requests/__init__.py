"""`requests`: acceptance of single requests, from files of recorded answers."""
