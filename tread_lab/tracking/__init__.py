"""Views of the records elsewhere: MLflow."""
