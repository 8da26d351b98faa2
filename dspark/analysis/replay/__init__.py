"""Policies on recorded drafts: what any of them would have done, at any batch size and cost."""
