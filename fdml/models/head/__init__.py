"""The joint function that learns: a small network over the sum of the parties' vectors."""
