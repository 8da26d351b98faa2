"""Live runs next to their replays: the same depths and acceptance, and how well seconds are foretold."""
