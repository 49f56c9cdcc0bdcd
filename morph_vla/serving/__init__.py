"""A checkpoint as a policy, what its joints attend to, and training that is evaluated on the way."""
