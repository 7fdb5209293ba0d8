"""From a placement sweep to a rule for routes, and how sure it is."""
