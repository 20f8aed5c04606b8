"""What acts: a history becomes scores of items."""
