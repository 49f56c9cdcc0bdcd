"""A checkpoint as a policy, also on a server; what its joints attend to; evaluation during training."""
