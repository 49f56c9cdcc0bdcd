"""From a picture to where two things are, coarsely and then closely: pure functions.

    picture [s s 3] + where the hand is --coarse--> a map [s/8 s/8] for each role --its peak--> pixel
                                                                                                 |
    crop about it [32 32 3] + where the hand is --fine--> offset, height, rotation --> place --> pixel again

The roles are the object that is moved, and the target that it is moved to; both parts are told what they look
for (`things`), by which they scale and shift their own features (FiLM, Perez et al. 2018, arXiv:1709.07871):
other things beside it are passed over. Both are told where the hand is, for the URDF says it: a thing that
the arm hides is mostly one that the hand is at. The pixel says on which ray from the camera a thing lies, and
its height over the table how far along it: a thing on the table has nearly the same height wherever it lies,
so a wrong pixel costs little in height and nothing is left to guess of depth. Only of a thing in the air is
the height unclear in the picture, and then the hand says it.

Shapes: b pictures, s pixels a side, c = s / 8 cells, 2 roles, f values of a thing; places and heights in
lengths of the camera's distance (`view`). A mean over a map's cells is the spatial softmax of Levine et al.
(2016, arXiv:1504.00702); here it is taken about the peak alone.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from morph_vla.perception.things import FEATURES
from morph_vla.perception.view import SEEN, Optics

ROLES = ("object", "target")
SIDE = 32  # pixels of a crop as the fine part has it
WIDE = {"object": 1, "target": 2}  # pixels of the picture to one of the crop: targets are larger
CELL = 8  # pixels to a cell of the coarse map
OFFSET, HEIGHT = 8.0, 0.1  # what a unit of the fine part's answer is: pixels, distances
FAR = 3.0  # at most so many half crops is the hand said to be away, and a cell so many openings of it
CONTEXT = 7
BESIDE_HAND = 8  # values of a cell: where it lies beside the hand
SPANS = (0.5, 1.0, 2.5)  # openings of the hand: how wide the heights about it are that a cell is told
PADDING = SIDE * max(WIDE.values()) // 2
Params = dict[str, Any]
Picture = Float[Array, "b s s 3"]


def init_params(seed: int) -> Params:
    """Random parameters: normal with variance 2 / inputs (He), biases 0, the last layer a tenth of it."""
    keys = iter(jax.random.split(jax.random.key(seed), 64))

    def conv(side: int, inputs: int, outputs: int) -> dict[str, Array]:
        """A kernel [side side inputs outputs] and its bias."""
        scale = math.sqrt(2 / (side * side * inputs))
        kernel = scale * jax.random.normal(next(keys), (side, side, inputs, outputs))
        return {"kernel": kernel, "bias": jnp.zeros(outputs)}

    def dense(inputs: int, outputs: int, scale: float = 1.0) -> dict[str, Array]:
        """A matrix [inputs outputs] and its bias."""
        kernel = scale * math.sqrt(2 / inputs) * jax.random.normal(next(keys), (inputs, outputs))
        return {"kernel": kernel, "bias": jnp.zeros(outputs)}

    coarse = {
        "enter": conv(1, 3 * 4 * 4, 48), "near": conv(3, 48, 48), "halve": conv(3, 48, 64),
        "mix": conv(3, 64, 64), "again": conv(3, 64, 64), "thing": dense(FEATURES, 64),
        "change": dense(64, 2 * 64, 0.3), "look": conv(3, 64, 48), "map": conv(1, 48, 1),
        "hand": conv(1, BESIDE_HAND, 32), "at": conv(1, 32, 64),
    }  # fmt: skip
    coarse["at"]["kernel"] *= 0.1
    fine = {
        role: {
            "enter": conv(3, 3 * 2 * 2, 48), "mix": conv(3, 48, 48), "halve": conv(3, 48, 64),
            "thing": dense(FEATURES, 64), "change": dense(64, 2 * 48, 0.3),
            "again": conv(3, 64, 64), "flat": dense(64 * (SIDE // 4) ** 2, 128),
            "join": dense(128 + CONTEXT + FEATURES, 128), "answer": dense(128, 3 + SEEN - 3, 0.1),
        }
        for role in ROLES
    }  # fmt: skip
    return {"coarse": coarse, **fine}


def as_picture(images: UInt8[Array, "b s s 3"]) -> Picture:
    """-1 to 1."""
    return images.astype(jnp.float32) / 127.5 - 1


def coarse(
    params: Params,
    picture: Picture,
    hands: Float[Array, "b 5"],
    things: Float[Array, "b 2 f"],
    optics: Optics,
) -> Float[Array, "b c c 2"]:
    """Where each role may be, by cells of CELL pixels: logits (down, right, role)."""
    x = jax.nn.relu(_conv(params["enter"], _patches(picture, 4)))
    x = x + jax.nn.relu(_conv(params["near"], x))
    x = jax.nn.relu(_conv(params["halve"], x, 2))
    x = jax.nn.relu(_conv(params["mix"], x))
    x = x + jax.nn.relu(_conv(params["again"], x, wide=2))
    x = x + _conv(params["at"], jax.nn.relu(_conv(params["hand"], beside_hand(hands, optics))))
    looked = [_changed(params, x, things[:, role]) for role in range(len(ROLES))]
    maps = [_conv(params["map"], jax.nn.relu(_conv(params["look"], each))) for each in looked]
    return jnp.concatenate(maps, axis=-1)


def beside_hand(hands: Float[Array, "b 5"], optics: Optics) -> Float[Array, "b c c 8"]:
    """What each cell is told of the hand, in its openings as they are seen.

    Three heights about where it is (Gaussians, SPANS wide), how far right and down of it the cell lies (1 is
    FAR), how far the hand is closed, that at the hand alone, and how large an opening is [cells].

        the second height,      .78 .88 .78
        where an opening is     .88  1  .88     hand in the middle cell
        two cells               .78 .88 .78
    """
    b, c = len(hands), optics.size // CELL
    middles = (jnp.arange(c, dtype=jnp.float32) + 0.5) * CELL
    opening = hands[:, 4] * optics.focal / jnp.maximum(-hands[:, 2], 1e-3)
    grid = jnp.stack(jnp.broadcast_arrays(middles[None, :], middles[:, None]), axis=-1)
    away = grid[None] - pixels_of(hands[:, :3], optics)[:, None, None]
    away = away / jnp.maximum(opening, 1.0)[:, None, None, None]
    heights = [jnp.exp(-0.5 * jnp.sum(away**2, axis=-1, keepdims=True) / span**2) for span in SPANS]
    whole = (hands[:, 3], opening / CELL)
    closed, large = (jnp.broadcast_to(values[:, None, None, None], (b, c, c, 1)) for values in whole)
    beside = jnp.clip(away / FAR, -1, 1)
    return jnp.concatenate([*heights, beside, closed, closed * heights[1], large], axis=-1)


def peaks(maps: Float[Array, "b c c 2"]) -> Float[Array, "b 2 2"]:
    """The pixel (right, down) where each role's map is highest: the mean over that cell and its neighbours.

    Where a map has two heights, the mean of all of it lies between them, where nothing is.
    """
    b, c, _, roles = maps.shape
    highest = jnp.argmax(maps.reshape(b, c * c, roles), axis=1)
    cells = jnp.arange(c)
    near_down = jnp.abs(cells[None, :, None] - highest[:, None, :] // c) <= 1
    near_right = jnp.abs(cells[None, :, None] - highest[:, None, :] % c) <= 1
    near = near_down[:, :, None] & near_right[:, None]
    shares = jax.nn.softmax(jnp.where(near, maps, -jnp.inf), axis=(1, 2))
    middles = (cells.astype(jnp.float32) + 0.5) * CELL
    right, down = jnp.einsum("bijr,j->br", shares, middles), jnp.einsum("bijr,i->br", shares, middles)
    return jnp.stack([right, down], axis=-1)


def fine(
    params: Params,
    crop: Float[Array, "b 32 32 3"],
    context: Float[Array, "b 7"],
    thing: Float[Array, "b f"],
) -> Float[Array, "b 9"]:
    """Offset from the crop's middle [OFFSET], height [HEIGHT], two columns of the rotation."""
    x = jax.nn.relu(_conv(params["enter"], _patches(crop, 2)))
    x = _changed(params, jax.nn.relu(_conv(params["mix"], x)), thing)
    x = jax.nn.relu(_conv(params["halve"], x, 2))
    x = x + jax.nn.relu(_conv(params["again"], x))
    x = jax.nn.relu(_dense(params["flat"], x.reshape(len(x), -1)))
    x = jax.nn.relu(_dense(params["join"], jnp.concatenate([x, context, thing], axis=-1)))
    return _dense(params["answer"], x)


