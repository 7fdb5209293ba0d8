"""One task: its trial, its attempts, and when a failed attempt is tried again."""
