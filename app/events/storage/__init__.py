"""How events reach the database: the writer, the journal, inserts and retention."""
