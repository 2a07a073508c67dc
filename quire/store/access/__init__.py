"""Users, tokens, sessions and the audit log."""
