"""Each promise with its test and its counter-proof: the same test, run against the code without just that guard, fails.

``make guards`` runs every pair and prints the table; ``make test`` runs the tests on the code as it is.
"""
