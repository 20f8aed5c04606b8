"""Training: one step, the loop around it, and the run folder it writes."""
