//! Addresses of repositories, and what a command's path names of them.

use std::fmt;

/// The address of a repository: where it is connected to, and what is asked for there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Whether it is `https`; else `http`.
    pub tls: bool,
    /// The host, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path, with a slash in front and none at its end.
    pub path: String,
}

impl Address {
    /// Whether both are at one host, asked in one way.
    pub fn is_at(&self, other: &Address) -> bool {
        (self.tls, &self.host, self.port) == (other.tls, &other.host, other.port)
    }

    /// Reads `https://host[:port]/path`; `None` where it is none, or has a user name,
    /// a query or a fragment.
    pub fn parse(url: &str) -> Option<Address> {
        let (tls, rest) = match url.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("http://")?),
        };
        let (authority, path) = rest.split_once('/')?;
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, if tls { 443 } else { 80 }),
        };
        let path = path.trim_matches('/');
        let odd = |c: char| c.is_whitespace() || c.is_control() || "?#@\\".contains(c);
        let wrong = host.is_empty() || path.is_empty() || url.contains(odd);
        (!wrong && path.split('/').all(|part| part != ".." && part != ".")).then(|| Address {
            tls,
            host: host.to_ascii_lowercase(),
            port,
            path: format!("/{path}"),
        })
    }

    /// `host`, with a port that is not the usual one.
    pub fn authority(&self) -> String {
        match self.port == if self.tls { 443 } else { 80 } {
            true => self.host.clone(),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// How commands may spell it: git takes the longest one that matches, so each
    /// stands with and without `.git`, and by ssh too.
    pub fn spellings(&self) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let bare = self.path.trim_end_matches(".git").trim_start_matches('/');
        let authority = self.authority();
        let mut all = Vec::new();
        for path in [format!("{bare}.git"), bare.to_owned()] {
            all.push(format!("{scheme}://{authority}/{path}"));
            if self.tls {
                all.push(format!("git@{}:{path}", self.host));
                all.push(format!("ssh://git@{}/{path}", self.host));
            }
        }
        all
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// What a request asks of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// What there is to be fetched, or to be pushed to.
    Refs(Service),
    /// The service itself.
    Serve(Service),
}

/// One of git's two services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Fetching.
    UploadPack,
    /// Pushing.
    ReceivePack,
}

impl Service {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Service::UploadPack => "git-upload-pack",
            Service::ReceivePack => "git-receive-pack",
        }
    }
}

/// Reads `/git/N/…`: the number of the repository, and what is asked of it. What
/// follows the number has to be exact: a longer address of another repository begins
/// with the same text.
pub fn route(path: &str, query: Option<&str>) -> Option<(usize, Asks)> {
    let rest = path.strip_prefix("/git/")?;
    let (number, rest) = rest.split_once('/')?;
    let number = number.parse().ok()?;
    // An address in git's configuration may end in a slash, or in `.git`.
    let rest = rest.strip_prefix(".git").unwrap_or(rest);
    let asks = match (rest.trim_start_matches('/'), query) {
        ("info/refs", Some("service=git-upload-pack")) => Asks::Refs(Service::UploadPack),
        ("info/refs", Some("service=git-receive-pack")) => Asks::Refs(Service::ReceivePack),
        ("git-upload-pack", None) => Asks::Serve(Service::UploadPack),
        ("git-receive-pack", None) => Asks::Serve(Service::ReceivePack),
        _ => return None,
    };
    Some((number, asks))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_read_and_spelled() {
        let address = Address::parse("https://Git.example.com/acme/platform.git/").unwrap();
        assert_eq!(
            address.to_string(),
            "https://git.example.com/acme/platform.git"
        );
        assert_eq!(
            address.spellings(),
            [
                "https://git.example.com/acme/platform.git",
                "git@git.example.com:acme/platform.git",
                "ssh://git@git.example.com/acme/platform.git",
                "https://git.example.com/acme/platform",
                "git@git.example.com:acme/platform",
                "ssh://git@git.example.com/acme/platform",
            ]
        );
        let plain = Address::parse("http://127.0.0.1:8080/x").unwrap();
        assert_eq!(plain.spellings()[0], "http://127.0.0.1:8080/x.git");
        for wrong in [
            "ssh://git@host/x",
            "https://host",
            "https://host/",
            "https://user@host/x",
            "https://host/x?y",
            "https://host/../x",
            "https://host:port/x",
            "/srv/x",
        ] {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_what_git_asks_of_a_repository_is_a_route() {
        let refs = Some("service=git-upload-pack");
        for (path, query, expected) in [
            (
                "/git/0/info/refs",
                refs,
                Some((0, Asks::Refs(Service::UploadPack))),
            ),
            (
                "/git/0//info/refs",
                refs,
                Some((0, Asks::Refs(Service::UploadPack))),
            ),
            (
                "/git/0/.git/info/refs",
                refs,
                Some((0, Asks::Refs(Service::UploadPack))),
            ),
            (
                "/git/12/git-receive-pack",
                None,
                Some((12, Asks::Serve(Service::ReceivePack))),
            ),
            ("/git/0/-other/info/refs", refs, None),
            ("/git/0/../1/info/refs", refs, None),
            ("/git/0/info/refs", None, None),
            ("/git/0/HEAD", None, None),
            ("/git/x/info/refs", refs, None),
            ("/other", None, None),
        ] {
            assert_eq!(route(path, query), expected, "{path}");
        }
    }
}
