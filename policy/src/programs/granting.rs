//! Programs that are asked for every time: no "always" is offered for them.

use super::{interpreters, wrappers};

/// Why no lasting grant is given for a command; `None` where one may be.
pub(crate) fn refused(words: &[String]) -> Option<String> {
    let program = words.first()?.as_str();
    let second = words.get(1).map_or("", String::as_str);
    if interpreters::is_one(program) {
        return Some(format!("{program} runs any code"));
    }
    if wrappers::is_one(program) {
        return Some(format!("{program} runs any command"));
    }
    if NETWORK.contains(&program) {
        return Some(format!("{program} reaches the network"));
    }
    if words.iter().skip(1).any(|word| word.contains("://")) {
        return Some(format!("{program} is given an address"));
    }
    if program == "git" && (second.is_empty() || second.starts_with('-')) {
        return Some("git as a whole is too wide".to_owned());
    }
    let installs = INSTALLERS.iter().any(|(name, subs)| {
        *name == program && (subs.is_empty() || subs.split(' ').any(|sub| sub == second))
    });
    installs.then(|| {
        format!("{program} {second} runs scripts of packages")
            .trim_end()
            .to_owned()
    })
}

const NETWORK: [&str; 17] = [
    "curl",
    "wget",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "telnet",
    "ftp",
    "sftp",
    "scp",
    "rsync",
    "http",
    "https",
    "aria2c",
    "dig",
    "nslookup",
    "ssh-copy-id",
];

/// Programs, and those of their sub-commands, that run scripts of packages.
const INSTALLERS: [(&str, &str); 18] = [
    (
        "npm",
        "install i ci add update exec x init create rebuild publish",
    ),
    (
        "pnpm",
        "install i add update exec dlx create rebuild publish",
    ),
    ("yarn", "install add upgrade exec dlx create publish"),
    ("npx", ""),
    ("pnpx", ""),
    ("bunx", ""),
    ("pip", "install download wheel"),
    ("pip3", "install download wheel"),
    ("pipx", ""),
    ("uv", "pip run tool add sync"),
    ("uvx", ""),
    ("poetry", "install add run update"),
    ("gem", "install"),
    ("bundle", "install exec"),
    ("cargo", "install publish"),
    ("go", "install get generate"),
    ("apt", ""),
    ("apt-get", ""),
];

#[cfg(test)]
mod tests {
    use super::refused;

    #[test]
    fn wide_programs_are_refused_and_narrow_ones_are_not() {
        for (text, expected) in [
            ("bash -c x", true),
            ("python3 a.py", true),
            ("env", true),
            ("sudo ls", true),
            ("curl x", true),
            ("git", true),
            ("git -c a=b push", true),
            ("git push https://a/b", true),
            ("npm install x", true),
            ("npx x", true),
            ("git push origin main", false),
            ("npm run build", false),
            ("make test", false),
            ("cargo build", false),
        ] {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(refused(&words).is_some(), expected, "{text}");
        }
    }
}
