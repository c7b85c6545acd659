"""The engine's doorway: the only package that talks to the server (through redis-py)."""
