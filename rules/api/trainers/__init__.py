"""What the rules about trainers (MP109, MP110) know of each of them."""
