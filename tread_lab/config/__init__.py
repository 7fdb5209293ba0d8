"""YAML files and key=value overrides become specs."""
