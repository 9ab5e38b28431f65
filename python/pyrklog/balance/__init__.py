"""Plans where replicas lie, and predicts what moving them costs (balance.md). Pure."""
