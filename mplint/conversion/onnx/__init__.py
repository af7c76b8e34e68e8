"""Converting ONNX models: plan on measured tensors, write, and verify under true half semantics."""
