"""The command line: thin, and light to import."""
