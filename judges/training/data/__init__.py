"""Training data: public data sets, handwritten claims, rule-generated claims, and batches."""
