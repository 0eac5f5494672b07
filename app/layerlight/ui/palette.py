"""Two palettes: four places, plenty of ink, one light. Tuples, because they are made before the window is up."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QWidget


class PlaceColours(NamedTuple):
    """A place: `fill` for solid blocks, `text` on that fill, `line` for outlines and words (4.5:1 on a panel)."""

    fill: str
    text: str
    line: str


class Theme(NamedTuple):
    """All colours of the window. `light` is the one accent, kept for what runs now."""

    name: str
    window: str
    panel: str
    well: str
    raised: str
    line: str
    edge: str
    ink: str
    ink2: str
    ink3: str
    on_ink: str
    light: str
    on_light: str
    rim: str
    danger: str
    other: str
    hatch: str
    gpu: PlaceColours
    gpu2: PlaceColours
    ram: PlaceColours
    disk: PlaceColours

    def place(self, hue: str) -> PlaceColours:
        """The colours of a hue: `gpu`, `gpu2`, `ram` or `disk`."""
        return {"gpu": self.gpu, "gpu2": self.gpu2, "ram": self.ram}.get(hue, self.disk)

    def tint(self, hue: str, alpha: float) -> QColor:
        colour = QColor(self.place(hue).line)
        colour.setAlphaF(alpha)
        return colour


LIGHT = Theme(
    "light", "#F3F4F6", "#FFFFFF", "#F7F8FA", "#FFFFFF", "#E2E5EA", "#858C99", "#14161A", "#4A505C", "#646B78",
    "#FFFFFF", "#FFB31F", "#1C1400", "#1C1400", "#B93A0B", "#B9BEC8", "#C9CDD5",
    PlaceColours("#1F5FBF", "#FFFFFF", "#1F5CB5"),
    PlaceColours("#6F86E8", "#0B0F24", "#4358C4"),
    PlaceColours("#2FA08A", "#04201A", "#0F705E"),
    PlaceColours("#7B2D69", "#FFFFFF", "#93407F"),
)  # fmt: skip
DARK = Theme(
    "dark", "#0E0F12", "#15171B", "#101215", "#1C1F25", "#272B32", "#6C7482", "#ECEEF2", "#AEB5C1", "#8D95A3",
    "#101215", "#FFC65C", "#1C1400", "#FFF3D6", "#FF9166", "#474D58", "#333841",
    PlaceColours("#2A66BE", "#FFFFFF", "#78ACF2"),
    PlaceColours("#7187E6", "#0B0F24", "#A3B2FF"),
    PlaceColours("#2F9C87", "#04201A", "#4CC3AC"),
    PlaceColours("#9A3F84", "#FFFFFF", "#DB90C6"),
)  # fmt: skip


def theme_of(widget: QWidget) -> Theme:
    """The theme a widget is shown in, read from its palette, so that a switch reaches it as a palette change."""
    return DARK if widget.palette().color(QPalette.ColorRole.Window).lightness() < 128 else LIGHT


def qt_palette(theme: Theme) -> QPalette:
    """The same colours for what Qt paints itself: menus, dialogs, selections."""
    role = QPalette.ColorRole
    palette = QPalette(QColor(theme.panel), QColor(theme.window))
    for which, colour in (
        (role.Window, theme.window), (role.Base, theme.panel), (role.AlternateBase, theme.well),
        (role.Button, theme.raised), (role.ButtonText, theme.ink), (role.Text, theme.ink), (role.WindowText, theme.ink),
        (role.BrightText, theme.danger), (role.PlaceholderText, theme.ink3), (role.ToolTipBase, theme.raised),
        (role.ToolTipText, theme.ink), (role.Highlight, theme.ink), (role.HighlightedText, theme.on_ink),
        (role.Link, theme.ink), (role.LinkVisited, theme.ink2), (role.Light, theme.raised), (role.Mid, theme.line),
        (role.Dark, theme.edge), (role.Shadow, theme.line),
    ):  # fmt: skip
        palette.setColor(which, QColor(colour))
    for which in (role.Text, role.WindowText, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, QColor(theme.ink3))
    return palette
