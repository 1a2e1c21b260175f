"""Settings: flags, environment, configuration file, and what follows from them."""
