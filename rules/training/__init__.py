"""Rules about the training loop (MP3xx)."""
