//! What a conversation has seen, and what a model is shown of it: plain lists, with
//! nothing of how the engine keeps or derives them.

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    User(String),
    Answer(String),
    Calls(Vec<String>),
    Result {
        call: String,
        end: String,
    },
    /// The prompt's section; the whole prompt, or what changed.
    Section {
        text: String,
        whole: bool,
    },
    System(String),
    /// Nothing that a model is told.
    Nothing(&'static str),
}

/// One entry; named by its place in a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub said: Said,
    /// It failed: for people only.
    pub failed: bool,
    /// The context begins at that place.
    pub head: Option<usize>,
    /// Another entry is left out, or replaced.
    pub edit: Option<(usize, Option<String>)>,
}

impl From<Said> for Entry {
    fn from(said: Said) -> Entry {
        Entry {
            said,
            failed: false,
            head: None,
            edit: None,
        }
    }
}

impl Entry {
    /// As people see it.
    pub fn word(&self) -> String {
        match (&self.said, self.failed) {
            (_, true) => "failed".into(),
            (Said::Nothing(what), _) => format!("({what})"),
            (said, _) => said.word(),
        }
    }
}

impl Said {
    fn word(&self) -> String {
        match self {
            Said::User(text) => format!("U:{text}"),
            Said::Answer(text) => format!("A:{text}"),
            Said::Calls(ids) => format!("A({})", ids.join(",")),
            Said::Result { call, end } => format!("R:{call}={end}"),
            Said::Section { text, whole: true } | Said::System(text) => format!("S:{text}"),
            Said::Section { text, whole: false } => {
                format!("S:Section \"role\" now reads:\n{text}")
            }
            Said::Nothing(_) => String::new(),
        }
    }
}

/// Where the context of a history begins, if anything says so.
pub fn begins_at(history: &[Entry]) -> Option<usize> {
    history.iter().rev().find_map(|entry| entry.head)
}

/// The entries of the context, by place: the newest head's own entry, then from where
/// it points on; older heads say nothing any more.
fn range(history: &[Entry]) -> Vec<usize> {
    let newest = history.iter().rposition(|entry| entry.head.is_some());
    let Some(newest) = newest else {
        return (0..history.len()).collect();
    };
    let from = history[newest].head.unwrap();
    let rest = (from..history.len()).filter(|at| *at != newest && history[*at].head.is_none());
    match from == newest {
        true => (newest..history.len()).collect(),
        false => std::iter::once(newest).chain(rest).collect(),
    }
}

/// The context: what each place says after the newest edit of it.
fn seen(history: &[Entry]) -> Vec<Said> {
    let range = range(history);
    let edit = |place: usize| {
        let mut edits = range.iter().filter_map(|at| history[*at].edit.as_ref());
        edits.rfind(|(target, _)| *target == place)
    };
    let said = |place: &usize| match edit(*place) {
        Some((_, None)) => None,
        Some((_, Some(text))) => Some(Said::User(text.clone())),
        None => Some(history[*place].said.clone()),
    };
    let told = range.iter().filter(|at| !history[**at].failed);
    told.filter_map(said)
        .filter(|said| !matches!(said, Said::Nothing(_)))
        .collect()
}

/// What has to be said so that the context tells of this section; `None`: it does.
pub fn section(history: &[Entry], now: &str) -> Option<Said> {
    let seen = seen(history);
    let whole = |said: &Said| matches!(said, Said::Section { whole: true, .. });
    let Some(base) = seen.iter().position(whole) else {
        let (text, whole) = (now.to_owned(), true);
        return Some(Said::Section { text, whole });
    };
    let mut told = seen[base..].iter().rev().filter_map(|said| match said {
        Said::Section { text, .. } => Some(text),
        _ => None,
    });
    (told.next().unwrap() != now).then(|| Said::Section {
        text: now.into(),
        whole: false,
    })
}

/// The messages of a request: each call's result directly after it, in call order.
pub fn request(history: &[Entry]) -> Vec<String> {
    let seen = seen(history);
    let mut words = Vec::new();
    for (at, said) in seen.iter().enumerate() {
        match said {
            Said::Result { .. } => {}
            Said::Calls(calls) => {
                words.push(said.word());
                let answers = |said: &Said| matches!(said, Said::Calls(_) | Said::Answer(_));
                let rest = &seen[at + 1..];
                let until = rest.iter().position(answers).unwrap_or(rest.len());
                for call in calls {
                    let of =
                        |said: &&Said| matches!(said, Said::Result { call: of, .. } if of == call);
                    words.push(match rest[..until].iter().find(of) {
                        Some(result) => result.word(),
                        None => format!("R:{call}=missing"),
                    });
                }
            }
            said => words.push(said.word()),
        }
    }
    words
}

/// Whether a summary may take the place of what stands before a place: something is said
/// there, and no call is separated from its results or goes on.
pub fn may_cut(history: &[Entry], cut: usize) -> bool {
    let range = range(history);
    let Some(at) = range.iter().position(|place| *place == cut) else {
        return false;
    };
    let (before, after) = range.split_at(at);
    let of = |call: &str, places: &[usize]| {
        let mut said = places.iter().map(|place| &history[*place].said);
        said.any(|said| matches!(said, Said::Result { call: of, .. } if of == call))
    };
    let whole = before.iter().all(|place| match &history[*place].said {
        Said::Calls(calls) => calls
            .iter()
            .all(|call| of(call, before) && !of(call, after)),
        _ => true,
    });
    let says = |place: &usize| {
        let entry = &history[*place];
        let told = matches!(
            entry.said,
            Said::User(_) | Said::Answer(_) | Said::Calls(_) | Said::Result { .. }
        );
        told && !entry.failed && entry.head.is_none()
    };
    whole && before.iter().any(says)
}
