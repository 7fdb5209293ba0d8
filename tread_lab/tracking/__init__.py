"""Views of the records elsewhere: MLflow, TensorBoard, W&B."""
