"""What a policy that looks back was shown before: the rows of its window, episode by episode."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from morph_vla.engines.engine import ENVIRONMENT
from morph_vla.errors import MorphVlaError

EPISODES = 4096
"""That are remembered at once; the one that was asked about longest ago is forgotten first"""


class History:
    """The states and poses of each episode, as far back as a window reaches.

    An episode begins at step 0, whatever was known of its number. Rows that were not shown are not guessed:
    the policy must be asked every `stride` control steps, or more often by a whole number.
    """

    def __init__(self, lags: Sequence[int]):
        """`lags` are control steps back, the oldest first, the last one 0."""
        self._lags = lags
        self._episodes: OrderedDict[object, dict[int, Mapping[str, Any]]] = OrderedDict()

    def windows(
        self, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[Shaped[np.ndarray, "b w s"], Shaped[np.ndarray, "b w e"], Bool[np.ndarray, "b w"]]:
        """States and poses of each observation's window, and which of its rows are of the episode.

        Those before its start repeat its first row. Raises MorphVlaError for a row that was not shown.
        """
        windows = [self._window(row) for row in rows]
        states = _stacked(windows)
        poses = np.asarray([[row[ENVIRONMENT] for row in window] for window in windows], np.float32)
        steps = np.asarray([[row.get("step", 0)] for row in rows])
        return states, poses, steps >= np.asarray(self._lags)

    def states(self, rows: Sequence[Mapping[str, Any]]) -> Shaped[np.ndarray, "b w s"]:
        """The states alone. Raises MorphVlaError for a row that was not shown."""
        return _stacked([self._window(row) for row in rows])

    def _window(self, row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        episode, step = row.get("episode", 0), int(row.get("step", 0))
        its_key = row.get("connection"), episode  # clients of one server may count alike
        before = self._episodes.pop(its_key, {})  # so that it is the last one below
        # Neither what lies too far back nor what comes later, which an episode begun anew has not seen.
        known = {at: shown for at, shown in before.items() if step - self._lags[0] <= at < step}
        known[step] = {key: np.array(row[key]) for key in ("state", ENVIRONMENT) if key in row}
        self._episodes[its_key] = known
        if len(self._episodes) > EPISODES:
            self._episodes.popitem(last=False)
        wanted = [max(0, step - lag) for lag in self._lags]
        missing = [at for at in wanted if at not in known]
        if missing:
            stride = stride_of(self._lags)
            raise MorphVlaError(
                f"episode {episode}, step {step}: this policy looks back at step {missing[-1]}, at which it "
                f"was not asked; ask it every {stride} control steps from step 0 on (--open-loop {stride})"
            )
        return [known[at] for at in wanted]


def stride_of(lags: Sequence[int]) -> int:
    """Control steps from one row of a window to the next; 0 where it has no row but the present one.

    A policy that is asked every n control steps is shown every row of its windows where n divides this.
    """
    return lags[0] // (len(lags) - 1) if len(lags) > 1 else 0


def _stacked(windows: Sequence[Sequence[Mapping[str, Any]]]) -> Shaped[np.ndarray, "b w s"]:
    return np.asarray([[row["state"] for row in window] for window in windows], np.float32)
