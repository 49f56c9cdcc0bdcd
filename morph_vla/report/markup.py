"""HTML and SVG from values: everything that is not markup already is escaped."""

import html
from collections.abc import Iterable, Mapping

from morph_vla.results.values import Real, number

VOID = frozenset({"meta", "img", "br", "hr", "col"})


class Markup(str):
    """Text that is markup: it goes into a page as it is."""

    __slots__ = ()


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element. A child is Markup or is escaped; None is left out, an iterable of children is flattened.

    An attribute's trailing underscore is dropped and the others become hyphens (`class_`, `aria_label`); None
    and False leave it out, True leaves it without a value, a float has two decimals.
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{words}>")
    return Markup(f"<{name}{words}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """The children one after another, each escaped unless it is Markup."""
    parts = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(html.escape(child))
        elif isinstance(child, Iterable):
            parts.append(join(*child))
        elif child is not None:
            parts.append(html.escape(str(child)))
    return Markup("".join(parts))


def svg(title: str, width: Real, height: Real, /, *children: object, **attributes: object) -> Markup:
    """A picture of `width` x `height` user units that scales with the page and is read out as its title."""
    box = f"0 0 {short(width)} {short(height)}"
    return el("svg", el("title", title), *children, viewBox=box, role="img", aria_label=title, **attributes)


def text(x: Real, y: Real, words: str, anchor: str = "start", class_: str | None = None) -> Markup:
    """A line of text in an SVG; `anchor` is start, middle or end."""
    return el("text", words, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=class_)


def line(x1: Real, y1: Real, x2: Real, y2: Real, class_: str) -> Markup:
    """A straight line in an SVG."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def table(rows: Iterable[Iterable[object]], head: Iterable[object], label: str) -> Markup:
    """A table whose first column heads its rows, in a box that scrolls sideways on a narrow screen."""
    header = el("thead", el("tr", (el("th", cell, scope="col") for cell in head)))
    body = el("tbody", (_row(row) for row in rows))
    return el(
        "div", el("table", header, body), class_="scroll", role="region", aria_label=label, tabindex="0"
    )


def facts(pairs: Iterable[tuple[str, object]]) -> Markup:
    """A list of names and values; pairs without a value are left out."""
    known = [(name, value) for name, value in pairs if value is not None and value != ""]
    return el("dl", (el("div", el("dt", name), el("dd", value)) for name, value in known), class_="facts")


def short(value: Real) -> str:
    """A coordinate: at most two decimals, no trailing zeros, no minus zero."""
    words = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if words in ("-0", "") else words


def percent(rate: Real | None) -> str:
    """A rate in [0, 1] as `76.0%`; an unmeasured one in words."""
    return "not measured" if rate is None else f"{100 * rate:.1f}%"


def bracket(low: Real | None, high: Real | None) -> str:
    """The bounds of a rate as `[66.8, 83.3]`, in per cent, kept on one line."""
    return "not measured" if low is None or high is None else f"[{100 * low:.1f},\u00a0{100 * high:.1f}]"


def points(difference: Real) -> str:
    """A difference of rates as `+74.0` percentage points."""
    words = f"{100 * difference:+.1f}".replace("-", "−")
    return "0.0" if words in ("+0.0", "−0.0") else words


def duration(seconds: Real) -> str:
    """Seconds as a person says them: `4.2 s`, `12 min 30 s`, `1 h 05 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes} min {whole % 60:02d} s" if whole < 3600 else f"{hours} h {minutes % 60:02d} min"


def count(value: object) -> str:
    """A whole number with thousands set apart, or a dash when it is none."""
    whole = number(value)
    return "–" if whole is None else f"{whole:,.0f}".replace(",", "\u202f")


def value_words(value: object) -> str:
    """Any small JSON value as words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(value_words(item) for item in value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _row(cells: Iterable[object]) -> Markup:
    first, *rest = cells
    return el("tr", el("th", first, scope="row"), (el("td", cell) for cell in rest))


def _attribute(key: str, value: object) -> str:
    key = key.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {key}"
    words = short(value) if isinstance(value, float) else str(value)
    return f' {key}="{html.escape(words)}"'
