//! What a push says: its ref updates, read before a byte goes upstream, and its pack,
//! spooled to disk.

use std::path::Path;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::pkt::{self, Pkt};

/// Bytes of a push's pack.
pub const MOST_PACK: u64 = 1 << 30;
/// Bytes of everything before the pack.
const MOST_HEAD: usize = 4 << 20;
/// Ref updates of a push.
const MOST_UPDATES: usize = 2_000;
/// The object id that stands for none.
pub const NONE: &str = "0000000000000000000000000000000000000000";
/// Capabilities that a client may use with the gateway; of them those marked so are
/// offered whatever the host has, because the gateway itself does them.
const CAPABILITIES: [(&str, bool); 7] = [
    ("report-status", true),
    ("side-band-64k", true),
    ("quiet", true),
    ("delete-refs", false),
    ("ofs-delta", false),
    ("atomic", false),
    ("push-options", false),
];

/// Why a push is not taken, for git to show.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It broke off, or the disk is full.
    #[error("the push broke off: {0}")]
    Io(#[from] std::io::Error),
    /// It is no push.
    #[error("this is no push that is understood: {0}")]
    Malformed(&'static str),
    /// It is signed.
    #[error("signed pushes are not taken: push without --signed")]
    Signed,
    /// Its pack is too large.
    #[error(
        "the pack has more than {most} bytes, which is the most of one push: push fewer commits at a time, or leave large files out"
    )]
    TooLarge {
        /// The limit.
        most: u64,
    },
    /// It has too many updates.
    #[error("the push has more than {MOST_UPDATES} ref updates: push fewer refs at a time")]
    TooMany,
}

/// One ref update.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Update {
    /// The whole name.
    pub name: String,
    /// What the pusher says that it is now; [`NONE`] where it makes the ref.
    pub old: String,
    /// What it becomes; [`NONE`] where it removes the ref.
    pub new: String,
}

impl Update {
    /// Whether it removes the ref.
    pub fn deletes(&self) -> bool {
        self.new == NONE
    }

    /// Whether it makes the ref.
    pub fn creates(&self) -> bool {
        self.old == NONE
    }

    /// Whether it is about a tag.
    pub fn is_tag(&self) -> bool {
        self.name.starts_with("refs/tags/")
    }
}

/// A push as it was sent.
pub struct Push {
    /// Its updates, as they were sent.
    pub updates: Vec<Update>,
    /// Commits at which the pusher's history is cut off.
    pub shallow: Vec<String>,
    /// Words after the first update.
    pub capabilities: Vec<String>,
    /// Texts for the host's hooks.
    pub options: Vec<String>,
    /// The pack.
    pub pack: Option<Pack>,
}

/// A spooled pack. Its file has no name any more, and is gone with the last handle.
pub struct Pack {
    file: std::fs::File,
    /// Its bytes.
    pub bytes: u64,
}

