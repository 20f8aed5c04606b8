"""Serving: bundles, the engine that answers requests, the HTTP server and its page."""
