"""The device table and detection on this machine."""
