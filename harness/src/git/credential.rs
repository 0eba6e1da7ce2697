//! The credential of a git host: from the harness's side only.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zeroize::Zeroizing;

use super::address::Address;
use crate::model::KeyStore;

/// Variables that `mooring dev` hands over: the token, the only host that gets it, and
/// a user name where that host wants one.
pub const VARIABLES: [&str; 3] = [
    "MOORING_GIT_TOKEN",
    "MOORING_GIT_HOST",
    "MOORING_GIT_USERNAME",
];
/// How long git's own credential helpers may take.
const HELPER_PATIENCE: Duration = Duration::from_secs(20);
/// How long after its start a harness waits for a client to hand over what it has:
/// commands of the sandbox outlive a harness, and may ask before that.
const HANDOVER: Duration = Duration::from_secs(5);
/// Bytes of a credential; a larger one is none.
const MOST: u64 = 64 << 10;
/// The user name that hosts take beside a token, where they want one.
const ANY_USER: &str = "x-access-token";

/// What a git host is shown.
#[derive(Clone)]
pub struct Credential {
    username: Option<Zeroizing<String>>,
    secret: Zeroizing<String>,
    /// A token, which may go as a bearer's.
    token: bool,
}

impl Credential {
    /// A user with a password.
    pub fn password(username: &str, password: &str) -> Credential {
        Credential {
            username: Some(Zeroizing::new(username.to_owned())),
            secret: Zeroizing::new(password.to_owned()),
            token: false,
        }
    }

    /// A token, with a user name where the host wants one.
    pub fn token(username: Option<&str>, token: &str) -> Credential {
        Credential {
            username: username.map(|name| Zeroizing::new(name.to_owned())),
            secret: Zeroizing::new(token.to_owned()),
            token: true,
        }
    }

    /// The value of the `Authorization` field. `challenge` is what the host said that
    /// it takes, where it has said so: a lone token goes as a bearer's unless the host
    /// takes Basic only.
    pub fn field(&self, challenge: Option<&str>) -> Zeroizing<String> {
        let basic_only = challenge.is_some_and(|text| {
            let text = text.to_ascii_lowercase();
            text.contains("basic") && !text.contains("bearer")
        });
        if self.token && self.username.is_none() && !basic_only {
            return Zeroizing::new(format!("Bearer {}", *self.secret));
        }
        let user = self
            .username
            .as_ref()
            .map_or(ANY_USER, |name| name.as_str());
        let pair = Zeroizing::new(format!("{user}:{}", *self.secret));
        Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes())))
    }
}

/// Where credentials come from.
pub enum Source {
    /// Nowhere.
    None,
    /// The person's machine: variables that the client handed over, else git's own
    /// credential helpers.
    Machine {
        /// Where the variables are.
        keys: Arc<KeyStore>,
        /// When the harness was started.
        since: Instant,
    },
    /// A mounted Secret, read again for each use: it may be rotated.
    Secret {
        /// The folder with one folder for each Secret.
        folder: PathBuf,
    },
}

impl Source {
    /// The credential for a host, where it is at hand; nothing is asked for it.
    pub fn ready(&self, address: &Address, secret: Option<&str>) -> Option<Credential> {
        match self {
            Source::None => None,
            Source::Machine { keys, .. } => {
                let [token, host, username] = VARIABLES.map(|name| keys.get(name));
                let host = host.filter(|host| host.eq_ignore_ascii_case(&address.authority()));
                let token = token.filter(|_| host.is_some())?;
                Some(Credential::token(
                    username.as_ref().map(|name| name.as_str()),
                    &token,
                ))
            }
            Source::Secret { folder } => {
                let folder = folder.join(secret?);
                let read = |key: &str| {
                    let path = folder.join(key);
                    let fits = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= MOST);
                    let text = fits
                        .then(|| std::fs::read_to_string(&path).ok())
                        .flatten()?;
                    let text = Zeroizing::new(text);
                    let trimmed = text.trim();
                    (!trimmed.is_empty()).then(|| Zeroizing::new(trimmed.to_owned()))
                };
                let username = read("username");
                let username = username.as_ref().map(|name| name.as_str());
                match (username, read("password"), read("token")) {
                    (Some(name), Some(password), _) => Some(Credential::password(name, &password)),
                    (name, _, Some(token)) => Some(Credential::token(name, &token)),
                    _ => None,
                }
            }
        }
    }

    /// The credential for a host that asked for one, where none was at hand.
    pub async fn find(&self, address: &Address) -> Option<Credential> {
        match self {
            Source::Machine { since, .. } => {
                let filled = tokio::time::timeout(HELPER_PATIENCE, fill(address)).await;
                if let Ok(Some(credential)) = filled {
                    return Some(credential);
                }
                while since.elapsed() < HANDOVER {
                    if let Some(credential) = self.ready(address, None) {
                        return Some(credential);
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                self.ready(address, None)
            }
            Source::None | Source::Secret { .. } => None,
        }
    }

    /// What a person does where there is none.
    pub fn advice(&self) -> &'static str {
        match self {
            Source::None => "this harness has no credentials",
            Source::Machine { .. } => {
                "sign in once with git on this machine (`git credential`), or set \
                 MOORING_GIT_TOKEN and MOORING_GIT_HOST where `mooring dev` is started"
            }
            Source::Secret { .. } => {
                "name a Secret with username and password, or token, in \
                 spec.repo.credentialsSecretRef"
            }
        }
    }
}

