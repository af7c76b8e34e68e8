"""The mistakes that `benchmarks/mutations.py` puts into right code: each module enters its kinds into one table."""
