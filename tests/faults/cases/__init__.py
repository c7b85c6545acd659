"""Kinds of faults that people who run queues like this one have met and reported, each case as a test.

A test names its case: ``@pytest.mark.case("A1")``. The letters and what they stand for are in catalogue.py;
docs/reliability.md is the table of all of them, with the result of the last run.
"""
