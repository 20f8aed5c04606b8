"""Runs: their settings, and the folder that holds their metrics, weights and results."""
