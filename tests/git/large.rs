//! Large files of a git host: the batch API, and a store on an address of its own, as
//! hosts have it.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_util::io::ReaderStream;

/// The store's name, which no resolver knows.
pub const STORE: &str = "store.test";

struct Kept {
    folder: PathBuf,
    /// What the store's addresses are good for: it is in each, and is changed by a test.
    key: AtomicUsize,
    verified: Mutex<Vec<String>>,
    fields: Mutex<Vec<HeaderMap>>,
}

/// A running store.
#[derive(Clone)]
pub struct Store {
    kept: Arc<Kept>,
    pub port: u16,
    server: Arc<Server>,
}

struct Server(tokio::task::JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The word that the store wants to see in a field.
fn word(key: usize) -> String {
    format!("w0rd-of-the-store-{key}")
}

impl Store {
    pub async fn start(folder: PathBuf) -> Store {
        std::fs::create_dir_all(&folder).unwrap();
        let kept = Arc::new(Kept {
            folder,
            key: AtomicUsize::new(1),
            verified: Mutex::default(),
            fields: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let routes = Router::new().fallback(serve).with_state(kept.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Store {
            kept,
            port,
            server: Arc::new(Server(server)),
        }
    }

    /// What an object is.
    pub fn object(&self, oid: &str) -> Option<Vec<u8>> {
        std::fs::read(self.kept.folder.join(oid)).ok()
    }

    /// Puts an object there; its id.
    pub fn put(&self, content: &[u8]) -> String {
        let oid = hex::encode(Sha256::digest(content));
        std::fs::write(self.kept.folder.join(&oid), content).unwrap();
        oid
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        std::fs::read_dir(&self.kept.folder).unwrap().count()
    }

    /// From now on addresses that were given out are good for nothing.
    pub fn end_addresses(&self) {
        self.kept.key.fetch_add(1, Ordering::SeqCst);
    }

    /// Objects whose sender has told the host that they are there.
    pub fn verified(&self) -> Vec<String> {
        self.kept.verified.lock().unwrap().clone()
    }

    /// Fields of the requests so far.
    pub fn fields(&self) -> Vec<HeaderMap> {
        self.kept.fields.lock().unwrap().clone()
    }

    /// The host's answer to a question of the batch API.
    pub fn batch(&self, question: &Value) -> Value {
        let upload = question["operation"] == "upload";
        let key = self.kept.key.load(Ordering::SeqCst);
        let action = |path: String| {
            json!({
                "href": format!("http://{STORE}:{}{path}", self.port),
                "header": { "X-Store": word(key) },
                "expires_in": 3600,
            })
        };
        let objects = question["objects"].as_array().unwrap().iter();
        let objects: Vec<Value> = objects
            .map(|object| {
                let oid = object["oid"].as_str().unwrap();
                let mut told = json!({ "oid": oid, "size": object["size"] });
                match (upload, self.kept.folder.join(oid).exists()) {
                    (true, true) => {}
                    (true, false) => {
                        told["actions"] = json!({
                            "upload": action(format!("/{oid}")),
                            "verify": action("/verify".into()),
                        });
                    }
                    (false, true) => {
                        told["actions"] = json!({ "download": action(format!("/moved/{oid}")) });
                    }
                    (false, false) => {
                        told["error"] =
                            json!({ "code": 404, "message": "there is no such object" });
                    }
                }
                told
            })
            .collect();
        json!({ "transfer": "basic", "objects": objects })
    }

    /// Keeps the server as long as its host.
    pub fn is_running(&self) -> bool {
        !self.server.0.is_finished()
    }
}

async fn serve(State(kept): State<Arc<Kept>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    kept.fields.lock().unwrap().push(parts.headers.clone());
    let given = parts.headers.get("x-store").and_then(|it| it.to_str().ok());
    if given != Some(&word(kept.key.load(Ordering::SeqCst))) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let path = parts.uri.path().trim_start_matches('/').to_owned();
    // Stores lead on to where the bytes are.
    if let Some(oid) = path.strip_prefix("moved/") {
        let to = [(header::LOCATION, format!("/{oid}"))];
        return (StatusCode::TEMPORARY_REDIRECT, to).into_response();
    }
    let bytes = axum::body::to_bytes(body, 1 << 30).await.unwrap();
    match parts.method {
        Method::PUT => {
            if hex::encode(Sha256::digest(&bytes)) != path {
                return StatusCode::UNPROCESSABLE_ENTITY.into_response();
            }
            std::fs::write(kept.folder.join(path), bytes).unwrap();
            StatusCode::OK.into_response()
        }
        Method::POST => {
            let told: Value = serde_json::from_slice(&bytes).unwrap();
            let oid = told["oid"].as_str().unwrap().to_owned();
            let there = kept.folder.join(&oid).exists();
            kept.verified.lock().unwrap().push(oid);
            match there {
                true => StatusCode::OK.into_response(),
                false => StatusCode::NOT_FOUND.into_response(),
            }
        }
        _ => match tokio::fs::File::open(kept.folder.join(path)).await {
            Ok(file) => {
                let range = parts.headers.get(header::RANGE);
                let range = range.and_then(|it| {
                    let text = it.to_str().ok()?.strip_prefix("bytes=")?;
                    text.strip_suffix('-')?.parse::<u64>().ok()
                });
                let mut file = file;
                let mut response = Response::builder();
                if let Some(begin) = range {
                    use tokio::io::AsyncSeekExt;
                    file.seek(std::io::SeekFrom::Start(begin)).await.unwrap();
                    response = response.status(StatusCode::PARTIAL_CONTENT);
                }
                let body = Body::from_stream(ReaderStream::new(file));
                response.body(body).unwrap()
            }
            Err(_) => StatusCode::NOT_FOUND.into_response(),
        },
    }
}
