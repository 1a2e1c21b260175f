"""`baseline`: record how fast a server is without speculation."""
