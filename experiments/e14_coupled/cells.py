"""What is run."""

RULES = ("rejection", "coupled")
TEMPERATURES = (0.7, 1.0)
DEPTHS = (4, 7)
