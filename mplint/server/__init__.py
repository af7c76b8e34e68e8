"""The editor server: findings, fixes and what is in force on a line, over the language server protocol."""
