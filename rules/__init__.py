"""The rules: one file a rule, found by the registry through the package walk."""
