//! One call of a tool, as the harness gives it.

/// What a call does, as far as the policy has tables for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Runs a script.
    Bash {
        /// The script.
        text: &'a str,
        /// The folder it starts in: absolute, or empty for the project.
        cwd: &'a str,
    },
    /// Reads a file.
    Read {
        /// As the model gave it: absolute, beginning with `~/`, or relative to the project.
        path: &'a str,
    },
    /// Writes, edits or removes a file.
    Write {
        /// As for `Read`.
        path: &'a str,
    },
    /// Lists or searches below a folder.
    Search {
        /// As for `Read`; empty for the project.
        path: &'a str,
    },
    /// Anything else: only the tool's name is decided.
    Other,
}

/// One call. A tool of a server is named `mcp__server__tool`; its declared path
/// arguments are a `Read` or a `Write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// What the call does.
    pub action: Action<'a>,
}
