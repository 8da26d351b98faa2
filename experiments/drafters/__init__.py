"""Drafters side by side on prompts that no drafter was trained on."""
