"""How a fix brings a GradScaler into a program: where it is built, who gets it, and what steps, unscales and saves through it."""