def _changed(
    params: Params, x: Float[Array, "b i j c"], thing: Float[Array, "b f"]
) -> Float[Array, "b i j c"]:
    """Features scaled and shifted by what is looked for."""
    hidden = jax.nn.relu(_dense(params["thing"], thing))
    scale, shift = jnp.split(_dense(params["change"], hidden), 2, axis=-1)
    return jax.nn.relu(x * (1 + scale[:, None, None]) + shift[:, None, None])


def crop_about(picture: Picture, middle: Int[Array, "b 2"], role: str) -> Float[Array, "b 32 32 3"]:
    """A square about a pixel (right, down); beyond the picture's edge it is grey."""
    side = SIDE * WIDE[role]
    padded = jnp.pad(picture, ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0)))
    first = jnp.clip(middle, 0, picture.shape[1]) + PADDING - side // 2

    def cut(image: Array, at: Array) -> Array:
        """One square."""
        return jax.lax.dynamic_slice(image, (at[1], at[0], 0), (side, side, 3))

    crop = jax.vmap(cut)(padded, first)
    return crop.reshape(len(crop), SIDE, WIDE[role], SIDE, WIDE[role], 3).mean((2, 4))


def pixels_of(places: Float[Array, "*b 3"], optics: Optics) -> Float[Array, "*b 2"]:
    """The pixel (right, down) at which a place is seen: focal (x, -y) / -z from the picture's middle."""
    depth = jnp.maximum(-places[..., 2], 1e-3)
    right, down = places[..., 0] / depth, -places[..., 1] / depth
    return jnp.stack([right, down], axis=-1) * optics.focal + optics.size / 2


