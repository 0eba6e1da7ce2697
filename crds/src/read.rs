//! Reads a Workspace from YAML, with line, column and field in errors.

mod places;

use kube::Resource;
use places::{Place, Places};

use crate::{Problem, Workspace, validate};

/// Bytes of a Workspace file; the API server takes no larger ones either.
const FILE_MAX: usize = 1 << 20;

/// Why a Workspace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no YAML, or not of the type's shape.
    #[error("{source_name}:{message}")]
    Malformed {
        /// The file's name as the caller gave it.
        source_name: String,
        /// `line:column: field: what is wrong`, or what is known of that.
        message: String,
    },
    /// It has the right shape and wrong values.
    #[error(
        "{}",
        .problems.iter().map(|problem| format!("{source_name}:{problem}")).collect::<Vec<_>>().join("\n")
    )]
    Invalid {
        /// The file's name as the caller gave it.
        source_name: String,
        /// All that is wrong; a path is `line:column: field`.
        problems: Vec<Problem>,
    },
}

/// Reads and validates one Workspace; `source_name` is named in errors.
pub fn read_workspace(text: &str, source_name: &str) -> Result<Workspace, ReadError> {
    let malformed = |message: String| ReadError::Malformed {
        source_name: source_name.to_owned(),
        message,
    };
    if text.len() > FILE_MAX {
        return Err(malformed(format!(
            " is {} bytes long; a Workspace has at most {FILE_MAX}",
            text.len()
        )));
    }
    let workspace: Workspace =
        serde_saphyr::from_str(text).map_err(|error| malformed(told(&error, text)))?;
    let mut problems = kind_problems(text, &workspace);
    problems.extend(validate(&workspace.spec));
    if problems.is_empty() {
        return Ok(workspace);
    }
    let places = Places::of(text);
    for problem in &mut problems {
        problem.path = match places.place(&problem.path) {
            Some(Place { line, column }) => format!("{line}:{column}: {}", problem.path),
            None => format!(" {}", problem.path),
        };
    }
    Err(ReadError::Invalid {
        source_name: source_name.to_owned(),
        problems,
    })
}

/// Another resource in the file, or one without a name.
fn kind_problems(text: &str, workspace: &Workspace) -> Vec<Problem> {
    #[derive(serde::Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Head {
        api_version: String,
        kind: String,
    }
    let head: Head = serde_saphyr::from_str(text).unwrap_or_default();
    let mut problems = Vec::new();
    for (path, found, expected) in [
        ("apiVersion", head.api_version, Workspace::api_version(&())),
        ("kind", head.kind, Workspace::kind(&())),
    ] {
        if found != expected {
            let message = format!("{found:?} has to be {expected}");
            problems.push(Problem {
                path: path.into(),
                message,
            });
        }
    }
    if workspace
        .metadata
        .name
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        let message = "is needed: the workspace's name".into();
        problems.push(Problem {
            path: "metadata.name".into(),
            message,
        });
    }
    problems
}

/// An error of the YAML reader: place, field, what is wrong, what may be meant.
fn told(error: &serde_saphyr::Error, text: &str) -> String {
    let inner = error.without_snippet();
    let mut message = inner.to_string();
    let place = inner.location().map(|location| Place {
        line: location.line(),
        column: location.column(),
    });
    if let Some(Place { line, column }) = place {
        // The reader tells the place in words, which stands in front already.
        for words in [
            format!("error: line {line} column {column}: "),
            format!(" at line {line}, column {column}"),
            format!("line {line} column {column}: "),
        ] {
            message = message.replace(&words, "");
        }
    }
    let field = place.and_then(|place| {
        let places = Places::of(text);
        places.path(place).map(str::to_owned)
    });
    if let Some(meant) = nearest_field(&message) {
        message = format!("{}; did you mean `{meant}`?", message.trim_end_matches('.'));
    }
    let mut out = match place {
        Some(Place { line, column }) => format!("{line}:{column}: "),
        None => " ".into(),
    };
    if let Some(field) = field {
        out.push_str(&format!("{field}: "));
    }
    out + &message
}

/// Of "unknown field `x`, expected one of a, b": the known one that is nearest
/// to the unknown one, where it is near.
fn nearest_field(message: &str) -> Option<&str> {
    let (found, expected) = message.split_once("expected ")?;
    let unknown = found
        .split('`')
        .nth(1)
        .filter(|_| found.contains("unknown"))?;
    expected
        .trim_start_matches("one of ")
        .split([',', ' '])
        .map(|known| known.trim_matches(['`', '"', '\'']))
        .filter(|known| !known.is_empty())
        .map(|known| {
            let distance = distance(&unknown.to_lowercase(), &known.to_lowercase());
            (distance, known)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .map(|(_, known)| known)
}

/// Insertions, deletions and replacements from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = (corner + usize::from(x != *y))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
