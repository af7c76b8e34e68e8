"""Converting programs of torch.export (.pt2) and live modules."""
