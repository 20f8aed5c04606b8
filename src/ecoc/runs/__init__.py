"""Runs: their settings and the folder that holds what came of them."""
