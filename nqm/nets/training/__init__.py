"""Real training, for the lab and for validation: the loop, update rules, K-FAC and trials."""
