"""Converting TensorFlow SavedModels: the bodies of their functions, by TensorFlow's own rewriting of graphs."""
