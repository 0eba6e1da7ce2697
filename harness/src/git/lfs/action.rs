//! Addresses that the host gave out for objects. They hold credentials, so that they
//! stay in the harness: a command gets an address of the gateway.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hyper::{
    Uri,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use serde::Deserialize;

use super::Pointer;
use crate::git::address::Address;

/// Objects of which the way is remembered, those of two questions at least; of more, the
/// oldest are asked for again.
const MOST_KEPT: usize = 2 * super::batch::MOST_OBJECTS;
/// How long at most.
const LONGEST: Duration = Duration::from_secs(600);
/// So long before its end an address is not used any more.
const MARGIN: Duration = Duration::from_secs(30);
/// Bytes of an address with its fields.
const MOST_BYTES: usize = 16 << 10;

/// As the batch API has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Given {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, String>,
    #[serde(default)]
    expires_in: Option<i64>,
}

/// An address with what is sent there.
#[derive(Clone, Debug)]
pub struct Action {
    /// The host. Its path is empty.
    pub at: Address,
    /// Path and query.
    pub path: String,
    /// Fields.
    pub fields: HeaderMap,
    until: Instant,
}

impl Action {
    /// Reads what the host gave out. The error is for people, and quotes nothing.
    pub fn read(given: Given) -> Result<Action, &'static str> {
        let bytes = given
            .header
            .iter()
            .map(|(name, value)| name.len() + value.len());
        if given.href.len() + bytes.sum::<usize>() > MOST_BYTES {
            return Err("its address is too long");
        }
        let (at, path) = place(&given.href).ok_or("its address cannot be read")?;
        let mut fields = HeaderMap::new();
        for (name, value) in &given.header {
            let name = HeaderName::try_from(name).map_err(|_| "a field cannot be read")?;
            // What the connection itself decides.
            let own = [
                header::HOST,
                header::CONTENT_LENGTH,
                header::TRANSFER_ENCODING,
                header::CONNECTION,
                header::ACCEPT_ENCODING,
            ];
            if own.contains(&name) {
                continue;
            }
            let mut value = HeaderValue::try_from(value).map_err(|_| "a field cannot be read")?;
            value.set_sensitive(true);
            fields.append(name, value);
        }
        let named = given.expires_in.filter(|seconds| *seconds > 0);
        let named = named.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
        let lasts = named.map_or(LONGEST, |it| it.saturating_sub(MARGIN).min(LONGEST));
        Ok(Action {
            at,
            path,
            fields,
            until: Instant::now() + lasts,
        })
    }

    /// The same, led on by the host to another address; what was for the host that led
    /// on stays there. `None` where that is none, or goes from TLS to none.
    pub fn led_on(&self, to: &str) -> Option<Action> {
        let (at, path) = match to.starts_with('/') && !to.starts_with("//") {
            true => (self.at.clone(), to.to_owned()),
            false => place(to)?,
        };
        if self.at.tls && !at.tls {
            return None;
        }
        let mut fields = self.fields.clone();
        if !at.is_at(&self.at) {
            fields.clear();
        }
        let until = self.until;
        Some(Action {
            at,
            path,
            fields,
            until,
        })
    }
}

/// Host and path of an address; none with user information.
fn place(href: &str) -> Option<(Address, String)> {
    let uri: Uri = href.parse().ok()?;
    let tls = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = uri.authority()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let at = Address {
        tls,
        host: authority.host().to_ascii_lowercase(),
        port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        path: String::new(),
    };
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    Some((at, path.to_owned()))
}

/// Which way an object goes.
#[derive(Clone, Debug)]
pub enum Way {
    /// From there.
    Down(Action),
    /// To there, and what is told afterwards.
    Up(Action, Option<Action>),
    /// It waits for a push.
    Wait,
}

/// Directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Fetched.
    Down,
    /// Sent.
    Up,
}

/// Repository, object and direction.
type Key = (String, Pointer, Direction);

#[derive(Default)]
struct Kept {
    ways: HashMap<Key, (Way, Instant)>,
    order: VecDeque<Key>,
}

/// Ways that were given out, and are used soon.
#[derive(Default)]
pub struct Actions {
    kept: Mutex<Kept>,
}

