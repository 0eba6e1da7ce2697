//! The inputs of earlier sessions, one JSON string a line.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Inputs that are kept.
const KEPT: usize = 1000;

/// The file of a project's inputs.
pub struct History {
    path: PathBuf,
}

impl History {
    /// Reads the file; a missing or damaged one is an empty one. Of a long file
    /// only the newest inputs are kept.
    pub fn load(path: &Path) -> (Self, Vec<String>) {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut inputs: Vec<String> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let history = History {
            path: path.to_owned(),
        };
        if inputs.len() > 2 * KEPT {
            inputs.drain(..inputs.len() - KEPT);
            let _ = fs::remove_file(path);
            for input in &inputs {
                history.add(input);
            }
        }
        (history, inputs)
    }

    /// Adds an input. That it cannot be written is not worth an interruption.
    pub fn add(&self, input: &str) {
        let line = serde_json::Value::from(input).to_string();
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path);
        let _ = file.and_then(|mut file| writeln!(file, "{line}"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn inputs_come_back_with_their_rows_and_a_long_file_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (history, inputs) = History::load(&path);
        assert!(inputs.is_empty());
        history.add("one\ntwo \"three\"");
        fs::write(
            &path,
            format!("{}damaged\n", fs::read_to_string(&path).unwrap()),
        )
        .unwrap();
        history.add("last");
        assert_eq!(History::load(&path).1, ["one\ntwo \"three\"", "last"]);

        for number in 0..2 * KEPT {
            history.add(&number.to_string());
        }
        let (_, inputs) = History::load(&path);
        assert_eq!((inputs.len(), inputs[KEPT - 1].as_str()), (KEPT, "1999"));
        assert_eq!(History::load(&path).1.len(), KEPT);
    }
}
