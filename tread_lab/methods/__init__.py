"""Published systems beside TREAD: each in a folder of its own, joined to runs by one protocol."""
