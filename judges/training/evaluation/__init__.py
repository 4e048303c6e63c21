"""What the judge is measured by, and on what."""
