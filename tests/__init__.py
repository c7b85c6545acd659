"""The test suite; a package, so that no other installed `tests` can be taken for it."""
