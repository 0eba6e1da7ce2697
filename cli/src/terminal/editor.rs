//! The line being typed: several rows, a cursor, a history.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};
use unicode_width::UnicodeWidthStr;

/// Bytes of one input; a longer paste is cut there.
const INPUT_MAX: usize = 1 << 20;

/// Where a movement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One character to the left.
    Left,
    /// One character to the right.
    Right,
    /// The start of the word before.
    WordLeft,
    /// The end of the word after.
    WordRight,
    /// The start of the row.
    Home,
    /// The end of the row.
    End,
}

/// The text being typed and the inputs before it.
#[derive(Debug, Default)]
pub struct Editor {
    text: String,
    /// In bytes, between two characters.
    cursor: usize,
    killed: String,
    history: Vec<String>,
    /// Which entry of the history is shown; `None` while it is new text.
    recalled: Option<usize>,
    /// The new text, kept while the history is looked through.
    draft: String,
}

/// How the text looks on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its rows.
    pub rows: Vec<String>,
    /// The cursor's row.
    pub row: usize,
    /// The cursor's column.
    pub column: usize,
}

impl Editor {
    /// With the inputs of earlier sessions, oldest first.
    pub fn new(history: Vec<String>) -> Self {
        Editor {
            history,
            ..Editor::default()
        }
    }

    /// Whether nothing is typed.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Inserts at the cursor; control characters other than line feeds are left out.
    pub fn insert(&mut self, text: &str) {
        let mut clean = crate::text::sanitize(text);
        let mut room = INPUT_MAX.saturating_sub(self.text.len()).min(clean.len());
        while !clean.is_char_boundary(room) {
            room -= 1;
        }
        clean.truncate(room);
        self.text.insert_str(self.cursor, &clean);
        self.cursor += clean.len();
    }

