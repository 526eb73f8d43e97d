"""One module per command of the command line; cli.py puts them together."""
