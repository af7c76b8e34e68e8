"""Rules about APIs and policies (MP1xx)."""
