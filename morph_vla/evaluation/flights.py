"""Episodes in flight: slots of a pool take the next rows of a table until every one has ended.

Slots are in groups that take turns: while the policy thinks about one group, the worlds of the others move.

    group A   | receive, ask, send |                    | receive, ask, send |
    group B                        | receive, ask, send |                    | receive, ask, send |
    worlds    B B B B B B B B B B B A A A A A A A A A A A B B B B B B B B B B B

Nothing of this reaches an episode: its initial state and its policy's random numbers come from its number.
"""

import dataclasses
import itertools
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from morph_vla.engines.pool import Answer, Begin, Execute, Lost, Message, Pool
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.asking import Asker
from morph_vla.evaluation.benchmark import Benchmark
from morph_vla.evaluation.chunking import Chunking, jumps
from morph_vla.evaluation.video import VideoWriter, write_picture
from morph_vla.results import films
from morph_vla.results.trial import Jumps, Trial
from morph_vla.suites.suite import InitialState


@dataclasses.dataclass
class Episode:
    """An episode in flight, or about to be."""

    state: InitialState
    begun: bool = False  # once before, and is played from its start again
    begun_anew: bool = False  # its first worker died
    answer: Answer | None = None
    film: VideoWriter | None = None  # where it is filmed
    left: np.ndarray | None = None  # of the answer that is being executed, at the next question
    targets: list[np.ndarray] = dataclasses.field(default_factory=list)  # sent, one array a question

    def forget_film(self) -> None:
        """It is played once more, from its start."""
        if self.film is not None:
            self.film.discard()
            self.film = None


