"""`python -m fdml` is the same as `fdml`."""

from fdml.cli.app import main

main()
