"""YAML files and key=value overrides become specs, within limits; the only door to Hydra."""
