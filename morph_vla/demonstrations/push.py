"""The expert that pushes: an object too large or too flat to be grasped slides along the table into an area.

```
   behind   object                   target
     |        .-.                    +-----+
     |  ->   (   )  - - - - - - - >  |     |       seen from above; the hand is closed
     |        '-'                    +-----+
```

The hand comes down behind the object, as seen from the target, pushes it straight there, backs off and rises.
What slid off to the side on the way is pushed again, from where it lies then.

With several objects and targets (`Success.also`), which object goes first and which target each one goes to
are drawn from the attempt's number, all of them alike: demonstrations do the task in every way there is.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from morph_vla.demonstrations.experts import ALIGNED, Expert, Waypoint
from morph_vla.engines.engine import Sight
from morph_vla.robots.geometry import matrix_of
from morph_vla.suites.suite import ExpertSpec

TOUCHING = 0.7  # of `expert.behind`: the tool's distance from the object's centre while it pushes, about
LOWERED, BACK = 0.25, 0.4  # of `expert.behind`: over the table before the last stretch down; back afterwards
SPEED = 0.5  # of the expert's, while it pushes
ORDER = 2  # the stream of an attempt's random numbers from which its order is drawn


def waypoints(
    object_position: Float[np.ndarray, "3"], target_position: Float[np.ndarray, "3"], spec: ExpertSpec
) -> list[Waypoint]:
    """The tool's way through a push [m, rad].

    The closed hand is turned so that a flat side of it pushes: an eighth of a turn at most.
    """
    way = (target_position - object_position)[:2]
    heading_rad = math.atan2(way[1], way[0])
    along, up = np.array([math.cos(heading_rad), math.sin(heading_rad), 0.0]), np.array([0.0, 0.0, 1.0])
    turn_rad = heading_rad - spec.heading
    yaw_rad = 0.0 if spec.free_spin else (turn_rad + math.pi / 4) % (math.pi / 2) - math.pi / 4
    behind = object_position + spec.clearance * up - spec.behind * along
    end = np.array([*target_position[:2], behind[2]]) - TOUCHING * spec.behind * along
    off = end - BACK * spec.behind * along
    return [
        Waypoint(behind + spec.hover * up, yaw_rad, 1.0, free=True, seconds=spec.turn_seconds),
        Waypoint(behind + LOWERED * spec.behind * up, yaw_rad, 1.0, speed=0.8),
        Waypoint(behind, yaw_rad, 1.0, hold=1, speed=0.4),
        Waypoint(end, yaw_rad, 1.0, hold=2, speed=SPEED),
        Waypoint(off, yaw_rad, 1.0),
        Waypoint(off + spec.retreat * up, yaw_rad, 1.0, hold=2),
    ]


class Push(Expert):
    """Pushes the object into the target's box with the closed hand, as often as it takes."""

    def waypoints(self, seen: Sight) -> list[Waypoint]:
        """One push, from rest."""
        return waypoints(seen.object_position, seen.target_position, self.suite.expert)

    def aimed(self, seen: Sight, number: int) -> Sight:
        """The first object, in this attempt's order, that is not yet in its target's box; else the last."""
        every = (seen, *seen.also)
        rng = np.random.default_rng([self.suite.seed, number, ORDER])
        order, targets = rng.permutation(len(every)), rng.permutation(len(every))
        for thing, target in zip(order, targets, strict=True):
            seen = dataclasses.replace(every[thing], target_position=every[target].target_position)
            if not self._is_there(seen):
                break
        return seen

    def again(self, seen: Sight) -> list[Waypoint]:
        """Another push, where the object is not in the box."""
        return [] if self._is_there(seen) else self.waypoints(seen)

    def _is_there(self, seen: Sight) -> bool:
        """Whether the object is in the target's box; of several, in the circle that a turned box holds."""
        offset, success = seen.object_position - seen.target_position, self.suite.success
        if success.also:
            radius = min(abs(end) for end in (*success.low[:2], *success.high[:2]))
            return math.hypot(*offset[:2]) <= radius
        place = matrix_of(seen.target_quaternion).T @ offset  # the box turns with its target
        return bool(np.all(place >= success.low) and np.all(place <= success.high))

    def waypoints_from_here(self, seen: Sight) -> list[Waypoint]:
        """The push from wherever the tool stands; one that is behind the object, and low, goes on pushing."""
        spec, way = self.suite.expert, self.waypoints(seen)
        _, lowered, start, end, *_ = way
        along = (end.position - start.position) / np.linalg.norm(end.position - start.position)
        offset = self.tool(seen) - start.position
        forward = float(offset @ along)
        aside = float(np.linalg.norm(offset[:2] - forward * along[:2]))
        low = offset[2] < (lowered.position - start.position)[2]
        if low and aside < ALIGNED * spec.hover and abs(forward) < (1 - TOUCHING) * spec.behind:
            return way[3:]
        return super().waypoints_from_here(seen)
