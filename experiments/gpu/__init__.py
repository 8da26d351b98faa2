"""Decode steps on a CUDA device against its memory bandwidth, and the text of a small model there."""
