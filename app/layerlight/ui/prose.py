"""Text that grows token by token: only its last lines are laid out again, however long it gets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextCharFormat,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from layerlight.ui.palette import theme_of
from layerlight.ui.theme import font

LEADING = 1.5
FREEZE = 24
"""Lines after which a paragraph's upper lines are kept as they are while the rest grows."""
FENCE = "```"
_MARKS = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`|\*(\S[^*]*?)\*")


@dataclass(slots=True)
class Piece:
    """Some whole lines of a paragraph, laid out. `raw` is the text as the model wrote it."""

    raw: str
    code: bool
    shown: str = ""
    layout: QTextLayout | None = None
    top: float = 0.0
    height: float = 0.0
    gap: float = 0.0
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    continued: bool = False
    """Whether it goes on with the paragraph of the piece before."""


class Prose(QWidget):
    """Shows paragraphs, **bold**, `code` and fenced code; can be selected and copied."""

    def __init__(self, text: str = "", caret: bool = False) -> None:
        super().__init__()
        self._text = ""
        self._caret = caret
        self._pieces: list[Piece] = []
        self._anchor: tuple[int, int] | None = None
        self._cursor: tuple[int, int] | None = None
        self.setCursor(Qt.CursorShape.IBeamCursor)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_text(text)

    @property
    def text(self) -> str:
        return self._text

    def set_text(self, text: str) -> None:
        """Replaces everything."""
        self._text = text
        self._pieces = []
        self._anchor = self._cursor = None
        code = False
        for line in text.split("\n"):
            code = self._append_line(line, code)
        self._lay_out_from(0)

    def append(self, text: str) -> None:
        """Adds text at the end; only the last piece is laid out again."""
        if not text:
            return
        self._text += text
        first, *rest = text.split("\n")
        at = max(0, len(self._pieces) - 1)
        if not self._pieces:
            self._append_line("", False)
        last = self._pieces[-1]
        last.raw += first
        last.layout = None
        code = _code_after(last)
        for line in rest:
            code = self._append_line(line, code)
        self._lay_out_from(at)

    def show_caret(self, shown: bool) -> None:
        self._caret = shown
        self.update()

    def _append_line(self, line: str, code: bool) -> bool:
        self._pieces.append(Piece(line, code))
        return _code_after(self._pieces[-1])

    # -- layout --------------------------------------------------------------------------------------------------

    def _lay_out_from(self, at: int) -> None:
        y = self._pieces[at - 1].top + self._pieces[at - 1].height if at else 0.0
        i = at
        while i < len(self._pieces):
            piece = self._pieces[i]
            if piece.layout is None:
                self._lay_out(piece, i)
            piece.top = y + piece.gap
            y = piece.top + piece.height
            i += 1
        height = round(y + 2)
        if height != self.height() or self.minimumHeight() != height:
            self.setFixedHeight(height)
        self.update()

    def _lay_out(self, piece: Piece, i: int) -> None:
        fence = piece.raw.startswith(FENCE)
        piece.shown, piece.spans = ("", []) if fence else (piece.raw, []) if piece.code else _plain(piece.raw)
        face = font(12, mono=True) if piece.code else font(14)
        layout = QTextLayout(piece.shown, face)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        layout.setTextOption(option)
        layout.setFormats([_range(start, length, style) for start, length, style in piece.spans])
        inset = 12 if piece.code else 0
        wide = max(40.0, self.width() - 2.0 * inset)
        line_height = round(face.pixelSize() * LEADING)
        layout.beginLayout()
        y, starts = 0.0, []
        while (line := layout.createLine()).isValid():
            line.setLineWidth(wide)
            line.setPosition(QPointF(inset, y + (line_height - line.height()) / 2))
            starts.append(line.textStart())
            y += line_height
        layout.endLayout()
        piece.layout = layout
        if fence:
            piece.height, piece.gap = 6.0, 0.0
            return
        piece.height = y
        piece.gap = 0.0 if i == 0 or piece.code or piece.continued else 4.0
        if len(starts) > FREEZE and not piece.code and i == len(self._pieces) - 1:
            self._freeze(piece, i, starts)

    def _freeze(self, piece: Piece, i: int, starts: list[int]) -> None:
        """Parts a long paragraph at a line's start: what is above stays, what is below goes on growing."""
        cut = next((at for start in starts[-2:4:-1] if (at := _raw_cut(piece.raw, start))), None)
        if cut is None:
            return
        rest = Piece(piece.raw[cut:], False, continued=True)
        piece.raw = piece.raw[:cut]
        self._pieces.insert(i + 1, rest)
        self._lay_out(piece, i)
        self._lay_out(rest, i + 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self._relay()

    def _relay(self) -> None:
        """For a new width: lines break elsewhere, so that parted paragraphs are joined first."""
        joined: list[Piece] = []
        for piece in self._pieces:
            if piece.continued and joined:
                joined[-1].raw += piece.raw
            else:
                joined.append(piece)
        self._pieces = joined
        self._anchor = self._cursor = None
        for piece in joined:
            piece.layout = None
        self._lay_out_from(0)

    def sizeHint(self) -> QSize:
        return QSize(320, self.height())

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.FontChange:
            self._relay()
        super().changeEvent(event)

    # -- painting ------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        p, t = QPainter(self), theme_of(self)
        area = event.rect()
        chosen = self._selection()
        for i, piece in enumerate(self._pieces):
            if piece.top > area.bottom() or piece.top + piece.height < area.top() or piece.layout is None:
                continue
            if piece.code or piece.raw.startswith(FENCE):
                p.fillRect(QRectF(0, piece.top, self.width(), piece.height), QColor(t.well))
            p.setPen(QColor(t.ink2 if piece.code else t.ink))
            marks = []
            if chosen and chosen[0][0] <= i <= chosen[1][0]:
                start = chosen[0][1] if i == chosen[0][0] else 0
                end = chosen[1][1] if i == chosen[1][0] else len(piece.shown)
                mark = QTextLayout.FormatRange()
                mark.start, mark.length = start, end - start
                style = QTextCharFormat()
                style.setBackground(QColor(t.ink))
                style.setForeground(QColor(t.on_ink))
                mark.format = style
                marks = [mark]
            piece.layout.draw(p, QPointF(0, piece.top), marks)
        if self._caret and self._pieces:
            self._draw_caret(p, QColor(t.ink))

    def _draw_caret(self, p: QPainter, colour: QColor) -> None:
        last = self._pieces[-1]
        if last.layout is None or not last.layout.lineCount():
            p.fillRect(QRectF(1, last.top + 3, 7, 15), colour)
            return
        line = last.layout.lineAt(last.layout.lineCount() - 1)
        p.fillRect(QRectF(line.x() + line.naturalTextWidth() + 3, last.top + line.y() + 1, 7, 15), colour)

    # -- selection -----------------------------------------------------------------------------------------------

    def selected(self) -> str:
        chosen = self._selection()
        if not chosen:
            return ""
        (first, start), (last, end) = chosen
        if first == last:
            return self._pieces[first].shown[start:end]
        middle = [piece.shown for piece in self._pieces[first + 1 : last]]
        return "\n".join([self._pieces[first].shown[start:], *middle, self._pieces[last].shown[:end]])

    def _selection(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        if self._anchor is None or self._cursor is None or self._anchor == self._cursor:
            return None
        return min(self._anchor, self._cursor), max(self._anchor, self._cursor)

    def _position(self, point: QPointF) -> tuple[int, int]:
        for i, piece in enumerate(self._pieces):
            if point.y() < piece.top + piece.height or i == len(self._pieces) - 1:
                layout = piece.layout
                if layout is None or not layout.lineCount():
                    return i, 0
                lines = [layout.lineAt(n) for n in range(layout.lineCount())]
                y = point.y() - piece.top
                line = next((each for each in lines if y < each.y() + each.height() + 3), lines[-1])
                return i, line.xToCursor(point.x())
        return 0, 0

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self._pieces:
            self._anchor = self._cursor = self._position(event.position())
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton and self._anchor is not None:
            self._cursor = self._position(event.position())
            self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.selected() or self._text)
        elif event.matches(QKeySequence.StandardKey.SelectAll) and self._pieces:
            self._anchor = (0, 0)
            self._cursor = (len(self._pieces) - 1, len(self._pieces[-1].shown))
            self.update()
        else:
            super().keyPressEvent(event)


def _code_after(piece: Piece) -> bool:
    """Whether the line after this one is code."""
    return not piece.code if piece.raw.startswith(FENCE) else piece.code


def _plain(raw: str) -> tuple[str, list[tuple[int, int, str]]]:
    """The text without its marks, and what the marks meant: (start, length, `bold`, `mono` or `italic`)."""
    if raw.startswith("#"):
        words = raw.lstrip("#").strip()
        return words, [(0, len(words), "bold")] if words else []
    shown, spans, at = "", [], 0
    for match in _MARKS.finditer(raw):
        shown += raw[at : match.start()]
        words = match[1] or match[2] or match[3]
        style = "bold" if match[1] else "mono" if match[2] else "italic"
        spans.append((len(shown), len(words), style))
        shown += words
        at = match.end()
    return shown + raw[at:], spans


def _raw_cut(raw: str, cut: int) -> int | None:
    """Where the shown text's position `cut` lies in the raw text; None within marks, which must stay together."""
    if raw.startswith("#"):
        return None
    shown = at = 0
    for match in _MARKS.finditer(raw):
        before = match.start() - at
        if cut <= shown + before:
            break
        shown += before + len(match[1] or match[2] or match[3])
        at = match.end()
        if cut < shown:
            return None
    return at + cut - shown


def _range(start: int, length: int, style: str) -> QTextLayout.FormatRange:
    form = QTextCharFormat()
    if style == "bold":
        form.setFontWeight(QFont.Weight.DemiBold)
    elif style == "italic":
        form.setFontItalic(True)
    else:
        form.setFont(font(12, mono=True))
    found = QTextLayout.FormatRange()
    found.start, found.length, found.format = start, length, form
    return found