    /// Takes the text as an input, which goes into the history.
    pub fn submit(&mut self) -> String {
        let text = self.take();
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            self.history.push(text.clone());
        }
        text
    }

    /// Takes the text away.
    pub fn take(&mut self) -> String {
        self.cursor = 0;
        self.recalled = None;
        self.draft.clear();
        std::mem::take(&mut self.text)
    }

    /// Enter: a backslash at the end of the text becomes a new row instead.
    /// Tells whether the text is an input now.
    pub fn enter(&mut self) -> bool {
        if self.cursor == self.text.len() && self.text.ends_with('\\') {
            self.text.pop();
            self.text.push('\n');
            self.cursor = self.text.len();
            return false;
        }
        true
    }

    /// Moves the cursor.
    pub fn go(&mut self, to: To) {
        self.cursor = self.target(to);
    }

    /// Deletes from the cursor to there.
    pub fn delete(&mut self, to: To) {
        let target = self.target(to);
        self.remove(target);
    }

    /// Deletes from the cursor to there, to be put back by [`Editor::yank`].
    pub fn kill(&mut self, to: To) {
        let target = self.target(to);
        let removed = self.remove(target);
        if !removed.is_empty() {
            self.killed = removed;
        }
    }

    /// Puts back what was killed last.
    pub fn yank(&mut self) {
        let text = self.killed.clone();
        self.insert(&text);
    }

    /// One row up, or to the input before in the history.
    pub fn up(&mut self) {
        let start = self.row_start();
        if start > 0 {
            let column = self.text[start..self.cursor].graphemes(true).count();
            let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
            self.cursor = along(&self.text[above..start - 1], column) + above;
            return;
        }
        let before = self.recalled.unwrap_or(self.history.len());
        if before > 0 {
            if self.recalled.is_none() {
                self.draft = self.text.clone();
            }
            self.recall(before - 1);
        }
    }

    /// One row down, or to the input after in the history.
    pub fn down(&mut self) {
        let end = self.row_end();
        if end < self.text.len() {
            let column = self.text[self.row_start()..self.cursor]
                .graphemes(true)
                .count();
            let below = end + 1;
            let below_end = self.text[below..]
                .find('\n')
                .map_or(self.text.len(), |at| below + at);
            self.cursor = along(&self.text[below..below_end], column) + below;
            return;
        }
        match self.recalled {
            Some(at) if at + 1 < self.history.len() => self.recall(at + 1),
            Some(_) => {
                self.recalled = None;
                self.text = std::mem::take(&mut self.draft);
                self.cursor = self.text.len();
            }
            None => {}
        }
    }

    /// The rows on a screen of `width` columns.
    pub fn layout(&self, width: usize) -> Layout {
        let width = width.max(2);
        let mut rows = vec![String::new()];
        let mut columns = 0;
        let mut place = (0, 0);
        for (at, grapheme) in self.text.grapheme_indices(true) {
            if at == self.cursor {
                place = (rows.len() - 1, columns);
            }
            if grapheme == "\n" {
                rows.push(String::new());
                columns = 0;
                continue;
            }
            let wide = grapheme.width();
            if columns + wide > width {
                rows.push(String::new());
                columns = 0;
                if at == self.cursor {
                    place = (rows.len() - 1, 0);
                }
            }
            if let Some(row) = rows.last_mut() {
                row.push_str(grapheme);
            }
            columns += wide;
        }
        if self.cursor == self.text.len() {
            if columns >= width {
                rows.push(String::new());
                columns = 0;
            }
            place = (rows.len() - 1, columns);
        }
        Layout {
            rows,
            row: place.0,
            column: place.1,
        }
    }

    fn recall(&mut self, at: usize) {
        self.recalled = Some(at);
        self.text = self.history[at].clone();
        self.cursor = self.text.len();
    }

    fn remove(&mut self, target: usize) -> String {
        let range = self.cursor.min(target)..self.cursor.max(target);
        self.cursor = range.start;
        self.text.drain(range).collect()
    }

    fn row_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn row_end(&self) -> usize {
        self.text[self.cursor..]
            .find('\n')
            .map_or(self.text.len(), |at| self.cursor + at)
    }

    fn target(&self, to: To) -> usize {
        let mut grapheme = GraphemeCursor::new(self.cursor, self.text.len(), true);
        match to {
            To::Left => grapheme
                .prev_boundary(&self.text, 0)
                .ok()
                .flatten()
                .unwrap_or(0),
            To::Right => grapheme
                .next_boundary(&self.text, 0)
                .ok()
                .flatten()
                .unwrap_or(self.text.len()),
            To::WordLeft => self.text[..self.cursor]
                .unicode_word_indices()
                .next_back()
                .map_or(0, |(at, _)| at),
            To::WordRight => self.text[self.cursor..]
                .unicode_word_indices()
                .next()
                .map_or(self.text.len(), |(at, word)| self.cursor + at + word.len()),
            To::Home => self.row_start(),
            To::End => self.row_end(),
        }
    }
}

