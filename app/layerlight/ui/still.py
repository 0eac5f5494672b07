"""A still: a picture that is kept and drawn anew in a step of its own, so that no single step of the window is long."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QRect, QRectF, QTimer, Slot
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtWidgets import QWidget


class Still(QObject):
    """The picture of a widget. While a newer one waits for its turn the older one is shown."""

    def __init__(self, widget: QWidget, draw: Callable[[QPainter], None], wait: int = 0) -> None:
        """`draw` paints the whole widget. Stills of one window have different `wait`s, in ms: they take turns."""
        super().__init__(widget)
        self._widget, self._draw = widget, draw
        self._picture = QPixmap()
        self._timer = QTimer(self, singleShot=True, interval=wait)
        self._timer.timeout.connect(self._renew)

    @property
    def is_new(self) -> bool:
        """Whether the picture shows what the widget is to show now."""
        return self._fits() and not self._timer.isActive()

    def change(self) -> None:
        """What is to be seen has changed: draws it soon, at once when nothing has been drawn yet."""
        if self._fits():
            if not self._timer.isActive():
                self._timer.start()
        else:
            self._widget.update()

    def drop(self) -> None:
        """Nothing of the picture is true any more, as in another theme."""
        self._picture = QPixmap()
        self._timer.stop()
        self._widget.update()

    def painter(self) -> QPainter:
        """To mend a part of the picture; `end` it."""
        return QPainter(self._picture)

    def paint(self, p: QPainter, area: QRect) -> None:
        """Paints the part of the picture in `area`."""
        if not self._fits():
            self._redraw()
        ratio = self._picture.devicePixelRatio()
        source = QRectF(area)
        p.drawPixmap(source, self._picture, QRectF(source.topLeft() * ratio, source.size() * ratio))

    def prepare(self) -> None:
        """Draws it before it is shown."""
        if not self.is_new:
            self._redraw()

    def _fits(self) -> bool:
        ratio = self._widget.devicePixelRatioF()
        size = self._widget.size() * ratio
        return self._picture.devicePixelRatio() == ratio and self._picture.size() == size

    @Slot()
    def _renew(self) -> None:
        self._redraw()
        self._widget.update()

    def _redraw(self) -> None:
        self._timer.stop()
        ratio = self._widget.devicePixelRatioF()
        picture = QPixmap(self._widget.size() * ratio)
        picture.setDevicePixelRatio(ratio)
        p = QPainter(picture)
        self._draw(p)
        p.end()
        self._picture = picture
