"""Dynamic depth for speculative decoding: policies, a batched engine, and the proof that it is lossless."""

__version__ = "0.1.0.dev0"