def height_of(places: Float[Array, "*b 3"], optics: Optics) -> Float[Array, "*b"]:
    """Over the point that the camera looks at."""
    up = jnp.asarray(optics.up)
    return places @ up + up[2]


def place_of(pixel: Float[Array, "b 2"], height: Float[Array, "b"], optics: Optics) -> Float[Array, "b 3"]:
    """Where the ray through a pixel has that height; the inverse of `pixels_of` and `height_of`."""
    across = (pixel - optics.size / 2) / optics.focal
    ray = jnp.stack([across[:, 0], -across[:, 1], -jnp.ones(len(pixel))], axis=-1)
    up = jnp.asarray(optics.up)
    along = (height - up[2]) / jnp.minimum(ray @ up, -1e-3)  # rays that do not sink meet no table
    return ray * along[:, None]


def context_of(middle: Int[Array, "b 2"], hands: Float[Array, "b 5"], optics: Optics) -> Float[Array, "b 7"]:
    """Where a crop is; where the hand is beside it, and how high; how far it is closed, and can open."""
    half, middle = optics.size / 2, middle.astype(jnp.float32)
    beside = jnp.clip((pixels_of(hands[:, :3], optics) - middle) / (SIDE / 2), -FAR, FAR)
    high = height_of(hands[:, :3], optics)[:, None] / HEIGHT
    return jnp.concatenate([(middle - half) / half, beside, high, hands[:, 3:4], 10 * hands[:, 4:]], axis=-1)


def estimate(
    params: Params,
    images: UInt8[Array, "b s s 3"],
    hands: Float[Array, "b 5"],
    things: Float[Array, "b 2 f"],
    optics: Optics,
    rounds: int = 2,
) -> Float[Array, "b 2 9"]:
    """What is seen of object and target (`View.objects_seen`); each round looks closer about the last one."""
    picture = as_picture(images)
    pixel = peaks(coarse(params["coarse"], picture, hands, things, optics))
    seen = []
    for place, role in enumerate(ROLES):
        middle, answer = pixel[:, place], jnp.zeros((len(images), SEEN))
        for _ in range(rounds):
            about = jnp.round(middle).astype(jnp.int32)
            crop, context = crop_about(picture, about, role), context_of(about, hands, optics)
            answer = fine(params[role], crop, context, things[:, place])
            closer = about.astype(jnp.float32) + OFFSET * answer[:, :2]
            where = place_of(closer, HEIGHT * answer[:, 2], optics)
            middle = pixels_of(where, optics)
            answer = jnp.concatenate([where, answer[:, 3:]], axis=-1)
        seen.append(answer)
    return jnp.stack(seen, axis=1)


class Batch(NamedTuple):
    """Pictures, and what is in them: `frames.Frames` as jax has it."""

    images: UInt8[Array, "b s s 3"]
    objects: Float[Array, "b 2 9"]
    hands: Float[Array, "b 5"]
    things: Float[Array, "b 2 f"]


def coarse_loss(params: Params, batch: Batch, optics: Optics, key: Array) -> Float[Array, ""]:
    """How unlikely the true cell is, and how far the mean about the highest one lies from the true pixel.

    Half of the pictures are recoloured (`recoloured`); a batch is in no order.
    """
    picture = recoloured(as_picture(batch.images), key)
    true = pixels_of(batch.objects[..., :3], optics)
    maps = coarse(params["coarse"], picture, batch.hands, batch.things, optics)
    b, cells = len(batch.images), optics.size // CELL
    cell = jnp.clip((true / CELL).astype(jnp.int32), 0, cells - 1)
    scores = jax.nn.log_softmax(maps.reshape(b, cells * cells, len(ROLES)), axis=1)
    chosen = jnp.take_along_axis(scores, (cell[..., 1] * cells + cell[..., 0])[:, None, :], axis=1)
    away = jnp.abs(peaks(maps) - true)
    return jnp.mean(jnp.minimum(away, 2 * CELL)) / CELL - jnp.mean(chosen)


