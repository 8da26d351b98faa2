"""What experiments with a trained drafter share: its rivals, prompts by domain, and tiny ones to try out."""
