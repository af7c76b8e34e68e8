"""Rules about what only a graph shows (MP405, MP407, MP6xx)."""
