"""Colours that can be read, type that lines up, resources that are found."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor, QFont
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from layerlight.ui import theme as theme_module
from layerlight.ui.palette import DARK, LIGHT, Theme, theme_of
from layerlight.ui.theme import ThemeSwitch, font, resource, sheet
from tests.ui.conftest import Bench


def contrast(first: str, second: str) -> float:
    """By WCAG 2."""

    def luminance(name: str) -> float:
        colour = QColor(name)
        parts = [colour.redF(), colour.greenF(), colour.blueF()]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_words_can_be_read_on_everything_they_are_written_on(theme: Theme) -> None:
    """H11: 4.5 : 1 for text, 3 : 1 for edges of controls."""
    for ink in (theme.ink, theme.ink2, theme.ink3, theme.danger):
        for ground in (theme.panel, theme.raised, theme.window, theme.well):
            assert contrast(ink, ground) >= 4.5, (ink, ground)
    assert contrast(theme.on_ink, theme.ink) >= 4.5
    assert contrast(theme.on_light, theme.light) >= 4.5
    assert contrast(theme.ink, theme.other) >= 4.5
    assert contrast(theme.edge, theme.panel) >= 3
    for hue in ("gpu", "gpu2", "ram", "disk"):
        place = theme.place(hue)
        assert contrast(place.text, place.fill) >= 4.5, hue
        assert contrast(place.line, theme.panel) >= 4.5, hue


@pytest.mark.parametrize("choice", ["light", "dark"])
def test_a_choice_reaches_every_widget_at_once(bench: Bench, choice: str) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    switch = ThemeSwitch(app, "system")
    switch.dress(bench.window)
    try:
        switch.choose(choice)
        assert theme_of(bench.window).name == choice
        assert theme_of(bench.desk.welcome).name == choice
    finally:
        switch.choose("light")
        switch.deleteLater()


def test_figures_are_tabular(qtbot: QtBot) -> None:
    assert font(12).featureValue(QFont.Tag("tnum")) == 1
    assert font(12).pixelSize() == 12


def test_the_sheet_uses_only_colours_of_the_theme() -> None:
    import re

    for theme in (LIGHT, DARK):
        known = {value for value in (getattr(theme, name) for name in Theme._fields) if isinstance(value, str)}
        assert set(re.findall(r"#[0-9A-F]{6}", sheet(theme))) <= known


def test_resources_are_found_in_the_checkout_and_in_an_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    from pathlib import Path

    root = Path(str(tmp_path))
    (root / "site" / "layerlight" / "ui").mkdir(parents=True)
    (root / "site" / "layerlight" / "resources").mkdir()
    (root / "site" / "layerlight" / "resources" / "a.txt").touch()
    monkeypatch.setattr(theme_module, "__file__", str(root / "site" / "layerlight" / "ui" / "theme.py"))
    assert resource("a.txt") == (root / "site" / "layerlight" / "resources" / "a.txt").resolve()
    (root / "checkout" / "app" / "layerlight" / "ui").mkdir(parents=True)
    (root / "checkout" / "resources").mkdir()
    (root / "checkout" / "resources" / "b.txt").touch()
    monkeypatch.setattr(theme_module, "__file__", str(root / "checkout" / "app" / "layerlight" / "ui" / "theme.py"))
    assert resource("b.txt") == (root / "checkout" / "resources" / "b.txt").resolve()
    with pytest.raises(FileNotFoundError):
        resource("none.txt")
