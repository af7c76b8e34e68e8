"""The migration from apex.amp to torch.amp, which is the fix of MP104."""
