"""What a user may turn: options of the command line, settings of configuration classes and files, the environment."""
