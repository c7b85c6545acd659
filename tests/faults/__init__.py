"""Faults injected into a real server: the k-th command of a script fails."""
