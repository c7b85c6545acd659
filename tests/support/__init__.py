"""What the tests share: servers, waiting, and checks."""
