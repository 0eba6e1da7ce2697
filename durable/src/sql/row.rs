//! Rows on their way to the database: JSON arrays, written once when a commit is
//! built. The commit's number is not known then; the line puts it in front.

use serde::Serialize;

/// Rows of one table.
#[derive(Debug, Default, Clone)]
pub(crate) struct Rows {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// Begins a row; it ends when the writer is dropped.
    pub fn row(&mut self) -> Row<'_> {
        Row { rows: self }
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends these rows to a JSON list, each with `commit` as its first column.
    pub fn write(&self, commit: i64, list: &mut Vec<u8>) {
        let mut start = 0;
        for &end in &self.ends {
            list.push(if list.is_empty() { b'[' } else { b',' });
            list.push(b'[');
            put_int(list, commit);
            list.extend_from_slice(&self.text[start..end]);
            list.push(b']');
            start = end;
        }
    }
}

/// Writes the columns of one row in order.
pub(crate) struct Row<'a> {
    rows: &'a mut Rows,
}

impl Row<'_> {
    pub fn int(self, value: i64) -> Self {
        self.rows.text.push(b',');
        put_int(&mut self.rows.text, value);
        self
    }

    pub fn flag(self, value: bool) -> Self {
        self.int(i64::from(value))
    }

    pub fn null(self) -> Self {
        self.rows.text.extend_from_slice(b",null");
        self
    }

    pub fn opt_int(self, value: Option<i64>) -> Self {
        match value {
            Some(value) => self.int(value),
            None => self.null(),
        }
    }

    pub fn text(self, value: &str) -> Self {
        self.rows.text.push(b',');
        serde_json::to_writer(&mut self.rows.text, value).expect("writing to memory");
        self
    }

    pub fn opt_text(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    /// A column that holds JSON text.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        let text = serde_json::to_string(value).expect("records are plain data");
        self.text(&text)
    }

    pub fn opt_json<T: Serialize>(self, value: Option<&T>) -> Self {
        match value {
            Some(value) => self.json(value),
            None => self.null(),
        }
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        self.rows.ends.push(self.rows.text.len());
    }
}

fn put_int(out: &mut Vec<u8>, value: i64) {
    use std::io::Write;
    write!(out, "{value}").expect("writing to memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_their_commit_in_front() {
        let mut rows = Rows::default();
        rows.row().int(7).text("a\"b").null();
        rows.row().json(&serde_json::json!({"k": 1})).flag(true);
        let mut list = Vec::new();
        rows.write(41, &mut list);
        rows.write(42, &mut list);
        list.push(b']');
        assert_eq!(
            String::from_utf8(list).expect("text"),
            r#"[[41,7,"a\"b",null],[41,"{\"k\":1}",1],[42,7,"a\"b",null],[42,"{\"k\":1}",1]]"#
        );
    }
}
