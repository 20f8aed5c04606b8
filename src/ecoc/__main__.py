"""`python -m ecoc` is the command `ecoc`."""

from ecoc.cli import main

main()
