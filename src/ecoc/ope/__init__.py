"""Off-policy evaluation: what policies would earn, estimated from a log."""
