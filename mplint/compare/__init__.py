"""A user's training script, run once per precision policy in processes of its own, and what the runs say."""
