"""The CPU kernels: one pass of a Llama-type decoder in one call, compiled on this machine at first use."""
