"""A tuned schedule in vLLM's CPU build, next to fixed depths, and what replay foretold."""
