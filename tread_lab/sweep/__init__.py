"""Many runs: plan, execute, and what it takes."""
