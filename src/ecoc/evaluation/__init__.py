"""Ranking quality: metrics, intervals, paired comparison, the normalisation test."""
