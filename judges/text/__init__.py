"""Text: Markdown, languages, and lexical search."""
