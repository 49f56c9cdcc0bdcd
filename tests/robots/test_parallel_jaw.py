"""A gripper of ours in the place of one whose jaw turns on the other jaw: that one's shapes give way too."""

import pytest

from morph_vla.robots import parallel_jaw, urdf

BOX = '<collision><geometry><box size="0.01 0.02 0.07"/></geometry></collision>'
BOX += BOX.replace("collision", "visual")
LINKS = "".join(f'<link name="{name}">{BOX}</link>' for name in ("base", "wrist", "palm", "jaw", "jaw2"))


def joint(name: str, parent: str, child: str, kind: str, upper: float) -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<limit lower="-0.2" upper="{upper}" effort="1" velocity="1"/></joint>'
    )


def arm(*hand: str) -> urdf.Urdf:
    wrist = joint("roll", "base", "wrist", "revolute", 1.5) + joint("mount", "wrist", "palm", "fixed", 0)
    joints = wrist + "".join(hand)
    links = LINKS if "jaw2" in joints else LINKS.replace(f'<link name="jaw2">{BOX}</link>', "")
    return urdf.parse(f'<robot name="arm">{links}{joints}</robot>'.encode())


@pytest.mark.parametrize(
    ("hand", "link", "bare"),
    [
        ([joint("close", "palm", "jaw", "revolute", 1.7)], "palm", {"palm"}),
        ([joint("close", "palm", "jaw", "revolute", 1.7)], "wrist", {"palm"}),  # whichever link holds the jaw
        ([joint("close", "palm", "jaw", "revolute", 3.1)], "palm", set()),  # a wrist that turns: no jaw
        ([joint("close", "palm", "jaw", "continuous", 0.0)], "palm", set()),
        ([joint("close", "palm", "jaw", "prismatic", 0.1)], "palm", set()),
        ([joint(f"close{name}", "palm", name, "revolute", 1.7) for name in ("jaw", "jaw2")], "palm", set()),
        ([joint("close", "palm", "jaw", "fixed", 0.0)], "palm", set()),
        ([joint("close", "palm", "jaw", "revolute", 1.7)], "base", set()),  # more than the hand is replaced
    ],
)
def test_the_jaw_that_does_not_move_gives_way_with_the_one_that_does(hand, link, bare):
    before = arm(*hand)
    after = parallel_jaw.attach(before, link, (0.0, 0.0, 1.0), 0.05)
    kept = {item.name: item for item in after.links if item.name in {item.name for item in before.links}}
    assert {name for name, item in kept.items() if not item.collisions} == bare
    assert {name for name, item in kept.items() if not item.visuals} == bare
    masses = {item.name: item.inertial for item in before.links}
    assert all(item.inertial == masses[name] for name, item in kept.items())