impl Pack {
    /// Its bytes from the first on. Each reader has a place of its own in it: one that
    /// was given up may still read.
    pub fn open(&self) -> std::io::Result<std::fs::File> {
        use std::os::fd::AsRawFd;
        std::fs::File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

impl Push {
    /// Whether the client has asked for it.
    pub fn wants(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|it| it == capability)
    }

    /// Names exactly what the push would do.
    pub fn content(&self, repository: &str) -> serde_json::Value {
        let mut updates = self.updates.clone();
        updates.sort();
        let updates: Vec<_> = updates
            .iter()
            .map(|it| serde_json::json!([it.name, it.old, it.new]))
            .collect();
        serde_json::json!({
            "repository": repository,
            "updates": updates,
            "options": self.options,
        })
    }
}

/// Reads a push; `None` where it is only git's probe of the connection.
pub async fn read(
    from: &mut (impl AsyncRead + Unpin),
    folder: &Path,
    most: u64,
) -> Result<Option<Push>, Refused> {
    let mut push = Push {
        updates: Vec::new(),
        shallow: Vec::new(),
        capabilities: Vec::new(),
        options: Vec::new(),
        pack: None,
    };
    let mut head = 0;
    let mut probe = true;
    loop {
        let data = match pkt::read(from).await? {
            Some(Pkt::Data(data)) => data,
            Some(Pkt::Flush) if probe => return Ok(None),
            Some(Pkt::Flush) => break,
            Some(Pkt::Special) | None => return Err(Refused::Malformed("its head has no end")),
        };
        probe = false;
        head += data.len();
        if head > MOST_HEAD {
            return Err(Refused::TooMany);
        }
        push.line(&data)?;
        if push.updates.len() > MOST_UPDATES {
            return Err(Refused::TooMany);
        }
    }
    if push.updates.is_empty() {
        return Err(Refused::Malformed("it has no ref update"));
    }
    if push.wants("push-options") {
        loop {
            match pkt::read(from).await? {
                Some(Pkt::Data(data)) => {
                    head += data.len();
                    if head > MOST_HEAD {
                        return Err(Refused::TooMany);
                    }
                    let text = String::from_utf8(data)
                        .map_err(|_| Refused::Malformed("an option is no text"))?;
                    push.options.push(text.trim_end_matches('\n').to_owned());
                }
                Some(Pkt::Flush) => break,
                Some(Pkt::Special) | None => {
                    return Err(Refused::Malformed("its options have no end"));
                }
            }
        }
    }
    push.pack = spool(from, folder, most).await?;
    let needs = push.updates.iter().any(|update| !update.deletes());
    match (needs, &push.pack) {
        (true, None) => Err(Refused::Malformed("it has no pack")),
        _ => Ok(Some(push)),
    }
}

impl Push {
    fn line(&mut self, data: &[u8]) -> Result<(), Refused> {
        if data.starts_with(b"push-cert") {
            return Err(Refused::Signed);
        }
        let (command, words) = match data.iter().position(|byte| *byte == 0) {
            Some(at) => (&data[..at], Some(&data[at + 1..])),
            None => (data, None),
        };
        let text =
            |bytes| std::str::from_utf8(bytes).map_err(|_| Refused::Malformed("a line is no text"));
        let command = text(command)?.trim_end_matches('\n');
        if let Some(id) = command.strip_prefix("shallow ") {
            if !is_id(id) {
                return Err(Refused::Malformed("a shallow line has no object id"));
            }
            self.shallow.push(id.to_owned());
            return Ok(());
        }
        if let Some(words) = words {
            if !self.updates.is_empty() {
                return Err(Refused::Malformed(
                    "capabilities stand after the first update",
                ));
            }
            let words = text(words)?.trim_end_matches('\n').split(' ');
            self.capabilities = words
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect();
        }
        let mut parts = command.splitn(3, ' ');
        let (Some(old), Some(new), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Refused::Malformed("a line is no ref update"));
        };
        if !is_id(old) || !is_id(new) {
            return Err(Refused::Malformed("an update has no SHA-1 object ids"));
        }
        if !is_name(name) {
            return Err(Refused::Malformed("an update has no whole name of a ref"));
        }
        if old == new || self.updates.iter().any(|it| it.name == name) {
            return Err(Refused::Malformed(
                "an update changes nothing, or stands twice",
            ));
        }
        self.updates.push(Update {
            name: name.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
        });
        Ok(())
    }
}

fn is_id(text: &str) -> bool {
    text.len() == NONE.len()
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A name under `refs/` as git makes them; what cannot be seen is in none.
fn is_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    name.starts_with("refs/")
        && name.len() <= 1_024
        && !name.contains(odd)
        && !name.contains("..")
        && !name.contains("//")
        && !name.ends_with('/')
        && mooring_policy::escape_for_display(name) == name
}

pub(super) async fn spool(
    from: &mut (impl AsyncRead + Unpin),
    folder: &Path,
    most: u64,
) -> Result<Option<Pack>, Refused> {
    let mut buffer = vec![0; 64 << 10];
    let mut count = from.read(&mut buffer).await?;
    if count == 0 {
        return Ok(None);
    }
    let file = unnamed(folder)?;
    let mut to = tokio::fs::File::from_std(file.try_clone()?);
    let mut bytes = 0;
    while count > 0 {
        bytes += count as u64;
        if bytes > most {
            return Err(Refused::TooLarge { most });
        }
        to.write_all(&buffer[..count]).await?;
        count = from.read(&mut buffer).await?;
    }
    to.flush().await?;
    Ok(Some(Pack { file, bytes }))
}

