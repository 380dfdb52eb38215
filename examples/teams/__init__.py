"""A day of three teams: one borrows at night, the others take back what is theirs in the morning, one of them is in a hurry."""
