"""The state machine over the public API: one class for each concern, put together in test_model.py."""