/// Bytes of the first `column` characters of a row, or of all it has.
fn along(row: &str, column: usize) -> usize {
    row.grapheme_indices(true)
        .nth(column)
        .map_or(row.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An editor from a text with `|` where the cursor is.
    fn at(marked: &str) -> Editor {
        let cursor = marked.find('|').unwrap_or(marked.len());
        Editor {
            text: marked.replacen('|', "", 1),
            cursor,
            ..Editor::default()
        }
    }

    fn marked(editor: &Editor) -> String {
        let mut text = editor.text.clone();
        text.insert(editor.cursor, '|');
        text
    }

    #[test]
    fn the_cursor_moves_over_characters_words_and_rows() {
        for (before, to, after) in [
            ("ab|c", To::Left, "a|bc"),
            ("|abc", To::Left, "|abc"),
            ("a👩‍👩‍👧|", To::Left, "a|👩‍👩‍👧"),
            ("a|ä", To::Right, "aä|"),
            ("a|", To::Right, "a|"),
            ("git push --force|", To::WordLeft, "git push --|force"),
            ("git |push", To::WordLeft, "|git push"),
            ("git| push", To::WordRight, "git push|"),
            ("one\ntw|o", To::Home, "one\n|two"),
            ("o|ne\ntwo", To::End, "one|\ntwo"),
        ] {
            let mut editor = at(before);
            editor.go(to);
            assert_eq!(marked(&editor), after, "{before} {to:?}");
        }
    }

    #[test]
    fn text_is_deleted_and_put_back() {
        for (before, to, after) in [
            ("ab|c", To::Left, "a|c"),
            ("ab|c", To::Right, "ab|"),
            ("a b|c d", To::End, "a b|"),
            ("one\ntwo| three", To::Home, "one\n| three"),
            ("one two|", To::WordLeft, "one |"),
            ("|", To::Left, "|"),
        ] {
            let mut editor = at(before);
            editor.kill(to);
            assert_eq!(marked(&editor), after, "{before} {to:?}");
            editor.yank();
            assert_eq!(editor.text, at(before).text, "{before} {to:?}");
        }
    }

    #[test]
    fn a_paste_keeps_its_rows_and_loses_what_steers_the_terminal() {
        let mut editor = at("a|b");
        editor.insert("1\r\n2\u{1b}[31m\t3");
        assert_eq!(marked(&editor), "a1\n2    3|b");
        let mut editor = Editor::default();
        editor.insert(&"ä".repeat(INPUT_MAX));
        assert!(editor.text.len() <= INPUT_MAX);
    }

    #[test]
    fn up_and_down_go_through_rows_and_then_through_the_history() {
        let mut editor = Editor::new(vec!["first".into(), "second\nrow".into()]);
        editor.insert("new");
        let mut seen = Vec::new();
        for up in [true, true, true, true, false, false, false, false] {
            if up {
                editor.up()
            } else {
                editor.down()
            }
            seen.push(marked(&editor));
        }
        assert_eq!(
            seen,
            [
                "second\nrow|",
                "sec|ond\nrow",
                "first|",
                "first|",
                "second\nrow|",
                "new|",
                "new|",
                "new|",
            ]
        );
        assert_eq!(editor.submit(), "new");
        editor.insert("new");
        editor.submit();
        assert_eq!(
            editor.history,
            ["first", "second\nrow", "new"],
            "the same again is kept once"
        );
    }

    #[test]
    fn enter_after_a_backslash_is_a_new_row() {
        for (before, is_input, after) in [
            ("abc|", true, "abc|"),
            ("abc\\|", false, "abc\n|"),
            ("a\\|b", true, "a\\|b"),
        ] {
            let mut editor = at(before);
            assert_eq!(editor.enter(), is_input, "{before}");
            assert_eq!(marked(&editor), after);
        }
    }

    #[test]
    fn long_rows_are_broken_and_the_cursor_is_where_its_character_is() {
        for (text, width, rows, place) in [
            ("|", 10, vec![""], (0, 0)),
            ("abc|", 10, vec!["abc"], (0, 3)),
            ("abcd|", 4, vec!["abcd", ""], (1, 0)),
            ("abcd|ef", 4, vec!["abcd", "ef"], (1, 0)),
            ("ab|cdef", 4, vec!["abcd", "ef"], (0, 2)),
            ("a\nb|c", 10, vec!["a", "bc"], (1, 1)),
            ("a|\nbc", 10, vec!["a", "bc"], (0, 1)),
            ("a\n|", 10, vec!["a", ""], (1, 0)),
            ("漢字|漢", 5, vec!["漢字", "漢"], (1, 0)),
        ] {
            let layout = at(text).layout(width);
            assert_eq!(
                (layout.rows.clone(), (layout.row, layout.column)),
                (rows.iter().map(|r| r.to_string()).collect(), place),
                "{text:?} at {width}"
            );
        }
    }
}
