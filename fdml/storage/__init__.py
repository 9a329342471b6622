"""Files that must last: one way to write them."""
