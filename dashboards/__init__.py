"""Pages over the records of a lab."""
