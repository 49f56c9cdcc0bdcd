"""robosuite's tasks on seven arms: its models, placement and verdict; loop, start and dwell are ours."""
