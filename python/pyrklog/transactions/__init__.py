"""The transaction coordinator (KIP-98, KIP-890): see docs/understanding/transactions.md."""
