"""Timing Ropewalk beside other rotary embeddings; not part of the installed package."""
