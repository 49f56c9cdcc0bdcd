"""Files: the folders a user drops things into, typed YAML, writing whole or not at all, the cache."""
