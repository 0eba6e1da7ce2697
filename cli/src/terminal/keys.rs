//! Keys, as the session knows them.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::editor::To;

/// What came from the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A text at once.
    Paste(String),
    /// The input is complete.
    Enter,
    /// A new row in the input.
    NewRow,
    /// Moves the cursor.
    Go(To),
    /// Deletes.
    Delete(To),
    /// Deletes, to be put back.
    Kill(To),
    /// Puts back.
    Yank,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
    /// Ctrl-L.
    Redraw,
    /// The screen has another size now.
    Resize {
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
}

/// The key of a terminal's event; `None` for those that mean nothing here.
pub fn key(event: Event) -> Option<Key> {
    match event {
        Event::Key(KeyEvent {
            kind: KeyEventKind::Release,
            ..
        }) => None,
        Event::Key(KeyEvent {
            code, modifiers, ..
        }) => pressed(code, modifiers),
        Event::Paste(text) => Some(Key::Paste(text)),
        Event::Resize(width, height) => Some(Key::Resize { width, height }),
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    let control = modifiers.contains(KeyModifiers::CONTROL);
    let alt = modifiers.contains(KeyModifiers::ALT);
    let shift = modifiers.contains(KeyModifiers::SHIFT);
    Some(match code {
        KeyCode::Enter if alt || shift || control => Key::NewRow,
        KeyCode::Enter => Key::Enter,
        KeyCode::Left if control || alt => Key::Go(To::WordLeft),
        KeyCode::Right if control || alt => Key::Go(To::WordRight),
        KeyCode::Left => Key::Go(To::Left),
        KeyCode::Right => Key::Go(To::Right),
        KeyCode::Home => Key::Go(To::Home),
        KeyCode::End => Key::Go(To::End),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Backspace if control || alt => Key::Kill(To::WordLeft),
        KeyCode::Backspace => Key::Delete(To::Left),
        KeyCode::Delete => Key::Delete(To::Right),
        KeyCode::Char(c) if control => match c.to_ascii_lowercase() {
            'a' => Key::Go(To::Home),
            'b' => Key::Go(To::Left),
            'c' => Key::Interrupt,
            'd' => Key::End,
            'e' => Key::Go(To::End),
            'f' => Key::Go(To::Right),
            'h' => Key::Delete(To::Left),
            'j' => Key::NewRow,
            'k' => Key::Kill(To::End),
            'l' => Key::Redraw,
            'n' => Key::Down,
            'p' => Key::Up,
            'u' => Key::Kill(To::Home),
            'w' => Key::Kill(To::WordLeft),
            'y' => Key::Yank,
            _ => return None,
        },
        KeyCode::Char(c) if alt => match c {
            'b' => Key::Go(To::WordLeft),
            'f' => Key::Go(To::WordRight),
            'd' => Key::Kill(To::WordRight),
            _ => return None,
        },
        KeyCode::Char(c) => Key::Char(c),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_shells_taught_people() {
        let control = KeyModifiers::CONTROL;
        let none = KeyModifiers::NONE;
        for (code, modifiers, key) in [
            (KeyCode::Char('a'), none, Some(Key::Char('a'))),
            (
                KeyCode::Char('A'),
                KeyModifiers::SHIFT,
                Some(Key::Char('A')),
            ),
            (KeyCode::Char('a'), control, Some(Key::Go(To::Home))),
            (KeyCode::Char('c'), control, Some(Key::Interrupt)),
            (KeyCode::Char('j'), control, Some(Key::NewRow)),
            (KeyCode::Enter, none, Some(Key::Enter)),
            (KeyCode::Enter, KeyModifiers::ALT, Some(Key::NewRow)),
            (KeyCode::Left, control, Some(Key::Go(To::WordLeft))),
            (KeyCode::Char('x'), KeyModifiers::ALT, None),
            (KeyCode::F(1), none, None),
        ] {
            assert_eq!(pressed(code, modifiers), key, "{code:?} {modifiers:?}");
        }
    }
}
