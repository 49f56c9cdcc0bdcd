"""robosuite's tasks on six arms: its models, placement and verdict; loop, start and dwell are ours."""
