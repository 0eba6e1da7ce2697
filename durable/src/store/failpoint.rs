//! Crash points around commits, for tests: `MOORING_CRASH_AT=<name>#<k>[:before|:after]`
//! ends the process around the k-th commit of that name, and `MOORING_FAIL_AT=<name>#<k>`
//! lets its flush fail. Only in builds with the feature `failpoints`.

/// Every name of a commit.
pub const COMMITS: &[&str] = &[
    "create",
    "submit",
    "write",
    "compact",
    "compacted",
    "reset",
    "fork",
    "documents",
    "withdraw",
    "replace",
    "model",
    "request",
    "calls",
    "answer",
    "retry",
    "failed",
    "ask",
    "intent",
    "unreachable",
    "wait",
    "settle",
    "report",
    "result",
    "round",
    "decide",
    "expire",
    "abort",
    "aborted",
    "recover",
    "release",
    "delete",
    "retire",
    "import",
    "chunks",
];

/// Which side of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "failpoints"), allow(dead_code))]
pub(crate) enum Side {
    Before,
    After,
}

/// Counts commits by name.
#[derive(Debug, Default)]
pub(crate) struct Failpoints {
    #[cfg(feature = "failpoints")]
    armed: armed::Armed,
}

#[cfg(not(feature = "failpoints"))]
impl Failpoints {
    pub fn crash(&mut self, _name: &str, _side: Side) {}
    pub fn fails(&self, _name: &str) -> bool {
        false
    }
}

#[cfg(feature = "failpoints")]
impl Failpoints {
    /// Ends the process if this is the commit and side that was asked for.
    pub fn crash(&mut self, name: &str, side: Side) {
        self.armed.crash(name, side);
    }
    /// Whether the flush of this commit is to fail; asked after [`Side::Before`].
    pub fn fails(&self, name: &str) -> bool {
        self.armed.fails(name)
    }
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::collections::HashMap;

    use super::Side;

    #[derive(Debug)]
    pub(super) struct Armed {
        crash: Option<(String, u64, Side)>,
        fail: Option<(String, u64)>,
        seen: HashMap<String, u64>,
        /// Where commits are noted as they happen, one name a line.
        log: Option<std::path::PathBuf>,
    }

    impl Default for Armed {
        fn default() -> Armed {
            let crash = std::env::var("MOORING_CRASH_AT").ok().and_then(|text| {
                let (point, side) = match text.split_once(':') {
                    Some((point, "after")) => (point, Side::After),
                    Some((point, _)) => (point, Side::Before),
                    None => (text.as_str(), Side::Before),
                };
                let (name, k) = point.split_once('#')?;
                Some((name.to_owned(), k.parse().ok()?, side))
            });
            let fail = std::env::var("MOORING_FAIL_AT").ok().and_then(|text| {
                let (name, k) = text.split_once('#')?;
                Some((name.to_owned(), k.parse().ok()?))
            });
            let log = std::env::var_os("MOORING_COMMIT_LOG").map(Into::into);
            Armed {
                crash,
                fail,
                seen: HashMap::new(),
                log,
            }
        }
    }

    impl Armed {
        pub fn crash(&mut self, name: &str, side: Side) {
            if side == Side::Before {
                *self.seen.entry(name.to_owned()).or_default() += 1;
            } else if let Some(log) = &self.log {
                use std::io::Write;
                let file = std::fs::File::options().create(true).append(true).open(log);
                if let Ok(mut file) = file {
                    let _ = writeln!(file, "{name}");
                }
            }
            if let Some((at, k, on)) = &self.crash
                && at == name
                && *on == side
                && self.seen.get(name) == Some(k)
            {
                std::process::abort();
            }
        }

        pub fn fails(&self, name: &str) -> bool {
            self.fail
                .as_ref()
                .is_some_and(|(at, k)| at == name && self.seen.get(name) == Some(k))
        }
    }
}
