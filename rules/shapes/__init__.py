"""Rules about shapes and speed (MP4xx)."""