class Flights:
    """The episodes of one task in a pool, asked of one policy. `notes` says what happened to workers."""

    def __init__(
        self,
        pool: Pool,
        asker: Asker,
        benchmark: Benchmark,
        chunking: Chunking,
        groups: int,
        folder: Path | None = None,
        filmed: int = 0,
    ):
        """Answers are executed as `chunking` says; episodes below `filmed` are filmed to `folder`."""
        self._pool, self._asker, self._benchmark = pool, asker, benchmark
        self._chunking, self._folder, self._filmed = chunking, folder, filmed
        self._name = uuid.uuid4().hex
        self._groups: list[list[int]] = [[] for _ in range(groups)]
        for slot in range(pool.slots):  # of one size, and every worker with more than one has slots of each
            self._groups[(slot // pool.width + slot % pool.width) % groups].append(slot)
        self._queue: deque[Episode] = deque()
        self._flying: dict[int, Episode] = {}
        self._anew: dict[str, list[int]] = {}

    @property
    def notes(self) -> list[str]:
        """A sentence for each way in which workers died, with the episodes that were begun anew."""
        return [
            f"{reason}; restarted in another worker: episodes {', '.join(map(str, sorted(numbers)))}"
            for reason, numbers in self._anew.items()
        ]

    def run(self, states: Sequence[InitialState]) -> Iterator[Trial]:
        """Yield a trial per state, as episodes end.

        Where some are filmed and a success or a failure is not among them, one is played again for its film,
        and yielded again with it. Raises MorphVlaError when no worker is left, and when the policy does not
        come back.
        """
        trials = {}
        for trial in self._fly(states):
            trials[trial.episode] = trial
            yield trial
        if any(trial.video for trial in trials.values()):
            yield from self._film_again(states, trials)

    def _film_again(self, states: Sequence[InitialState], trials: dict[int, Trial]) -> Iterator[Trial]:
        """Trials with their film. An episode is the same however often it is played: another is not taken."""
        wanted = films.worth_filming([trials[number] for number in sorted(trials)])
        self._filmed = max(wanted, default=-1) + 1
        for trial in self._fly([state for state in states if state.episode in wanted]):
            first = trials[trial.episode]
            if trial.video and trial.success == first.success:
                yield dataclasses.replace(first, video=trial.video)

    def _fly(self, states: Sequence[InitialState]) -> Iterator[Trial]:
        """Play the states, a trial each."""
        self._queue.extend(Episode(state) for state in states)
        for slots in itertools.cycle(self._groups):
            if not self._queue and not self._flying:
                return
            yield from self._turn(slots)

    def begin_no_more(self) -> None:
        """Leave out the states that have not begun; the episodes that have are finished."""
        self._queue = deque(episode for episode in self._queue if episode.begun)

    def _turn(self, slots: Sequence[int]) -> Iterator[Trial]:
        """One group's turn: what has come back, what begins, what goes on."""
        mine = [slot for slot in slots if slot in self._flying]
        for slot, answer in self._pool.receive(mine).items():
            yield from self._landed(slot, answer)
        going_on = [slot for slot in mine if slot in self._flying]
        self._begin([slot for slot in slots if slot not in self._flying])
        yield from self._ask(going_on)

    def _landed(self, slot: int, answer: Answer | Lost) -> Iterator[Trial]:
        episode = self._flying[slot]
        if isinstance(answer, Lost):
            del self._flying[slot]
            episode.forget_film()
            if episode.begun_anew:
                yield self._trial(episode, f"simulation: {answer.reason}")
            else:
                self._anew.setdefault(answer.reason, []).append(episode.state.episode)
                self._queue.appendleft(Episode(episode.state, begun=True, begun_anew=True))
            return
        episode.answer = answer
        self._show(episode, answer)
        if answer.status.ended is not None:
            del self._flying[slot]
            yield self._trial(episode, answer.status.error)

    def _begin(self, free: Sequence[int]) -> None:
        """Put the next episodes into slots whose worker lives."""
        if not any(self._pool.usable(slot) for slot in range(self._pool.slots)) and self._queue:
            raise MorphVlaError(
                f"every simulation worker died twice; {len(self._queue)} episodes are left, finished ones "
                "are kept, and the same command goes on; this happens when memory runs out: try fewer "
                "parallel environments"
            )
        messages: dict[int, Begin] = {}
        if self._pool.waves and self._flying:
            return  # its worlds settle together: the next ones begin when all of these have ended
        for slot in free:
            if self._queue and self._pool.usable(slot):
                film = self._queue[0].state.episode < self._filmed
                if self._pool.waves and messages and film != messages[min(messages)].film:
                    break  # films are taken in a wave of their own, which is small
                episode = self._flying[slot] = self._queue.popleft()
                messages[slot] = Begin(episode.state, film)
        self._pool.send(messages)

    def _ask(self, slots: Sequence[int]) -> Iterator[Trial]:
        """Ask the policy for these slots' next actions and send them off."""
        observations = []
        for slot in slots:
            episode = self._flying[slot]
            answer, number = episode.answer, episode.state.episode
            assert answer is not None
            assert answer.observation is not None
            moment = {"connection": self._name, "episode": number, "step": answer.status.steps}
            asked = {**answer.observation, **moment}
            if self._chunking.real_time:
                going_on = {} if episode.left is None else {"previous_actions": episode.left}
                asked |= {"inference_delay": self._chunking.latency, **going_on}
            observations.append(asked)
        messages: dict[int, Message] = {}
        for slot, actions in zip(slots, self._asker.ask(observations), strict=True):
            if isinstance(actions, str):
                yield self._trial(self._flying.pop(slot), actions)
            elif actions is None:  # not asked: the next question is answered by an error
                again = self._flying.pop(slot)
                again.forget_film()
                self._queue.appendleft(Episode(again.state, begun=True, begun_anew=again.begun_anew))
            else:
                messages[slot] = self._executed(self._flying[slot], actions)
        self._pool.send(messages)

    def _executed(self, episode: Episode, actions: Float[np.ndarray, "h a"]) -> Execute:
        """What an episode executes until the policy is asked again."""
        self._chunking.check(len(actions))
        targets = self._chunking.next(actions, episode.left)
        episode.left = self._chunking.remaining(actions)
        episode.targets.append(targets)
        return Execute(targets)

    def _jumps(self, episode: Episode, steps: int) -> Jumps | None:
        """Of the targets of the `steps` control steps that were simulated."""
        if not episode.targets:
            return None
        targets = self._benchmark.arm(np.concatenate(episode.targets)[:steps])
        borders = self._chunking.borders([len(part) for part in episode.targets])
        return None if targets is None else jumps(targets, borders)

    def _trial(self, episode: Episode, error: str | None) -> Trial:
        """One row of the record."""
        verdict = episode.answer.status if episode.answer else None
        trial = self._benchmark.trial(episode.state, verdict, error)
        return dataclasses.replace(
            trial,
            begun_anew=episode.begun_anew,
            jumps=self._jumps(episode, verdict.steps if verdict else 0),
            video=self._video(episode),
        )

    def _show(self, episode: Episode, answer: Answer) -> None:
        """Put what was seen since the last answer on the episode's film."""
        if self._folder is None:
            return
        for frame in answer.frames:
            if episode.film is None:
                path = self._folder / f"videos/{episode.state.episode:03d}.mp4"
                episode.film = VideoWriter(path, self._benchmark.control_rate)
            episode.film.add(frame)

    def _video(self, episode: Episode) -> Path | None:
        """Where the episode's film is."""
        film, episode.film = episode.film, None
        if film is None or film.last is None or self._folder is None:
            return None
        film.finish()
        # How it ended, which is the moment of success where there was one.
        write_picture(films.poster_of(film.path), film.last)
        return film.path
