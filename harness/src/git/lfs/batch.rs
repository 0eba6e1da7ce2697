//! The batch API: which objects there are, and where.

use axum::body::Body;
use bytes::Bytes;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderMap, HeaderValue},
};
use mooring_crds::Verdict;
use mooring_policy::{Push, decide_push, escape_for_display};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    KIND, Pointer,
    action::{Action, Direction, Given, Way},
    answer, failed, told,
};
use crate::{
    boundary::Origin,
    card::one_line,
    git::{
        Gateway, Repository,
        connector::{self, unreachable},
        upstream::{Failure, challenges, location},
    },
};

/// Bytes of a command's question.
const MOST_ASKED: usize = 1 << 20;
/// Bytes of the host's answer.
const MOST_TOLD: usize = 8 << 20;
/// Objects of one question.
pub(super) const MOST_OBJECTS: usize = 1_000;
/// Requests that one question may take: with a credential, and where the host leads on.
const MOST_TRIES: usize = 5;

/// A command's question.
#[derive(Debug, Deserialize)]
struct Asked {
    operation: String,
    #[serde(default)]
    hash_algo: Option<String>,
    #[serde(default, rename = "ref")]
    reference: Option<Reference>,
    objects: Vec<Pointer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Reference {
    name: String,
}

/// The host's answer.
#[derive(Debug, Default, Deserialize)]
struct Told {
    #[serde(default)]
    transfer: Option<String>,
    #[serde(default)]
    objects: Vec<ToldObject>,
}

/// What the host says of one object.
#[derive(Debug, Deserialize)]
pub struct ToldObject {
    oid: String,
    #[serde(default)]
    actions: Option<ToldActions>,
    #[serde(default)]
    error: Option<ToldError>,
}

#[derive(Debug, Default, Deserialize)]
struct ToldActions {
    download: Option<Given>,
    upload: Option<Given>,
    verify: Option<Given>,
}

#[derive(Debug, Deserialize)]
struct ToldError {
    code: i64,
    #[serde(default)]
    message: String,
}

/// How one object is at the host.
#[expect(clippy::large_enum_variant, reason = "most are ways, and none is kept")]
pub enum Found {
    /// There is nothing to do: it is there already, and was to be sent.
    There,
    /// This way.
    Way(Way),
    /// What git-lfs shows.
    Wrong(i64, String),
}

/// A text of the host, for one line.
fn shown(text: &str) -> String {
    one_line(&escape_for_display(text))
}

impl ToldObject {
    fn found(self, direction: Direction) -> Found {
        if let Some(error) = self.error {
            return Found::Wrong(error.code, shown(&error.message));
        }
        let actions = self.actions.unwrap_or_default();
        let odd = |why: &str| Found::Wrong(502, format!("what the host says of it is odd: {why}"));
        match direction {
            Direction::Down => match actions.download.map(Action::read) {
                Some(Ok(action)) => Found::Way(Way::Down(action)),
                Some(Err(why)) => odd(why),
                None => odd("it names no address"),
            },
            Direction::Up => {
                let verify = actions.verify.map(Action::read).transpose();
                match (actions.upload.map(Action::read), verify) {
                    (None, _) => Found::There,
                    (Some(Ok(upload)), Ok(verify)) => Found::Way(Way::Up(upload, verify)),
                    (Some(Err(why)), _) | (_, Err(why)) => odd(why),
                }
            }
        }
    }
}

/// Whether commands may send objects for a ref, as the policy has it for a push there.
enum May {
    /// They go on at once.
    Through,
    /// They wait for the push.
    Wait,
}

impl Gateway {
    pub(super) async fn batch(
        &self,
        origin: &Origin,
        repository: &Repository,
        number: usize,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let Some(here) = here(request.headers(), number) else {
            return told(StatusCode::BAD_REQUEST, "the request names no host");
        };
        // The command's own credential, for the addresses that it gets.
        let own = request.headers().get(header::AUTHORIZATION);
        let own = own
            .and_then(|it| it.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let wrong = |why: &str| told(StatusCode::UNPROCESSABLE_ENTITY, why);
        let body = axum::body::to_bytes(Body::new(request.into_body()), MOST_ASKED).await;
        let Ok(body) = body else {
            return told(StatusCode::PAYLOAD_TOO_LARGE, "the question is too long");
        };
        let asked: Asked = match serde_json::from_slice(&body) {
            Ok(asked) => asked,
            Err(error) => return wrong(&format!("the question is not understood: {error}")),
        };
        if asked.hash_algo.is_some_and(|it| it != "sha256") {
            return told(StatusCode::CONFLICT, "only sha256 names objects here");
        }
        let right = |it: &Pointer| Pointer::new(&it.oid, it.size).is_some();
        if asked.objects.len() > MOST_OBJECTS || !asked.objects.iter().all(right) {
            return wrong("the question names too many objects, or none");
        }
        let reference = asked.reference.as_ref().map(|it| it.name.as_str());
        let (direction, may) = match asked.operation.as_str() {
            "download" => (Direction::Down, May::Through),
            "upload" => match self.may_send(origin, repository, reference) {
                Ok(may) => (Direction::Up, may),
                Err(why) => return told(StatusCode::FORBIDDEN, &why),
            },
            _ => return wrong("there are the operations download and upload"),
        };
        let found = self
            .find(repository, direction, reference, &asked.objects)
            .await;
        let found = match found {
            Ok(found) => found,
            Err(failure) => return failed(&failure),
        };
        let objects = asked.objects.iter().zip(found);
        let objects: Vec<Value> = objects
            .map(|(object, found)| self.offered(repository, object, found, &may, (&here, &own)))
            .collect();
        let told = json!({ "transfer": "basic", "hash_algo": "sha256", "objects": objects });
        answer(StatusCode::OK, &told)
    }

    /// Whether objects may be sent for this ref; the error is for people.
    fn may_send(
        &self,
        origin: &Origin,
        repository: &Repository,
        reference: Option<&str>,
    ) -> Result<May, String> {
        if !repository.own {
            return Err(format!(
                "{} may only be fetched from: pushes go to spec.repo.url of the Workspace",
                repository.address
            ));
        }
        let reference = reference.ok_or(
            "large files are sent for a ref, and this names none: push with git, or update git-lfs",
        )?;
        let update = Push {
            reference,
            force: false,
            delete: false,
        };
        let decision = decide_push(&self.source.current().rules, &[update]);
        match decision.verdict {
            Verdict::Allow => Ok(May::Through),
            Verdict::Deny => Err(decision.reason),
            Verdict::Ask if origin.autonomous || self.engine.get().is_none() => Err(format!(
                "{} Nobody can be asked for this command, so it is denied.",
                decision.reason
            )),
            Verdict::Ask => Ok(May::Wait),
        }
    }

    /// What a command is told of one object.
    fn offered(
        &self,
        repository: &Repository,
        object: &Pointer,
        found: Found,
        may: &May,
        (here, own): (&str, &str),
    ) -> Value {
        let known = json!({ "oid": object.oid, "size": object.size, "authenticated": true });
        let with = |name: &str, value: Value| {
            let mut all = known.clone();
            all[name] = value;
            all
        };
        let way = match found {
            Found::There => return known,
            Found::Wrong(code, message) => {
                return with("error", json!({ "code": code, "message": message }));
            }
            Found::Way(Way::Up(..)) if matches!(may, May::Wait) => {
                if self
                    .large
                    .waiting
                    .find(&repository.address, object)
                    .is_some()
                {
                    return known;
                }
                Way::Wait
            }
            Found::Way(way) => way,
        };
        let name = match &way {
            Way::Down(_) => "download",
            Way::Up(..) | Way::Wait => "upload",
        };
        self.large.actions.keep(&repository.address, object, way);
        let action = json!({
            "href": format!("{here}/{}/{}", object.oid, object.size),
            "header": { "Authorization": own },
        });
        with("actions", json!({ name: action }))
    }

    /// How the objects are at the host, in their order.
    pub(super) async fn find(
        &self,
        repository: &Repository,
        direction: Direction,
        reference: Option<&str>,
        objects: &[Pointer],
    ) -> Result<Vec<Found>, Failure> {
        let operation = match direction {
            Direction::Down => "download",
            Direction::Up => "upload",
        };
        let mut question = json!({
            "operation": operation,
            "transfers": ["basic"],
            "objects": objects,
            "hash_algo": "sha256",
        });
        if let Some(name) = reference {
            question["ref"] = json!(Reference {
                name: name.to_owned()
            });
        }
        let text = self
            .ask_host(repository, question.to_string().into())
            .await?;
        let not_git = |why: String| Failure::NotGit {
            host: repository.address.authority(),
            path: repository.address.path.clone(),
            why,
        };
        let told: Told = serde_json::from_slice(&text).map_err(|error| {
            not_git(format!(
                "its batch API answers what is not understood: {error}"
            ))
        })?;
        if told.transfer.as_deref().is_some_and(|it| it != "basic") {
            return Err(not_git("it has no basic transfers of large files".into()));
        }
        self.large.waiting.mark(&repository.address);
        let mut told: std::collections::HashMap<String, ToldObject> = told
            .objects
            .into_iter()
            .map(|it| (it.oid.clone(), it))
            .collect();
        let found = objects.iter().map(|object| match told.remove(&object.oid) {
            Some(told) => told.found(direction),
            None => Found::Wrong(404, "the host says nothing of it".into()),
        });
        Ok(found.collect())
    }

    /// Asks the host's batch API, with the harness's credential where it wants one.
    async fn ask_host(&self, repository: &Repository, question: Bytes) -> Result<Bytes, Failure> {
        let (upstream, address) = (&self.upstream, &repository.address);
        let mut learnt = upstream.learnt_of_large(address, repository.secret.as_deref());
        let mut tried = false;
        for _ in 0..MOST_TRIES {
            let at = learnt.moved.clone().unwrap_or(address.clone());
            let path = format!("{}/objects/batch", base(&at.path));
            let body = Body::from(question.clone());
            let mut request = connector::request(&at, Method::POST, &path, HeaderMap::new(), body)?;
            let fields = request.headers_mut();
            fields.insert(header::ACCEPT, HeaderValue::from_static(KIND));
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(KIND));
            fields.insert(header::CONTENT_LENGTH, question.len().into());
            if let Some(field) = learnt.field_for(&at, address) {
                fields.insert(header::AUTHORIZATION, field);
            }
            let told = upstream.large(&at, request).await?;
            let status = told.status();
            if status == StatusCode::UNAUTHORIZED && !tried {
                tried = true;
                let challenge = challenges(told.headers());
                learnt.field = upstream
                    .credential(address, repository.secret.as_deref())
                    .await
                    .map(|it| it.field(Some(&challenge)));
                if learnt.field.is_none() {
                    return Err(upstream.no_credential(&at));
                }
                continue;
            }
            if status.is_redirection() {
                let to = location(told.headers());
                learnt.moved = Some(crate::git::upstream::moved_to(&at, &to, |whole| {
                    let whole = whole.strip_suffix("/objects/batch")?;
                    whole.strip_suffix("/info/lfs").map(str::to_owned)
                })?);
                continue;
            }
            if status != StatusCode::OK {
                return Err(upstream.status(&at, status));
            }
            upstream.learn_of_large(address, learnt);
            let text = axum::body::to_bytes(upstream.timely(&at, told), MOST_TOLD).await;
            return text.map_err(|error| unreachable(&at, error));
        }
        Err(upstream.status(address, StatusCode::LOOP_DETECTED))
    }
}

/// Where a repository's large files are asked for.
fn base(path: &str) -> String {
    match path.ends_with(".git") {
        true => format!("{path}/info/lfs"),
        false => format!("{path}.git/info/lfs"),
    }
}

/// The gateway's own address of objects, as the command reached it.
fn here(fields: &HeaderMap, number: usize) -> Option<String> {
    let host = fields.get(header::HOST)?.to_str().ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    (!host.is_empty() && host.chars().all(plain))
        .then(|| format!("http://{host}/git/{number}.git/info/lfs/objects"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_host_says_of_an_object_is_read_strictly() {
        let read = |text: &str, direction| {
            let told: ToldObject = serde_json::from_str(text).unwrap();
            match told.found(direction) {
                Found::There => "there".to_owned(),
                Found::Way(Way::Down(action)) => format!("down {}", action.at.authority()),
                Found::Way(Way::Up(action, verify)) => {
                    format!("up {} {}", action.at.authority(), verify.is_some())
                }
                Found::Way(Way::Wait) => "wait".to_owned(),
                Found::Wrong(code, message) => format!("{code} {message}"),
            }
        };
        let store = r#"{"href": "https://store.example.com/x"}"#;
        for (text, direction, expected) in [
            (
                format!(r#"{{"oid": "a", "actions": {{"download": {store}}}}}"#),
                Direction::Down,
                "down store.example.com",
            ),
            (
                format!(r#"{{"oid": "a", "actions": {{"upload": {store}, "verify": {store}}}}}"#),
                Direction::Up,
                "up store.example.com true",
            ),
            (r#"{"oid": "a"}"#.into(), Direction::Up, "there"),
            (
                r#"{"oid": "a"}"#.into(),
                Direction::Down,
                "502 what the host says of it is odd: it names no address",
            ),
            (
                r#"{"oid": "a", "error": {"code": 404, "message": "not\nthere"}}"#.into(),
                Direction::Down,
                "404 not [+1 lines]",
            ),
            (
                r#"{"oid": "a", "actions": {"upload": {"href": "file:///etc/passwd"}}}"#.into(),
                Direction::Up,
                "502 what the host says of it is odd: its address cannot be read",
            ),
        ] {
            assert_eq!(read(&text, direction), expected, "{text}");
        }
    }

    #[test]
    fn large_files_are_asked_for_where_git_lfs_asks() {
        assert_eq!(base("/acme/platform.git"), "/acme/platform.git/info/lfs");
        assert_eq!(base("/acme/platform"), "/acme/platform.git/info/lfs");
    }
}
