//! Which folders of a user's home hold toolchains that commands need.

use std::path::{Path, PathBuf};

/// Folders that belong to a `bin` folder of `PATH`, both relative to home.
///
/// Binaries, toolchains and package caches; never a folder with credentials
/// (so `.cargo` itself is none of them: it may hold `credentials.toml`).
const KNOWN: &[(&str, &[&str])] = &[
    (
        ".cargo/bin",
        &[".cargo/bin", ".cargo/registry", ".cargo/git", ".rustup"],
    ),
    ("go/bin", &["go"]),
    (".pyenv/shims", &[".pyenv"]),
    (".pyenv/bin", &[".pyenv"]),
    (".rbenv/shims", &[".rbenv"]),
    (".asdf/shims", &[".asdf"]),
    (".local/share/mise/shims", &[".local/share/mise"]),
    (".volta/bin", &[".volta"]),
    (".bun/bin", &[".bun"]),
    (".deno/bin", &[".deno"]),
    (".ghcup/bin", &[".ghcup", ".cabal/packages"]),
    (
        ".local/bin",
        &[".local/bin", ".local/share/uv", ".local/share/pipx"],
    ),
];
/// Where versions of a toolchain lie side by side, each with a `bin`.
const VERSIONED: &[&str] = &[".nvm/versions", ".sdkman/candidates", ".local/share/fnm"];

/// The folders below `home` that `PATH` points into, with what belongs to
/// them; only those that exist, none below another.
pub fn toolchains(path: &str, home: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in path.split(':').map(Path::new) {
        let Ok(relative) = entry.strip_prefix(home) else {
            continue;
        };
        if relative.as_os_str().is_empty() {
            continue;
        }
        let known = KNOWN.iter().find(|(bin, _)| relative.starts_with(bin));
        if let Some((_, folders)) = known {
            found.extend(folders.iter().map(|folder| home.join(folder)));
        } else if let Some(parent) = relative.parent()
            && VERSIONED
                .iter()
                .any(|versions| relative.starts_with(versions))
        {
            found.push(home.join(parent));
        } else {
            found.push(entry.to_owned());
        }
    }
    found.retain(|folder| folder.is_dir());
    found.sort();
    found.dedup();
    let all = found.clone();
    found.retain(|folder| {
        !all.iter()
            .any(|other| folder != other && folder.starts_with(other))
    });
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn toolchains_are_found_without_what_lies_beside_them() {
        let home = tempfile::tempdir().unwrap();
        for folder in [
            ".cargo/bin",
            ".cargo/registry",
            ".rustup",
            ".nvm/versions/node/v22/bin",
            ".pyenv/shims",
            ".pyenv/bin",
            "bin",
            ".ssh",
        ] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let path: Vec<String> = [
            ".cargo/bin",
            ".nvm/versions/node/v22/bin",
            ".pyenv/shims",
            ".pyenv/bin",
            "bin",
            "missing/bin",
            "",
        ]
        .iter()
        .map(|folder| home.path().join(folder).display().to_string())
        .collect();
        let found: Vec<_> = toolchains(&format!("/usr/bin:{}", path.join(":")), home.path())
            .into_iter()
            .map(|folder| {
                folder
                    .strip_prefix(home.path())
                    .unwrap()
                    .display()
                    .to_string()
            })
            .collect();
        assert_eq!(
            found,
            [
                ".cargo/bin",
                ".cargo/registry",
                ".nvm/versions/node/v22",
                ".pyenv",
                ".rustup",
                "bin",
            ]
        );
    }
}
