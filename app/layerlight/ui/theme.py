"""Type, style and resource paths; the palette follows the system until a person chooses."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QFont, QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget

from layerlight.ui.palette import DARK, LIGHT, Theme, qt_palette

SANS = ("Inter", "Segoe UI", "SF Pro Text", "Helvetica Neue", "Noto Sans", "DejaVu Sans")
SIZES = (12, 13, 14, 15, 16, 20, 28)
"""Type sizes of labels in px."""
WEIGHTS = (400, 500, 600)
MONO = ("JetBrains Mono", "SF Mono", "Cascadia Mono", "Consolas", "DejaVu Sans Mono", "monospace")


class ThemeSwitch(QObject):
    """Keeps the application in the chosen theme: `system`, `light` or `dark`."""

    switched = Signal()

    def __init__(self, app: QApplication, choice: str = "system") -> None:
        super().__init__(app)
        self._app = app
        self._choice = choice if choice in ("light", "dark") else "system"
        self._dressed: QWidget | None = None
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._system_changed)
        self._apply()

    @property
    def choice(self) -> str:
        return self._choice

    def dress(self, window: QWidget) -> None:
        """Gives a window's plain controls their style. An empty window needs none, and is up sooner without.

        Not the application's: what is put together outside the window would find its style anew at every level.
        """
        self._dressed = window
        window.setStyleSheet(sheet(self._theme()))

    def choose(self, choice: str) -> None:
        self._choice = choice
        self._apply()

    @Slot()
    def _system_changed(self) -> None:
        if self._choice == "system":
            self._apply()

    def _theme(self) -> Theme:
        dark = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        return DARK if self._choice == "dark" or (self._choice == "system" and dark) else LIGHT

    def _apply(self) -> None:
        theme = self._theme()
        self._app.setPalette(qt_palette(theme))
        if self._dressed is not None:
            self._dressed.setStyleSheet(sheet(theme))
        self.switched.emit()


@cache
def font(size: int, weight: int = 400, mono: bool = False) -> QFont:
    """The program's type in logical px: figures are always tabular."""
    result = QFont()
    result.setFamilies(list(MONO if mono else SANS))
    result.setPixelSize(size)
    result.setWeight(QFont.Weight(weight))
    if not mono:
        result.setFeature(QFont.Tag("tnum"), 1)
    return result


def resource(name: str) -> Path:
    """A file of `resources/`: beside the package when installed, else in the checkout.

    Raises FileNotFoundError when it is in neither.
    """
    package = Path(__file__).resolve().parent.parent
    for root in (package / "resources", package.parent.parent / "resources"):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"resources/{name}")


