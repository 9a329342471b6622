"""A party's work spread over threads, processes or machines: `Workers` is the seam, and no maths is in it."""
