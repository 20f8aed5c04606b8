"""Data: raw logs in, prepared datasets out."""
