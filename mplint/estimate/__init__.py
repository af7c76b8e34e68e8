"""What training a model costs in each precision: memory, the bound of a step's speed, and the largest batch that fits."""
