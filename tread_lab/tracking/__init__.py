"""Trackers as views of the records: MLflow, and those that accelerate knows."""
