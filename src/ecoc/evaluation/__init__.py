"""Judging: rank metrics, intervals, paired comparison."""
