"""Tuning by exact losses."""
