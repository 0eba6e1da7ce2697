//! What a scripted run leaves, read without the engine and compared.

use std::path::Path;

/// What a folder holds at the end.
#[derive(Debug)]
pub struct Outcome {
    transcripts: Vec<Vec<String>>,
    documents: Vec<String>,
    effects: Vec<String>,
    told: Vec<String>,
    integrity: String,
    left: i64,
}

impl Outcome {
    /// Reads it with a program that is not the engine.
    pub fn read(folder: &Path) -> Outcome {
        let file = rusqlite::Connection::open(folder.join("mooring.db")).unwrap();
        let column = |sql: &str| {
            let mut statement = file.prepare(sql).unwrap();
            statement
                .query_map([], |row| row.get::<_, String>(0))
                .unwrap()
                .collect::<Result<Vec<_>, _>>()
                .unwrap()
        };
        let transcript = |conversation: i64| {
            column(&format!(
                "SELECT kind || ' ' || coalesce(message, data, '') FROM entry
                 WHERE conversation = {conversation} AND state <> 'aborted' ORDER BY seq"
            ))
        };
        let mut effects: Vec<_> = std::fs::read_to_string(folder.join("effects"))
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        effects.sort();
        Outcome {
            transcripts: (1..=5).map(transcript).collect(),
            documents: column(
                "SELECT d.owner || ' ' || d.name || ' ' || r.value FROM document d
                 JOIN document_revision r ON r.document = d.id
                 WHERE r.revision = (SELECT max(revision) FROM document_revision WHERE document = d.id)
                 ORDER BY d.owner, d.name",
            ),
            effects,
            told: column("SELECT word FROM told ORDER BY word"),
            integrity: column("PRAGMA integrity_check").concat(),
            left: file
                .query_row(
                    "SELECT (SELECT count(*) FROM open_work) + (SELECT count(*) FROM chunk)",
                    [],
                    |row| row.get(0),
                )
                .unwrap(),
        }
    }

    fn interrupted(&self, tool: &str) -> bool {
        self.told.contains(&format!("call {tool} Interrupted"))
    }

    /// What holds however often the process ended.
    pub fn check(&self) {
        assert_eq!(self.integrity, "ok");
        assert_eq!(self.left, 0, "open work or chunks are left");
        let count = |word: &str| self.told.iter().filter(|told| *told == word).count();
        assert_eq!(count("attempt started"), count("attempt ended"));
        for tool in ["never", "asked", "outside", "away"] {
            let times = self.effects.iter().filter(|effect| *effect == tool).count();
            assert!(
                times == 1 || (times == 0 && self.interrupted(tool)),
                "{tool} took effect {times} times"
            );
        }
        for tool in ["safe", "last"] {
            assert!(
                self.effects.iter().any(|effect| effect == tool),
                "{tool} never took effect"
            );
        }
        assert!(
            !self.effects.contains(&"late".into()),
            "a call that expired ran"
        );
    }

    /// Equal, apart from what `interrupted` may change, from attempts that were lost,
    /// and from safe calls that ran again.
    pub fn compare(&self, undisturbed: &Outcome, point: &str) {
        println!("{point}");
        self.check();
        assert_eq!(self.documents, undisturbed.documents, "{point}");
        let interrupted = |tool: &str| self.interrupted(tool);
        for (mine, theirs) in self.transcripts.iter().zip(&undisturbed.transcripts) {
            let known = |entries: &[String], own: bool| {
                let mut words: Vec<_> = entries
                    .iter()
                    .map(|entry| {
                        match ["never", "asked"].iter().find(|tool| {
                            interrupted(tool)
                                && entry.contains(&format!("\"name\":\"{tool}\",\"content\""))
                        }) {
                            Some(tool)
                                if !own
                                    || entry.contains("The process that ran this call ended") =>
                            {
                                format!("result of {tool}")
                            }
                            _ => entry.clone(),
                        }
                    })
                    .collect();
                // Results stand in the order in which they came.
                words.sort_by_key(|word| !word.starts_with("pi.tool-result"));
                let results = words
                    .iter()
                    .take_while(|word| word.starts_with("pi.tool-result"))
                    .count();
                words[..results].sort();
                words
            };
            assert_eq!(known(mine, true), known(theirs, false), "{point}");
        }
        let told = |outcome: &Outcome| {
            let mut words: Vec<_> = outcome
                .told
                .iter()
                .filter(|word| !word.starts_with("attempt"))
                .map(|word| {
                    match ["never", "asked"].iter().find(|tool| {
                        interrupted(tool) && word.starts_with(&format!("call {tool} "))
                    }) {
                        Some(tool) => format!("call {tool}"),
                        None => word.clone(),
                    }
                })
                .collect();
            words.sort();
            words
        };
        assert_eq!(told(self), told(undisturbed), "{point}");
    }
}
