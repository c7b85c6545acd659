"""The duties that keep a queue whole: promote, reclaim, reconcile, audit. Each is one pass with a report."""