/// A file of the folder without a name: whatever ends this process removes it too.
fn unnamed(folder: &Path) -> std::io::Result<std::fs::File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("push-{}-{number}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// What a host offers to pushers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advert {
    /// Refs with their object ids, as they came; `.have` lines too.
    pub refs: Vec<(String, String)>,
    /// Its capabilities.
    pub capabilities: Vec<String>,
}

impl Advert {
    /// Reads it from an answer of the host. The error is for people.
    pub async fn read(from: &mut (impl AsyncRead + Unpin), most: usize) -> Result<Advert, String> {
        let mut advert = Advert::default();
        let (mut bytes, mut first, mut service) = (0, true, true);
        loop {
            let packet = pkt::read(from).await.map_err(|error| error.to_string())?;
            let data = match packet {
                Some(Pkt::Data(data)) => data,
                Some(Pkt::Flush) if service => {
                    service = false;
                    continue;
                }
                Some(Pkt::Flush) => return Ok(advert),
                Some(Pkt::Special) | None => return Err("its list of refs has no end".into()),
            };
            bytes += data.len();
            if bytes > most {
                return Err(format!("its list of refs has more than {most} bytes"));
            }
            let text = String::from_utf8_lossy(&data);
            let text = text.trim_end_matches('\n');
            if service && text.starts_with("# service=") {
                continue;
            }
            service = false;
            if let Some(error) = text.strip_prefix("ERR ") {
                return Err(format!("it says {error:?}"));
            }
            if text.starts_with("shallow ") {
                continue;
            }
            let (line, words) = text.split_once('\0').unwrap_or((text, ""));
            if std::mem::take(&mut first) {
                advert.capabilities = words.split_whitespace().map(str::to_owned).collect();
            }
            let Some((id, name)) = line.split_once(' ') else {
                return Err("a line of its list has no ref".into());
            };
            if !is_id(id) {
                return Err("its objects are not named by SHA-1, which is not supported".into());
            }
            if name != "capabilities^{}" {
                advert.refs.push((id.to_owned(), name.to_owned()));
            }
        }
    }

