"""Losses as pure tensor functions, one equation per file."""