/// Asks git's own credential helpers, which may not ask the person.
async fn fill(address: &Address) -> Option<Credential> {
    let mut child = tokio::process::Command::new("git")
        .args(["credential", "fill"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "")
        .env("SSH_ASKPASS", "")
        .env("GCM_INTERACTIVE", "never")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let scheme = if address.tls { "https" } else { "http" };
    let asked = format!(
        "protocol={scheme}\nhost={}\npath={}\n\n",
        address.authority(),
        address.path.trim_start_matches('/')
    );
    let mut input = child.stdin.take()?;
    input.write_all(asked.as_bytes()).await.ok()?;
    drop(input);
    let mut told = Zeroizing::new(String::new());
    let output = child.stdout.take()?;
    output.take(MOST).read_to_string(&mut told).await.ok()?;
    if !child.wait().await.ok()?.success() {
        return None;
    }
    let value = |name: &str| {
        told.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    Some(Credential::password(value("username")?, value("password")?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_goes_as_the_host_takes_it() {
        let token = Credential::token(None, "t0k");
        let named = Credential::token(Some("ada"), "t0k");
        let password = Credential::password("ada", "pw");
        for (credential, challenge, expected) in [
            (&token, None, "Bearer t0k"),
            (&token, Some("Bearer realm=\"x\""), "Bearer t0k"),
            (&token, Some("Basic realm=\"x\", Bearer"), "Bearer t0k"),
            (
                &token,
                Some("Basic realm=\"x\""),
                "Basic eC1hY2Nlc3MtdG9rZW46dDBr",
            ),
            (&named, None, "Basic YWRhOnQwaw=="),
            (&password, Some("Bearer"), "Basic YWRhOnB3"),
        ] {
            assert_eq!(credential.field(challenge).as_str(), expected);
        }
    }

    #[test]
    fn a_token_of_the_environment_goes_to_the_named_host_only() {
        let keys = Arc::new(KeyStore::new());
        keys.set("MOORING_GIT_TOKEN", "t0k");
        let source = Source::Machine {
            keys: keys.clone(),
            since: Instant::now(),
        };
        let here = Address::parse("https://git.example.com/a/b").unwrap();
        let there = Address::parse("https://evil.example.com/a/b").unwrap();
        assert!(source.ready(&here, None).is_none(), "no host is named");
        keys.set("MOORING_GIT_HOST", "Git.example.com");
        assert!(source.ready(&here, None).is_some());
        assert!(source.ready(&there, None).is_none());
    }

    #[test]
    fn a_secret_is_read_anew_and_has_a_password_or_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::Secret {
            folder: folder.path().into(),
        };
        let address = Address::parse("https://git.example.com/a/b").unwrap();
        let field = || {
            let found = source.ready(&address, Some("git"))?;
            Some(found.field(None).as_str().to_owned())
        };
        assert_eq!(field(), None);
        std::fs::create_dir(folder.path().join("git")).unwrap();
        std::fs::write(folder.path().join("git/token"), "t0k\n").unwrap();
        assert_eq!(field().as_deref(), Some("Bearer t0k"));
        std::fs::write(folder.path().join("git/username"), "ada").unwrap();
        std::fs::write(folder.path().join("git/password"), "pw").unwrap();
        assert_eq!(field().as_deref(), Some("Basic YWRhOnB3"));
        assert!(source.ready(&address, None).is_none(), "no Secret is named");
    }
}
