"""Keeps: chats, measurements and the library on this disk. No Qt, no torch."""
