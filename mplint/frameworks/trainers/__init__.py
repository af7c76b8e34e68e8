"""Trainers, and the packages whose models they train: what they do for their users, and in which precision."""
