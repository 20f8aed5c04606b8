"""Sections of reports, one module per kind; they arrange what was computed elsewhere."""
