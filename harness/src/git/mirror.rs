//! The mirror: what the harness itself has fetched of a repository's history, without
//! file contents, to know what a push does. And the objects of one push beside it.

use std::{
    collections::{HashSet, VecDeque},
    io::BufReader,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use axum::body::Body;
use bytes::Bytes;
use futures::TryStreamExt;
use gix::objs::{Find, FindHeader};
use tokio::{io::AsyncReadExt, sync::Mutex};
use tokio_util::io::StreamReader;

use super::{
    address::Service,
    pkt::{self, Pkt},
    receive,
    upstream::{Ask, Upstream},
};

/// Bytes of one object that are taken into memory.
const MOST_OBJECT: usize = 128 << 20;
/// Bytes of a commit or a tree that are read.
const MOST_READ: u64 = 16 << 20;
/// Objects that one fetch asks for.
const MOST_WANTS: usize = 200;
/// Tips that are remembered, for the next fetch to begin from.
const MOST_TIPS: usize = 256;

/// Where objects are looked for.
#[derive(Clone)]
pub struct Objects {
    places: Vec<PathBuf>,
    /// How many of the places belong to the push; they come first.
    pushed: usize,
    /// The push's own place goes with it.
    _folder: Option<Arc<Folder>>,
}

/// Opened, on one thread.
pub struct Opened {
    places: Vec<gix::odb::Handle>,
    pushed: usize,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `commit`, `tree`, `tag` or `blob`.
    pub kind: gix::objs::Kind,
    /// As it is stored.
    pub data: Vec<u8>,
}

impl Objects {
    /// Opens them. The error is for people.
    pub fn opened(&self) -> Result<Opened, String> {
        let open = |place: &PathBuf| gix::odb::at(place, gix::hash::Kind::Sha1).map_err(told);
        Ok(Opened {
            places: self.places.iter().map(open).collect::<Result<_, _>>()?,
            pushed: self.pushed,
        })
    }
}

impl Opened {
    /// An object; `None` where it is not known, or too large.
    pub fn get(&self, id: &str) -> Option<Object> {
        let id = gix::ObjectId::from_hex(id.as_bytes()).ok()?;
        let mut data = Vec::new();
        for place in &self.places {
            match place.try_header(&id) {
                Ok(Some(header)) if header.size <= MOST_READ => {}
                _ => continue,
            }
            if let Ok(Some(found)) = place.try_find(&id, &mut data) {
                let kind = found.kind;
                let data = found.data.to_vec();
                return Some(Object { kind, data });
            }
        }
        None
    }

    /// The objects that the push brings of the kind and size that `wanted` says; an error
    /// where it brings more than `most` in all. The error is for people.
    pub fn pushed(
        &self,
        most: usize,
        wanted: impl Fn(gix::objs::Kind, u64) -> bool,
    ) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for place in &self.places[..self.pushed] {
            for (count, id) in place.iter().map_err(told)?.enumerate() {
                if count >= most {
                    return Err(format!("it brings more than {most} objects"));
                }
                let id = id.map_err(told)?;
                if let Ok(Some(header)) = place.try_header(&id)
                    && wanted(header.kind, header.size)
                {
                    found.push(id.to_string());
                }
            }
        }
        Ok(found)
    }

    /// Whether the push brings it.
    pub fn is_pushed(&self, id: &str) -> bool {
        let Ok(id) = gix::ObjectId::from_hex(id.as_bytes()) else {
            return false;
        };
        let has = |place: &gix::odb::Handle| matches!(place.try_header(&id), Ok(Some(_)));
        self.places[..self.pushed].iter().any(has)
    }
}

/// Where pushes and mirrors lie on the harness's volume.
pub struct Mirrors {
    folder: PathBuf,
    /// One fetch at a time.
    fetching: Mutex<()>,
}

impl Mirrors {
    /// Mirrors below `folder`. What an earlier process left of pushes is removed.
    pub fn new(folder: PathBuf) -> Mirrors {
        let _ = std::fs::remove_dir_all(folder.join("pushes"));
        Mirrors {
            folder,
            fetching: Mutex::new(()),
        }
    }

    /// The folder in which pushes are spooled.
    pub fn spool(&self) -> PathBuf {
        self.folder.join("pushes")
    }

