"""Rules about numerics (MP2xx)."""
