"""Verified facts about frameworks, dtypes and hardware, as TOML."""
