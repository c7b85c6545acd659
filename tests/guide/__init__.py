"""What the documents tell people to do, done."""