impl Actions {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the way of an object of the repository.
    pub fn keep(&self, repository: &Address, object: &Pointer, way: Way) {
        let (direction, until) = match &way {
            Way::Down(action) => (Direction::Down, action.until),
            Way::Up(action, _) => (Direction::Up, action.until),
            Way::Wait => (Direction::Up, Instant::now() + LONGEST),
        };
        let key = (repository.to_string(), object.clone(), direction);
        let mut kept = self.kept();
        if kept.ways.insert(key.clone(), (way, until)).is_some() {
            kept.order.retain(|known| *known != key);
        }
        kept.order.push_back(key);
        while kept.order.len() > MOST_KEPT {
            let oldest = kept.order.pop_front();
            oldest.and_then(|oldest| kept.ways.remove(&oldest));
        }
    }

    /// The way of an object, while it holds.
    pub fn find(
        &self,
        repository: &Address,
        object: &Pointer,
        direction: Direction,
    ) -> Option<Way> {
        let key = (repository.to_string(), object.clone(), direction);
        let kept = self.kept();
        let (way, until) = kept.ways.get(&key)?;
        (*until > Instant::now()).then(|| way.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn given(href: &str) -> Given {
        Given {
            href: href.into(),
            header: BTreeMap::from([
                ("Authorization".into(), "Bearer secret".into()),
                ("Host".into(), "other.example.com".into()),
            ]),
            expires_in: None,
        }
    }

    #[test]
    fn an_address_is_read_and_what_is_for_one_host_goes_to_no_other() {
        let action = Action::read(given("https://Store.example.com:8443/a?b=c%2F")).unwrap();
        assert_eq!(
            (action.at.authority().as_str(), action.path.as_str()),
            ("store.example.com:8443", "/a?b=c%2F")
        );
        assert_eq!(action.fields.len(), 1);
        assert_eq!(action.led_on("/d").unwrap().fields.len(), 1);
        let other = action.led_on("https://elsewhere.example.com/x").unwrap();
        assert!(other.fields.is_empty());
        assert!(action.led_on("http://store.example.com:8443/x").is_none());
        for href in [
            "https://user:word@store.example.com/x",
            "ftp://store.example.com/x",
            "/x",
            "https://",
            "file:///etc/passwd",
            &format!("https://store.example.com/{}", "x".repeat(MOST_BYTES)),
        ] {
            assert!(Action::read(given(href)).is_err(), "{href}");
        }
    }

    #[test]
    fn all_of_a_question_are_remembered_also_when_it_is_asked_again() {
        let actions = Actions::default();
        let repository = Address::parse("https://git.example.com/a/b").unwrap();
        let object = |number: usize| Pointer::new(&format!("{number:064x}"), 1).unwrap();
        let most = crate::git::lfs::batch::MOST_OBJECTS;
        for asked in [0..most, most..2 * most, 0..most, 2 * most..3 * most] {
            for number in asked.clone() {
                actions.keep(&repository, &object(number), Way::Wait);
            }
            let known = |number| actions.find(&repository, &object(number), Direction::Up);
            assert!(
                asked.clone().all(|number| known(number).is_some()),
                "{asked:?}"
            );
        }
        let first = actions.find(&repository, &object(0), Direction::Up);
        assert!(
            first.is_some(),
            "what was asked for again is no older than the rest"
        );
    }

    #[test]
    fn ways_are_bounded_and_end() {
        let actions = Actions::default();
        let repository = Address::parse("https://git.example.com/a/b").unwrap();
        let object = |number: u64| Pointer::new(&format!("{number:064x}"), number).unwrap();
        for number in 0..MOST_KEPT as u64 + 1 {
            actions.keep(&repository, &object(number), Way::Wait);
        }
        let find = |number, direction| actions.find(&repository, &object(number), direction);
        assert!(find(0, Direction::Up).is_none(), "the oldest has gone");
        assert!(find(1, Direction::Up).is_some());
        assert!(find(1, Direction::Down).is_none());
        let mut short = given("https://store.example.com/x");
        short.expires_in = Some(20);
        actions.keep(
            &repository,
            &object(1),
            Way::Down(Action::read(short).unwrap()),
        );
        assert!(
            find(1, Direction::Down).is_none(),
            "it ends too soon to be used"
        );
    }
}
