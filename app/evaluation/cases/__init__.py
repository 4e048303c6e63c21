"""What is judged and what came of it: cases, the files they come in, and their results."""
