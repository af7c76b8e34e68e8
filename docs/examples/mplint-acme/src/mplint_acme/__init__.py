"""Rules of Acme for mplint."""
