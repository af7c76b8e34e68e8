"""Rules about hardware (MP5xx)."""
