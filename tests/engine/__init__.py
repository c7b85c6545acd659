"""The engine through its public API on a real server."""