    fn mirror(&self, repository: &str) -> PathBuf {
        let name = mooring_durable::id::Hash::of(repository.as_bytes()).0;
        self.folder.join("mirrors").join(&name[..32])
    }

    /// The objects of a push, and what the mirror has beside them. The error is for
    /// people.
    pub async fn open(
        &self,
        repository: &str,
        pack: Option<std::fs::File>,
    ) -> Result<Objects, String> {
        let mirror = self.mirror(repository);
        let own = self.spool();
        blocking(move || {
            let mut places = Vec::new();
            let mut folder = None;
            if let Some(pack) = pack {
                let place = Folder(unique(&own)?);
                index(&pack, &place.0)?;
                places.push(place.0.clone());
                folder = Some(Arc::new(place));
            }
            let pushed = places.len();
            if mirror.join("pack").is_dir() {
                places.push(mirror);
            }
            Ok(Objects {
                places,
                pushed,
                _folder: folder,
            })
        })
        .await
    }

    /// Fetches commits and their trees into the mirror. The error is for people.
    pub async fn fetch(
        &self,
        upstream: &Upstream,
        ask: &Ask,
        repository: &str,
        mut wants: Vec<String>,
    ) -> Result<(), String> {
        wants.truncate(MOST_WANTS);
        if wants.is_empty() {
            return Ok(());
        }
        let _one = self.fetching.lock().await;
        let mirror = self.mirror(repository);
        let tips = mirror.join("tips");
        let known = std::fs::read_to_string(&tips).unwrap_or_default();
        let mut known: VecDeque<String> = known.lines().map(str::to_owned).collect();
        let filter = can_filter(upstream, ask).await?;
        let request = request(&wants, known.iter(), filter);
        let length = request.len() as u64;
        let answer = upstream.serve(ask, Body::from(request), Some(length)).await;
        let answer = answer.map_err(|failure| failure.to_string())?;
        let pack = take(answer.body, &self.spool()).await?;
        let place = mirror.clone();
        blocking(move || index(&pack.open().map_err(told)?, &place)).await?;
        known.extend(wants);
        while known.len() > MOST_TIPS {
            known.pop_front();
        }
        let text: String = known.iter().map(|id| format!("{id}\n")).collect();
        // Without it the next fetch only asks for more than it needs.
        let _ = std::fs::write(tips, text);
        Ok(())
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs what reads objects, beside the others.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err("the objects could not be read".into()),
    }
}

fn unique(folder: &Path) -> Result<PathBuf, String> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("objects-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).map_err(told)?;
    Ok(path)
}

/// Writes a pack with its index into an objects folder.
fn index(pack: &std::fs::File, objects: &Path) -> Result<(), String> {
    let folder = objects.join("pack");
    std::fs::create_dir_all(&folder).map_err(told)?;
    let options = gix_pack::bundle::write::Options {
        thread_limit: Some(1),
        alloc_limit_bytes: Some(MOST_OBJECT),
        ..Default::default()
    };
    let written = gix_pack::Bundle::write_to_directory(
        &mut BufReader::with_capacity(64 << 10, pack),
        Some(&folder),
        &mut gix::utils::progress::Discard,
        &AtomicBool::new(false),
        None::<gix::objs::find::Never>,
        gix::hash::Kind::Sha1,
        options,
    )
    .map_err(told)?;
    if let Some(keep) = written.keep_path {
        let _ = std::fs::remove_file(keep);
    }
    Ok(())
}

/// Whether the host leaves file contents out of a fetch. The error: it has no
/// protocol v2, by which alone a single commit can be asked for.
async fn can_filter(upstream: &Upstream, ask: &Ask) -> Result<bool, String> {
    let answer = upstream
        .refs(ask)
        .await
        .map_err(|failure| failure.to_string())?;
    let mut from = reader(answer.body);
    let mut version = false;
    for _ in 0..100 {
        let Some(packet) = pkt::read(&mut from).await.map_err(told)? else {
            break;
        };
        let Pkt::Data(line) = packet else { continue };
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        version |= line == "version 2";
        if let Some(features) = line.strip_prefix("fetch=").filter(|_| version) {
            return Ok(features.split(' ').any(|it| it == "filter"));
        }
        if version && line == "fetch" {
            return Ok(false);
        }
    }
    Err("the git host does not speak protocol version 2".into())
}

