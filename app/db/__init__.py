"""The database layer: engine, transactions, tables and partitions."""
