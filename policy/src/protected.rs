//! Files whose change runs something later, or changes who decides: a write to
//! one asks at least, whatever the tables allow.

use std::borrow::Cow;

use crate::environment::is_within;

/// Names below the home folder.
const HOME: [&str; 26] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".inputrc",
    ".vimrc",
    ".exrc",
    ".emacs",
    ".nanorc",
    ".gitconfig",
    ".npmrc",
    ".pypirc",
    ".pythonrc.py",
    ".tmux.conf",
    ".netrc",
    ".pam_environment",
    ".xprofile",
    ".xsessionrc",
    ".curlrc",
    ".wgetrc",
];

/// Folders below the home folder.
const HOME_FOLDERS: [&str; 11] = [
    ".ssh",
    ".gnupg",
    ".config",
    ".vim",
    ".emacs.d",
    ".cargo",
    ".local/bin",
    ".local/share/applications",
    "bin",
    ".kube",
    ".aws",
];

/// Names of files that tell an agent what to do, in any folder.
const INSTRUCTIONS: [&str; 9] = [
    "agents.md",
    "agent.md",
    "claude.md",
    "claude.local.md",
    "gemini.md",
    ".cursorrules",
    ".windsurfrules",
    "copilot-instructions.md",
    "mooring.md",
];

/// Folders of editors and agents, in any folder.
const TOOL_FOLDERS: [&str; 7] = [
    ".vscode",
    ".idea",
    ".cursor",
    ".claude",
    ".devcontainer",
    ".mooring",
    ".husky",
];

/// Files of Workspaces.
const WORKSPACE: [&str; 4] = [
    "workspace.yaml",
    "workspace.yml",
    "mooring.yaml",
    "mooring.yml",
];

/// What a path is, if it is protected; the paths are absolute and normalised.
pub(crate) fn find(paths: &[&str], project: &str, home: &str) -> Option<&'static str> {
    paths.iter().find_map(|path| one(path, project, home))
}

fn one(path: &str, project: &str, home: &str) -> Option<&'static str> {
    let folded = match path
        .bytes()
        .any(|byte| !byte.is_ascii() || byte.is_ascii_uppercase())
    {
        true => Cow::Owned(path.to_lowercase()),
        false => Cow::Borrowed(path),
    };
    let parts: Vec<&str> = folded.split('/').filter(|part| !part.is_empty()).collect();
    let name = parts.last().copied().unwrap_or_default();
    if let Some(at) = parts.iter().position(|part| *part == ".git") {
        match parts.get(at + 1).copied() {
            None => return Some("a git folder, or the file that names one"),
            Some("hooks") => return Some("a git hook"),
            Some("config" | "config.worktree" | "config.lock") => return Some("git configuration"),
            Some("info" | "modules" | "worktrees" | "objects" | "commondir" | "gitdir") => {
                return Some("a part of git's own files");
            }
            _ => {}
        }
    }
    if matches!(name, ".gitmodules" | ".gitattributes" | ".lfsconfig") {
        return Some("a file that configures git");
    }
    if is_within(path, home) && !(is_within(path, project) && is_within(project, home)) {
        let below: Vec<&str> = path[home.len().min(path.len())..]
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        let below = below.join("/").to_lowercase();
        if HOME.contains(&below.as_str()) {
            return Some("a start-up file");
        }
        if HOME_FOLDERS.iter().any(|folder| is_within(&below, folder)) {
            return Some("configuration of the user");
        }
    }
    if matches!(
        name,
        ".bashrc" | ".profile" | ".envrc" | ".zshrc" | ".zshenv" | ".bash_profile"
    ) {
        return Some("a start-up file");
    }
    if INSTRUCTIONS.contains(&name) {
        return Some("a file of instructions for the agent");
    }
    if WORKSPACE.contains(&name) {
        return Some("a Workspace file");
    }
    if parts.iter().any(|part| TOOL_FOLDERS.contains(part)) {
        return Some("configuration of an editor or an agent");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn files_that_run_or_decide_later_are_protected() {
        for (path, protected) in [
            ("/p/.git/hooks/pre-commit", true),
            ("/p/.git/HOOKS/pre-commit", true),
            ("/p/sub/.git/config", true),
            ("/p/.git/index", false),
            ("/p/.git", true),
            ("/p/wt/.git", true),
            ("/h/.bashrc", true),
            ("/h/.config/git/config", true),
            ("/h/.ssh/authorized_keys", true),
            ("/h/notes.txt", false),
            ("/p/AGENTS.md", true),
            ("/p/sub/CLAUDE.md", true),
            ("/p/.vscode/settings.json", true),
            ("/p/workspace.yaml", true),
            ("/p/src/main.rs", false),
            ("/p/README.md", false),
            ("/p/config/app.yaml", false),
        ] {
            assert_eq!(find(&[path], "/p", "/h").is_some(), protected, "{path}");
        }
    }
}
