"""torch models: programs of torch.export, TorchScript, pickled checkpoints and live modules."""
