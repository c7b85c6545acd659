"""The embedded server, with real processes and real signals."""