fn request<'a>(wants: &[String], haves: impl Iterator<Item = &'a String>, filter: bool) -> Bytes {
    let mut out = Vec::new();
    let mut put = |text: &str| out.extend_from_slice(&pkt::line(text.as_bytes()));
    put("command=fetch\n");
    put("object-format=sha1\n");
    out.extend_from_slice(b"0001");
    let mut put = |text: &str| out.extend_from_slice(&pkt::line(text.as_bytes()));
    put("ofs-delta\n");
    put("no-progress\n");
    if filter {
        put("filter blob:none\n");
    }
    wants.iter().for_each(|id| put(&format!("want {id}\n")));
    haves.for_each(|id| put(&format!("have {id}\n")));
    put("done\n");
    out.extend_from_slice(pkt::FLUSH);
    out.into()
}

/// A body as a stream of bytes.
pub fn reader(body: Body) -> impl tokio::io::AsyncRead + Unpin + Send {
    StreamReader::new(Box::pin(
        body.into_data_stream().map_err(std::io::Error::other),
    ))
}

/// The pack of an answer.
async fn take(body: Body, folder: &Path) -> Result<receive::Pack, String> {
    let mut from = reader(body);
    loop {
        match pkt::read(&mut from).await.map_err(told)? {
            Some(Pkt::Data(line)) if line.starts_with(b"packfile") => break,
            Some(Pkt::Data(line)) if line.starts_with(b"ERR ") => {
                let text = String::from_utf8_lossy(&line[4..]);
                return Err(format!("the git host says {:?}", text.trim_end()));
            }
            Some(_) => {}
            None => return Err("the git host sent no pack".into()),
        }
    }
    let (read, write) = tokio::io::duplex(64 << 10);
    let carry = async move {
        let mut write = write;
        loop {
            match pkt::read(&mut from).await.map_err(told)? {
                Some(Pkt::Data(packet)) => match packet.split_first() {
                    Some((1, data)) => {
                        let sent = tokio::io::AsyncWriteExt::write_all(&mut write, data);
                        sent.await.map_err(told)?;
                    }
                    Some((3, text)) => {
                        let text = String::from_utf8_lossy(text);
                        return Err(format!("the git host says {:?}", text.trim_end()));
                    }
                    _ => {}
                },
                Some(_) | None => return Ok(()),
            }
        }
    };
    let mut read = read.take(receive::MOST_PACK + 1);
    let keep = receive::spool(&mut read, folder, receive::MOST_PACK);
    let (carried, kept) = tokio::join!(carry, keep);
    let kept = kept.map_err(told)?;
    carried?;
    kept.ok_or_else(|| "the git host sent an empty pack".into())
}

/// Commits that a push brings have parents that it does not bring: those of the
/// mirror that are not there yet, with all else that is asked about.
pub fn wanted(objects: &Opened, updates: &[receive::Update]) -> Vec<String> {
    let mut wants = Vec::new();
    let mut seen = HashSet::new();
    let mut next: VecDeque<String> = VecDeque::new();
    for update in updates.iter().filter(|update| !update.deletes()) {
        if !update.creates() {
            next.push_back(update.old.clone());
        }
        next.push_back(update.new.clone());
    }
    while let Some(id) = next.pop_front() {
        if !seen.insert(id.clone()) || seen.len() > super::summary::MOST_COMMITS {
            continue;
        }
        match objects.get(&id) {
            None if !objects.is_pushed(&id) => wants.push(id),
            Some(object) if objects.is_pushed(&id) => {
                next.extend(super::summary::targets(&object));
            }
            _ => {}
        }
    }
    wants
}

/// An [`Ask`] for the mirror.
pub fn asks(address: &super::address::Address, secret: Option<String>) -> Ask {
    let mut fields = hyper::HeaderMap::new();
    fields.insert(
        hyper::header::HeaderName::from_static("git-protocol"),
        hyper::header::HeaderValue::from_static("version=2"),
    );
    Ask {
        address: address.clone(),
        secret,
        service: Service::UploadPack,
        fields,
    }
}
