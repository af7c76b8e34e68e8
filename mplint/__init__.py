"""mplint finds, explains and fixes mixed-precision mistakes in Keras, TensorFlow and PyTorch code."""

__version__ = "0.1.0"
