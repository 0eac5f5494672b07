"""What can be done now, by the keys of the menus: commands that can't be are grey."""

from __future__ import annotations

from layerlight.ui.session import Session


def possible(session: Session, working: bool) -> dict[str, bool]:
    """Commands that are not always possible. `working` is whether the working view is seen."""
    state, idle = session.state, not session.busy
    current = session.conversations.current is not None
    return {
        "load": not session.load_refusal and idle,
        "unload": state.loaded is not None and idle,
        "stop": session.busy,
        "starter": idle,
        "survey": idle,
        "calibrate": session.can_calibrate,
        "undo": session.can_undo and idle,
        "redo": session.can_redo and idle,
        "reset": session.is_by_hand and idle,
        "new_chat": idle,
        "answer_again": session.can_answer_again,
        "edit_question": session.can_answer_again,
        "bring_back": session.conversations.deleted is not None,
        "copy_chat": current,
        "save_chat": current,
        "copy_answer": any(turn.role == "assistant" for turn in session.turns),
        "wider_side": working,
        "narrower_side": working,
        "left_panel": working,
        "copy_facts": state.model is not None,
        "show_folder": bool(state.model and state.model.folder),
    }
