"""Training data: public data sets, written claims, claims made by rule, batches."""
