"""One module per subcommand of ``neoxlite data``."""
