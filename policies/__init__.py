"""Decides what to do about verdicts: rules and inputs in, decisions out. Pure and synchronous."""
