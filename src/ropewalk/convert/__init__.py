"""Converting models between formats and pairings."""
