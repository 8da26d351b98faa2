"""Speed ratios on this machine, both sides of each measured side by side in one run."""
