"""The figures of a sweep: numbers first, then their drawing."""
