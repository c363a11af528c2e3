"""Differential privacy: mechanisms, events, accountants and audits."""
