"""Where objects are, from a fixed camera's picture: a policy that is told poses can then act from pictures.

view        a camera and what it sees, in lengths of its distance: geometry alone
frames      pictures of a suite's tasks with the poses in them, rendered; no simulator's pose is used later
network     the estimator as pure functions of pictures
fitting     its training
estimator   its file, and poses from pictures
seeing      a policy that is told estimated poses in place of the simulator's
measuring   how far from the simulator's they are
"""

from morph_vla.perception.estimator import SHIPPED, Estimator, load
from morph_vla.perception.seeing import Seeing, before

__all__ = ["SHIPPED", "Estimator", "Seeing", "before", "load"]
