"""Trainers and launchers that choose the precision for the user: what a program or a configuration file sets for them."""
