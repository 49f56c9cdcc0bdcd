"""LeRobot datasets to batches: values, frames, statistics, normalisation, and which sample comes when."""
