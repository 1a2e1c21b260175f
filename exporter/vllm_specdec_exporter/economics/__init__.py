"""Economics: the cost of speculation, and the speedup that follows."""
