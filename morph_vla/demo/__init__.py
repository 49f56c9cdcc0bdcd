"""The main job, small and real: from a URDF to a success rate with its interval (`job.run`)."""
