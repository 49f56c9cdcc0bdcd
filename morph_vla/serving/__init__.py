"""A checkpoint as a policy, in this process (and, later, behind openpi's protocol)."""
