"""One HTML file about a sweep: question, answer, figures, cost and recipe."""
