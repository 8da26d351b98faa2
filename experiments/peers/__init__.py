"""dspark next to transformers and vLLM's CPU build: same model, prompts, dtype and count of tokens."""