def fine_loss(params: Params, batch: Batch, optics: Optics, key: Array) -> Float[Array, ""]:
    """Huber's loss of offset, height (both count eight times) and rotation, in crops about the true pixel.

    Crops are moved a little at random, and half of the pictures are worsened (`worsened`).
    """
    key, drawn = jax.random.split(key)
    picture, b = worsened(as_picture(batch.images), drawn), len(batch.images)
    true = pixels_of(batch.objects[..., :3], optics)
    weights = jnp.asarray([4.0] * 3 + [0.5] * (SEEN - 3))
    total = jnp.zeros(())
    for place, role in enumerate(ROLES):
        key, drawn = jax.random.split(key)
        moved = 3.0 * jax.random.normal(drawn, (b, 2))
        about = jnp.round(true[:, place] + moved).astype(jnp.int32)
        crop, context = crop_about(picture, about, role), context_of(about, batch.hands, optics)
        answer = fine(params[role], crop, context, batch.things[:, place])
        offset = (true[:, place] - about.astype(jnp.float32)) / OFFSET
        height = height_of(batch.objects[:, place, :3], optics)[:, None] / HEIGHT
        goal = jnp.concatenate([offset, height, batch.objects[:, place, 3:]], axis=-1)
        away = jnp.abs(answer - goal)
        huber = jnp.where(away < 0.1, 5 * away**2, away - 0.05)
        total += 1.5 * jnp.mean(huber * weights)
    return total


def recoloured(picture: Picture, key: Array) -> Picture:
    """The first half of the pictures with red, green and blue in another order, some dark for light, of other
    gain and offset, with noise.
    """
    keys, half = jax.random.split(key, 5), len(picture) // 2
    one, each, some = (half, 1, 1, 1), (half, 1, 3), picture[:half]
    orders = jnp.asarray([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    drawn = jax.random.randint(keys[0], (half,), 0, len(orders))
    gain = jax.random.uniform(keys[1], each, minval=0.7, maxval=1.2)
    gain *= 1 - 2 * jax.random.bernoulli(keys[2], 0.3, each).astype(jnp.float32)
    mixed = gain * jax.nn.one_hot(orders[drawn], 3, axis=1, dtype=jnp.float32)  # [b, old, new]
    offset = jax.random.uniform(keys[3], one, minval=-0.15, maxval=0.15)
    noise = jax.random.bits(keys[4], some.shape, jnp.uint8).astype(jnp.float32) / 127.5 - 1
    changed = jnp.clip(jnp.einsum("bhwc,bcd->bhwd", some, mixed) + offset + 0.05 * noise, -1, 1)
    return jnp.concatenate([changed, picture[half:]])


def worsened(picture: Picture, key: Array) -> Picture:
    """The first half of the pictures as a worse camera has them: of other gain and offset, every second of
    these blurred, with noise.
    """
    keys, half = jax.random.split(key, 4), len(picture) // 2
    one, some = (half, 1, 1, 1), picture[:half]
    gain = jax.random.uniform(keys[0], (half, 1, 1, 3), minval=0.75, maxval=1.25)
    offset = jax.random.uniform(keys[1], one, minval=-0.15, maxval=0.15)
    # Whole numbers: a normal draw of as many costs a third of a step.
    bits = jax.random.bits(keys[3], some.shape, jnp.uint8)
    noise = jax.random.uniform(keys[2], one, maxval=0.1) * (bits.astype(jnp.float32) / 127.5 - 1)
    few = some[: half // 2]
    rolled = (jnp.roll(few, step, axis) for axis in (1, 2) for step in (-1, 1))
    blurred = jnp.concatenate([(2 * few + sum(rolled)) / 6, some[half // 2 :]])
    return jnp.concatenate([jnp.clip(blurred * gain + offset + noise, -1, 1), picture[half:]])


def _conv(
    layer: dict[str, Array], x: Float[Array, "b h w c"], stride: int = 1, wide: int = 1
) -> Float[Array, "b i j o"]:
    """A convolution whose kernel has its pixels `wide` apart."""
    apart = jax.lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), "SAME", rhs_dilation=(wide, wide),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    return apart + layer["bias"]


def _dense(layer: dict[str, Array], x: Float[Array, "b i"]) -> Float[Array, "b o"]:
    return x @ layer["kernel"] + layer["bias"]


def _patches(picture: Float[Array, "b h w c"], side: int) -> Float[Array, "b i j p"]:
    """Squares of pixels as the channels of one: [b, h/side, w/side, side side c]."""
    b, h, w, c = picture.shape
    split = picture.reshape(b, h // side, side, w // side, side, c)
    return split.transpose(0, 1, 3, 2, 4, 5).reshape(b, h // side, w // side, side * side * c)
