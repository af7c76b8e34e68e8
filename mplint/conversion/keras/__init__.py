"""Converting Keras models: .keras archives, .h5 files and live models."""
