"""The window itself: up at once with its mark, then filled; it takes drops and ends the program when it closes."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt, QUrl, Signal, Slot
from PySide6.QtGui import QCloseEvent, QColor, QDragEnterEvent, QDropEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from layerlight.ui.icons import draw_mark, window_icon
from layerlight.ui.palette import theme_of

SIZE = (1440, 900)
SMALLEST = (1000, 600)
TITLE_HEIGHT = 48


class Window(QWidget):
    """One window. Nothing is asked when it closes: what is kept is kept.

    It imports next to nothing, so that it stands on the screen while the rest of the program is still being read.
    """

    dropped = Signal(str)
    """A folder, or the folder of a file."""
    closing = Signal(str)
    """Its place on the screen, for the settings."""
    seen = Signal()
    """Painted for the first time."""

    def __init__(self, geometry: str = "") -> None:
        super().__init__()
        self.setObjectName("window")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setWindowTitle("Layerlight")
        self.setWindowIcon(window_icon())
        room = self.screen().availableSize()  # of a small screen at 200 % little is left: no window is larger than it
        self.setMinimumSize(QSize(*SMALLEST).boundedTo(room))
        self.resize(QSize(*SIZE).boundedTo(room))
        self.setAcceptDrops(True)
        self._painted = False
        self._inside = QVBoxLayout(self)
        self._inside.setContentsMargins(0, 0, 0, 0)
        if geometry:
            self.restoreGeometry(QByteArray.fromBase64(geometry.encode("ascii", "ignore")))

    def hold(self, content: QWidget) -> None:
        """Takes the desk while it is being put together, unseen."""
        content.hide()
        content.setParent(self)

    def fill(self, content: QWidget) -> None:
        """Puts the desk in."""
        self._inside.addWidget(content)
        content.show()

    @Slot()
    def toggle_full_screen(self) -> None:
        self.setWindowState(self.windowState() ^ Qt.WindowState.WindowFullScreen)

    @Slot(str)
    def rename(self, name: str) -> None:
        self.setWindowTitle(name)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Empty, it shows its title bar as it will be: nothing jumps when the rest comes."""
        p, t = QPainter(self), theme_of(self)
        p.fillRect(self.rect(), QColor(t.window))
        if not self._painted:
            self._painted = True
            self.seen.emit()
        if self._inside.count():
            return
        p.setRenderHint(QPainter.RenderHint.Antialiasing)
        p.fillRect(QRectF(0, 0, self.width(), TITLE_HEIGHT), QColor(t.panel))
        p.fillRect(QRectF(0, TITLE_HEIGHT, self.width(), 1), QColor(t.line))
        draw_mark(p, QRectF(16, 15, 20, 20), t)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if folder_of(event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        folder = folder_of(event.mimeData().urls())
        if folder:
            event.acceptProposedAction()
            self.dropped.emit(folder)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.closing.emit(bytes(self.saveGeometry().toBase64().data()).decode())
        event.accept()


def folder_of(urls: list[QUrl]) -> str:
    """The folder, or the file's folder, of the first local thing dropped."""
    for url in urls:
        if url.isLocalFile():
            path = Path(url.toLocalFile())
            return str(path if path.is_dir() else path.parent)
    return ""
