"""TensorFlow SavedModels, read without TensorFlow."""
