"""Converting models to a mixed-precision policy: plan, write, verify."""
