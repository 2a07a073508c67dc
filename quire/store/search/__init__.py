"""Full-text and vector search over chunks."""
