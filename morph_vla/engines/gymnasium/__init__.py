"""Other simulators' environments, through gymnasium's vector interface or LeRobot's configs."""