def sheet(t: Theme) -> str:
    """The style of plain controls; everything else is painted."""
    families = ", ".join(f'"{name}"' for name in SANS)
    mono = ", ".join(f'"{name}"' for name in MONO)
    type_rules = "\n".join(
        [f'QLabel[px="{size}"] {{ font-size: {size}px; }}' for size in SIZES]
        + [f'QLabel[weight="{weight}"] {{ font-weight: {weight}; }}' for weight in WEIGHTS]
    )
    return f"""
    * {{ font-family: {families}; font-size: 13px; }}
    QWidget#window, QWidget#plain {{ background: {t.window}; }}
    QFrame#panel {{ background: {t.panel}; border: none; }}
    QFrame#card {{ background: {t.raised}; border: 1px solid {t.line}; border-radius: 10px; }}
    QFrame#bubble {{ background: {t.window}; border: 1px solid {t.line}; border-radius: 10px; }}
    QFrame#overlay {{ background: {t.raised}; border: 1px solid {t.edge}; border-radius: 10px; }}
    QFrame#overlay QListView {{ background: transparent; border: none; }}
    QFrame#drop {{ background: {t.raised}; border: 2px dashed {t.ink}; border-radius: 10px; }}
    QFrame#rule {{ background: {t.line}; border: none; }}
    QLabel {{ background: transparent; color: {t.ink}; }}
    QLabel[tone="2"] {{ color: {t.ink2}; }}
    QLabel[tone="3"] {{ color: {t.ink3}; font-size: 12px; }}
    QLabel[tone="head"] {{ color: {t.ink2}; font-size: 12px; font-weight: 600; }}
    QLabel[tone="bad"] {{ color: {t.danger}; font-size: 12px; }}
    QLabel[tone="mono"] {{ color: {t.ink2}; font-family: {mono}; font-size: 11px; }}
    {type_rules}
    QPushButton {{ background: {t.raised}; color: {t.ink}; border: 1px solid {t.edge}; border-radius: 7px;
        padding: 0 12px; min-height: 28px; }}
    QPushButton:hover {{ background: {t.well}; }}
    QPushButton:pressed {{ background: {t.line}; }}
    QPushButton:focus {{ border: 2px solid {t.ink}; padding: 0 11px; }}
    QPushButton:disabled {{ color: {t.ink3}; border-color: {t.line}; background: transparent; }}
    QPushButton[kind="primary"] {{ background: {t.ink}; color: {t.on_ink}; border: 1px solid {t.ink};
        font-weight: 600; }}
    QPushButton[kind="primary"]:hover {{ background: {t.ink2}; border-color: {t.ink2}; }}
    QPushButton[kind="primary"]:focus {{ border: 2px solid {t.edge}; }}
    QPushButton[kind="primary"]:disabled {{ background: {t.line}; color: {t.ink3}; border-color: {t.line}; }}
    QPushButton[kind="quiet"] {{ background: transparent; border: 1px solid transparent; color: {t.ink2};
        padding: 0 8px; }}
    QPushButton[kind="quiet"]:hover {{ background: {t.window}; }}
    QPushButton[kind="quiet"]:checked {{ background: {t.window}; border: 1px solid {t.line}; color: {t.ink}; }}
    QPushButton[kind="quiet"]:focus {{ border: 2px solid {t.ink}; padding: 0 7px; }}
    QPushButton[kind="link"] {{ background: transparent; border: none; color: {t.ink2}; padding: 0;
        font-weight: 500; text-align: left; }}
    QPushButton[kind="link"]:hover {{ color: {t.ink}; }}
    QPushButton[kind="link"]:focus {{ color: {t.ink}; text-decoration: underline; border: none; padding: 0; }}
    QPushButton[kind="seg"] {{ border: 1px solid transparent; border-radius: 5px; background: transparent;
        color: {t.ink2}; min-height: 24px; padding: 0 8px; }}
    QPushButton[kind="seg"]:checked {{ background: {t.raised}; color: {t.ink}; font-weight: 600;
        border: 1px solid {t.edge}; }}
    QPushButton[kind="seg"]:focus {{ border: 2px solid {t.ink}; padding: 0 7px; }}
    QPushButton[kind="seg"]:disabled {{ color: {t.edge}; }}
    QFrame#seg {{ background: {t.window}; border: 1px solid {t.line}; border-radius: 7px; }}
    QSlider {{ min-height: 22px; background: transparent; }}
    QSlider::groove:horizontal {{ height: 4px; border-radius: 2px; background: {t.line}; }}
    QSlider::sub-page:horizontal {{ height: 4px; border-radius: 2px; background: {t.ink2}; }}
    QSlider::handle:horizontal {{ width: 14px; height: 14px; margin: -6px 0; border-radius: 8px;
        background: {t.raised}; border: 1.5px solid {t.ink}; }}
    QSlider::handle:horizontal:focus {{ background: {t.ink}; }}
    QSlider::sub-page:horizontal:disabled {{ background: {t.line}; }}
    QSlider::handle:horizontal:disabled {{ border-color: {t.edge}; background: {t.window}; }}
    QLineEdit, QSpinBox, QDoubleSpinBox {{ background: {t.panel}; color: {t.ink}; border: 1px solid {t.edge};
        border-radius: 6px; padding: 2px 6px; min-height: 22px; selection-background-color: {t.ink};
        selection-color: {t.on_ink}; }}
    QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus {{ border: 2px solid {t.ink}; padding: 1px 5px; }}
    QLineEdit[wrong="true"] {{ border: 2px solid {t.danger}; padding: 1px 5px; }}
    QLineEdit[kind="bare"] {{ background: transparent; border: 1px solid transparent; font-weight: 600; }}
    QLineEdit[kind="bare"]:hover {{ border: 1px solid {t.edge}; }}
    QLineEdit[kind="bare"]:focus {{ border: 2px solid {t.ink}; background: {t.panel}; }}
    QLineEdit:disabled {{ color: {t.ink3}; }}
    QPlainTextEdit {{ background: {t.window}; color: {t.ink}; border: 1px solid {t.edge}; border-radius: 10px;
        padding: 4px 6px; selection-background-color: {t.ink}; selection-color: {t.on_ink}; }}
    QPlainTextEdit:focus {{ border: 2px solid {t.ink}; padding: 3px 5px; }}
    QPlainTextEdit#log {{ font-family: {mono}; font-size: 11px; color: {t.ink2}; background: {t.well};
        border: 1px solid {t.line}; }}
    QListWidget {{ background: {t.panel}; color: {t.ink}; border: 1px solid {t.edge}; border-radius: 10px;
        padding: 4px; outline: none; }}
    QListWidget:focus {{ border: 2px solid {t.ink}; padding: 3px; }}
    QListWidget::item {{ padding: 4px 6px; border-radius: 5px; }}
    QListWidget::item:selected {{ background: {t.line}; color: {t.ink}; }}
    QScrollArea {{ background: transparent; border: none; }}
    QTableView {{ background: {t.panel}; alternate-background-color: {t.well}; color: {t.ink};
        border: 1px solid {t.line}; border-radius: 8px; font-size: 12px; selection-background-color: {t.ink};
        selection-color: {t.on_ink}; outline: none; }}
    QTableView:focus {{ border: 2px solid {t.ink}; }}
    QTableView::item {{ padding: 0 8px; }}
    QHeaderView, QHeaderView::section {{ background: {t.panel}; color: {t.ink2}; border: none; font-size: 12px;
        font-weight: 600; padding: 0 4px; }}
    QHeaderView {{ border-bottom: 1px solid {t.line}; }}
    QAbstractScrollArea::corner {{ background: transparent; border: none; }}
    QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
    QScrollBar::handle:horizontal {{ background: {t.edge}; border-radius: 3px; min-width: 32px; margin: 2px 2px; }}
    QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
    QScrollBar::handle:vertical {{ background: {t.edge}; border-radius: 3px; min-height: 32px; margin: 2px 2px; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ height: 0; width: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    QMenuBar {{ background: transparent; color: {t.ink2}; }}
    QMenuBar::item {{ padding: 6px 10px; border-radius: 6px; background: transparent; }}
    QMenuBar::item:selected {{ background: {t.window}; color: {t.ink}; }}
    QMenu {{ background: {t.raised}; color: {t.ink}; border: 1px solid {t.line}; padding: 6px; }}
    QMenu::item {{ padding: 6px 28px 6px 12px; border-radius: 5px; }}
    QMenu::item:selected {{ background: {t.window}; color: {t.ink}; }}
    QMenu::item:disabled {{ color: {t.ink3}; }}
    QMenu::separator {{ height: 1px; background: {t.line}; margin: 6px 4px; }}
    QToolTip {{ background: {t.raised}; color: {t.ink}; border: 1px solid {t.edge}; padding: 6px 8px; }}
    QDialog, QMessageBox {{ background: {t.panel}; }}
    """
