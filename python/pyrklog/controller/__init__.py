"""The controller: leaders, ISRs, and the life of topics."""