    /// Whether the host has a capability.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|it| it == capability)
    }

    /// What a ref is at the host.
    pub fn of(&self, name: &str) -> &str {
        let found = self.refs.iter().find(|(_, known)| known == name);
        found.map_or(NONE, |(id, _)| id)
    }

    /// As the gateway offers it: without thin packs, without push certificates, and
    /// with what it does itself.
    pub fn offered(&self) -> Vec<u8> {
        let mut words: Vec<&str> = CAPABILITIES
            .iter()
            .filter(|(name, own)| *own || self.has(name))
            .map(|(name, _)| *name)
            .collect();
        words.extend(["no-thin", "object-format=sha1", "agent=git/mooring"]);
        let words = words.join(" ");
        let mut out = Vec::new();
        out.extend_from_slice(&pkt::line(b"# service=git-receive-pack\n"));
        out.extend_from_slice(pkt::FLUSH);
        let nothing = [(NONE.to_owned(), "capabilities^{}".to_owned())];
        let refs = if self.refs.is_empty() {
            &nothing[..]
        } else {
            &self.refs
        };
        for (at, (id, name)) in refs.iter().enumerate() {
            let line = match at {
                0 => format!("{id} {name}\0{words}\n"),
                _ => format!("{id} {name}\n"),
            };
            out.extend_from_slice(&pkt::line(line.as_bytes()));
        }
        out.extend_from_slice(pkt::FLUSH);
        out
    }

    /// The head of the push, as the host is sent it.
    pub fn head(&self, push: &Push) -> Vec<u8> {
        let mut words = vec!["report-status"];
        for (name, when) in [
            ("side-band-64k", true),
            ("quiet", push.wants("quiet")),
            ("atomic", push.wants("atomic")),
            ("push-options", push.wants("push-options")),
        ] {
            if when && self.has(name) {
                words.push(name);
            }
        }
        words.push("agent=git/mooring");
        let words = words.join(" ");
        let mut out = Vec::new();
        for id in &push.shallow {
            out.extend_from_slice(&pkt::line(format!("shallow {id}").as_bytes()));
        }
        for (at, update) in push.updates.iter().enumerate() {
            let line = format!("{} {} {}", update.old, update.new, update.name);
            let line = match at {
                0 => format!("{line}\0{words}"),
                _ => line,
            };
            out.extend_from_slice(&pkt::line(line.as_bytes()));
        }
        out.extend_from_slice(pkt::FLUSH);
        if words.contains("push-options") {
            for option in &push.options {
                out.extend_from_slice(&pkt::line(option.as_bytes()));
            }
            out.extend_from_slice(pkt::FLUSH);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sent(lines: &[&str], pack: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            out.extend_from_slice(&pkt::line(line.as_bytes()));
        }
        out.extend_from_slice(pkt::FLUSH);
        out.extend_from_slice(pack);
        out
    }

    #[tokio::test]
    async fn updates_are_read_before_anything_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let main = format!("{a} {b} refs/heads/main\0report-status side-band-64k");
        let gone = format!("{a} {NONE} refs/heads/gone");
        let bytes = sent(&[&main, &gone], b"PACK...");
        let push = read(&mut bytes.as_slice(), folder.path(), 100)
            .await
            .unwrap();
        let push = push.unwrap();
        assert_eq!(push.updates.len(), 2);
        assert!(push.wants("side-band-64k") && push.updates[1].deletes());
        assert_eq!(push.pack.as_ref().unwrap().bytes, 7);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // The order of updates makes no other content.
        let bytes = sent(
            &[&format!("{gone}\0x"), main.split('\0').next().unwrap()],
            b"PACK",
        );
        let other = read(&mut bytes.as_slice(), folder.path(), 100)
            .await
            .unwrap();
        assert_eq!(push.content("r"), other.unwrap().content("r"));
        assert!(
            read(&mut &b"0000"[..], folder.path(), 9)
                .await
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test]
    async fn what_is_no_push_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let update = |name: &str| format!("{a} {b} {name}");
        let long = "a".repeat(64);
        for (lines, pack, expected) in [
            (vec![update("refs/heads/x")], &b""[..], "has no pack"),
            (
                vec![update("refs/heads/x")],
                b"0123456789",
                "more than 9 bytes",
            ),
            (vec![update("HEAD")], b"P", "whole name"),
            (vec![update("refs/heads/a\u{202e}b")], b"P", "whole name"),
            (vec![update("refs/heads/a b")], b"P", "whole name"),
            (
                vec![update("refs/heads/x"), update("refs/heads/x")],
                b"P",
                "twice",
            ),
            (
                vec![format!("{a} {a} refs/heads/x")],
                b"P",
                "changes nothing",
            ),
            (vec![format!("{long} {long} refs/heads/x")], b"P", "SHA-1"),
            (vec!["push-cert\0atomic".into()], b"P", "--signed"),
            (vec!["hello".into()], b"P", "no ref update"),
        ] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let bytes = sent(&lines, pack);
            let told = match read(&mut bytes.as_slice(), folder.path(), 9).await {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            assert!(told.contains(expected), "{lines:?}: {told:?}");
        }
        let cut = sent(&[&update("refs/heads/x")], b"");
        assert!(read(&mut &cut[..20], folder.path(), 9).await.is_err());
    }

    #[tokio::test]
    async fn neither_thin_packs_nor_certificates_are_offered() {
        let a = "a".repeat(40);
        let mut host = Vec::new();
        host.extend_from_slice(&pkt::line(b"# service=git-receive-pack\n"));
        host.extend_from_slice(pkt::FLUSH);
        let words = "report-status-v2 delete-refs push-cert=nonce atomic object-format=sha1";
        host.extend_from_slice(&pkt::line(
            format!("{a} refs/heads/main\0{words}\n").as_bytes(),
        ));
        host.extend_from_slice(&pkt::line(format!("{a} .have\n").as_bytes()));
        host.extend_from_slice(pkt::FLUSH);
        let advert = Advert::read(&mut host.as_slice(), 1 << 20).await.unwrap();
        assert_eq!(
            (advert.of("refs/heads/main"), advert.of("x")),
            (a.as_str(), NONE)
        );
        let offered = String::from_utf8(advert.offered()).unwrap();
        for (word, there) in [
            ("no-thin", true),
            ("side-band-64k", true),
            ("delete-refs", true),
            ("atomic", true),
            ("push-cert", false),
            ("push-options", false),
            ("report-status-v2", false),
        ] {
            assert_eq!(offered.contains(word), there, "{word}");
        }
        assert!(Advert::read(&mut host.as_slice(), 20).await.is_err());
    }
}
