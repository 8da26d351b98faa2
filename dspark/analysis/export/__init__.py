"""From schedules, temperatures, profiles and runs to the files that other programs read."""
