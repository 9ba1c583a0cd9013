"""`python -m unsoftmax`."""

from unsoftmax.cli.app import main

main()
