//! Objects that go to the host with the push that names them.

use super::{
    Held, Pointer,
    action::{Direction, Way},
    batch::Found,
};
use crate::git::{Gateway, Repository};

/// Objects that are asked about at once.
const AT_ONCE: usize = 100;
/// Objects that are named to people.
const NAMED: usize = 20;

impl Gateway {
    /// Whether a push to this repository has to be looked through for large files.
    pub(in crate::git) fn has_large(&self, repository: &Repository) -> bool {
        self.large.waiting.is_marked(&repository.address)
    }

    /// Keeps what waits of these objects as long as what is returned is there.
    pub(in crate::git) fn hold_large(&self, repository: &Repository, named: &[Pointer]) -> Held {
        self.large.waiting.hold(&repository.address, named)
    }

    /// Sends the objects that a push names and the host lacks. The error is for people;
    /// nothing of the push may go then.
    pub(in crate::git) async fn send_large(
        &self,
        repository: &Repository,
        reference: &str,
        named: &[Pointer],
    ) -> Result<(), String> {
        let waiting = &self.large.waiting;
        let mut missing = Vec::new();
        for objects in named.chunks(AT_ONCE) {
            let found = self
                .find(repository, Direction::Up, Some(reference), objects)
                .await;
            let found = match found {
                Ok(found) => found,
                // A host without large files takes pointers as it takes other files.
                Err(failure) => {
                    let waits = |it: &Pointer| waiting.find(&repository.address, it).is_some();
                    match objects.iter().any(waits) {
                        true => return Err(failure.to_string()),
                        false => continue,
                    }
                }
            };
            for (object, found) in objects.iter().zip(found) {
                match found {
                    Found::There => waiting.remove(&repository.address, object),
                    Found::Way(Way::Up(upload, verify)) => {
                        let Some(path) = waiting.find(&repository.address, object) else {
                            missing.push(object.oid.as_str());
                            continue;
                        };
                        let file = tokio::fs::File::open(path).await;
                        let file = file.map_err(|error| format!("{}: {error}", object.oid))?;
                        let ways = (&upload, verify.as_ref());
                        let sent = self.send_file(repository, object, file, ways).await;
                        sent.map_err(|failure| format!("large file {}: {failure}", object.oid))?;
                        waiting.remove(&repository.address, object);
                    }
                    Found::Way(_) => {}
                    Found::Wrong(code, why) => {
                        return Err(format!("large file {}: {why} ({code})", object.oid));
                    }
                }
            }
        }
        match missing.as_slice() {
            [] => Ok(()),
            [first, more @ ..] => Err(format!(
                "the host lacks {} large files that it names ({first}{}): send them with `git lfs \
                 push origin BRANCH`, then push again",
                missing.len(),
                if more.is_empty() { "" } else { ", …" }
            )),
        }
    }
}

/// What a card says of the objects that go with a push.
pub fn detail(named: &[Pointer]) -> String {
    let Some(bytes) = named.iter().map(|it| it.size).reduce(u64::saturating_add) else {
        return String::new();
    };
    let mut out = format!("large files (git-lfs): {}, {bytes} bytes\n", named.len());
    for object in named.iter().take(NAMED) {
        out.push_str(&format!("  {} {} bytes\n", &object.oid[..10], object.size));
    }
    if named.len() > NAMED {
        out.push_str(&format!("  [{} more large files]\n", named.len() - NAMED));
    }
    out
}
