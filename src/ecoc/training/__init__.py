"""Training: one loop, its optimiser, its checkpoints."""
