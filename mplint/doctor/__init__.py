"""A user's training under instruments: where values leave the range of a dtype, what becomes of gradients, how the scaler is used."""
