//! Rows on their way to the database: the binds of one table's statement, row by row.
//! The commit's number is not known when a step is put together; the line binds it as
//! `?1`, and the columns of a row follow from `?2` on.

use serde::Serialize;

/// Rows of one table. All their texts lie in one buffer.
#[derive(Debug, Default, Clone)]
pub(crate) struct Rows {
    cells: Vec<Cell>,
    text: Vec<u8>,
    rows: usize,
}

/// A value of one column.
#[derive(Debug, Clone, Copy)]
enum Cell {
    Null,
    Int(i64),
    /// From there to there in the buffer.
    Text(usize, usize),
}

/// A column's value, as it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column<'a> {
    Null,
    Int(i64),
    /// UTF-8.
    Text(&'a [u8]),
}

impl Rows {
    /// Begins a row; it ends when the writer is dropped.
    pub fn row(&mut self) -> Row<'_> {
        if self.rows == 0 {
            // About a row's, in place of several growths from nothing.
            self.cells.reserve(16);
            self.text.reserve(512);
        }
        Row { rows: self }
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The columns of each row in turn.
    pub fn iter(&self) -> impl Iterator<Item = impl Iterator<Item = Column<'_>>> {
        // Every row of a table has the same columns.
        let width = self.cells.len().checked_div(self.rows).unwrap_or(0).max(1);
        self.cells.chunks(width).map(|row| {
            row.iter().map(|cell| match *cell {
                Cell::Null => Column::Null,
                Cell::Int(value) => Column::Int(value),
                Cell::Text(from, to) => Column::Text(&self.text[from..to]),
            })
        })
    }
}

/// Writes the columns of one row in order.
pub(crate) struct Row<'a> {
    rows: &'a mut Rows,
}

impl Row<'_> {
    pub fn int(self, value: i64) -> Self {
        self.rows.cells.push(Cell::Int(value));
        self
    }

    pub fn flag(self, value: bool) -> Self {
        self.int(i64::from(value))
    }

    pub fn null(self) -> Self {
        self.rows.cells.push(Cell::Null);
        self
    }

    pub fn opt_int(self, value: Option<i64>) -> Self {
        match value {
            Some(value) => self.int(value),
            None => self.null(),
        }
    }

    pub fn text(self, value: &str) -> Self {
        let from = self.rows.text.len();
        self.rows.text.extend_from_slice(value.as_bytes());
        self.written(from)
    }

    pub fn opt_text(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    /// A column that holds JSON text.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        let from = self.rows.text.len();
        serde_json::to_writer(&mut self.rows.text, value).expect("records are plain data");
        self.written(from)
    }

    pub fn opt_json<T: Serialize>(self, value: Option<&T>) -> Self {
        match value {
            Some(value) => self.json(value),
            None => self.null(),
        }
    }

    fn written(self, from: usize) -> Self {
        let to = self.rows.text.len();
        self.rows.cells.push(Cell::Text(from, to));
        self
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        self.rows.rows += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_give_back_what_was_written() {
        let mut rows = Rows::default();
        assert!(rows.is_empty() && rows.iter().next().is_none());
        rows.row().int(7).text("a\"b").null().text("");
        rows.row()
            .opt_int(None)
            .json(&serde_json::json!({"k": 1}))
            .flag(true)
            .opt_text(Some("ü"));
        let read: Vec<Vec<_>> = rows.iter().map(Iterator::collect).collect();
        use Column::{Int, Null, Text};
        assert_eq!(
            read,
            [
                vec![Int(7), Text(b"a\"b"), Null, Text(b"")],
                vec![Null, Text(b"{\"k\":1}"), Int(1), Text("ü".as_bytes())]
            ]
        );
    }
}
