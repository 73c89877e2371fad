"""Tuning by sampled losses: settings race against each other on equal noise."""
