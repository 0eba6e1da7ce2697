//! SIGKILL from outside, at random times, under load: nothing is lost and
//! nothing is done twice.
//!
//! `SEED=` repeats a run. The phase that each kill hit is printed; a run in which
//! a phase was hit fewer than five times has shown too little, and fails.
#![allow(clippy::unwrap_used, missing_docs)]

mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use mooring_tests::project::{BOUND, Client, Project, met};
use mooring_wire::harness::{self as wire, Part, SubmitRequest, ViewRequest};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Conversations that work at the same time.
const CONVERSATIONS: usize = 4;
/// Each phase must have been hit this often.
const HITS: usize = 5;
const POLICY: &str =
    "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}\nexternalDirectory: allow";

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_260_730);
    println!("SEED={seed}");
    seed
}

/// What was asked for, to be found again afterwards.
#[derive(Default)]
struct Load {
    /// Conversation by its slot.
    conversations: BTreeMap<usize, i64>,
    /// Lines that commands were asked to append.
    lines: BTreeSet<String>,
    /// Request ids that were admitted.
    requests: BTreeMap<String, i64>,
    next: usize,
}

impl Load {
    /// Sends the next input to `slot`, again and again until it is admitted:
    /// whoever was killed meanwhile, the same request id is one submission.
    async fn submit(&mut self, project: &Project, slot: usize) {
        let number = self.next;
        self.next += 1;
        let request_id = format!("input-{number}");
        let mut text = String::new();
        for step in 0..3 {
            let line = format!("{slot}-{number}-{step}");
            text.push_str(&format!(
                "run echo {line} >> side.txt; sleep 0.02; echo did {line}\n"
            ));
            self.lines.insert(line);
        }
        let conversation = match self.conversations.get(&slot) {
            Some(id) => *id,
            None => 0,
        };
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < BOUND, "{request_id} is not admitted");
            let mut client = project.client().await;
            let request = SubmitRequest {
                conversation,
                request_id: request_id.clone(),
                content: vec![Part::text(text.clone())],
                ..SubmitRequest::default()
            };
            match client.submit(request).await {
                Ok(response) => {
                    let response = response.into_inner();
                    self.conversations.insert(slot, response.conversation);
                    self.requests.insert(request_id, response.conversation);
                    return;
                }
                Err(status) => println!("{request_id}: {}", status.message()),
            }
        }
    }

    /// Waits until no conversation has anything left to do.
    async fn settle(&self, project: &Project) {
        let mut client = project.client().await;
        for conversation in self.conversations.values() {
            project.idle(&mut client, *conversation).await;
        }
    }

    async fn entries(&self, client: &mut Client, kind: &str) -> Vec<wire::Entry> {
        let mut found = Vec::new();
        for conversation in self.conversations.values() {
            let mut before = 0;
            loop {
                let request = wire::EntriesRequest {
                    conversation: *conversation,
                    before,
                    limit: 500,
                    request: 0,
                };
                let page = client.entries(request).await.unwrap().into_inner();
                before = page.entries.first().map_or(0, |entry| entry.id);
                found.extend(page.entries.into_iter().filter(|entry| entry.kind == kind));
                if !page.more {
                    break;
                }
            }
        }
        found
    }
}

/// What the conversations are doing at this moment.
async fn phase(client: &mut Client, conversations: &[i64], random: &mut StdRng) -> String {
    let Some(conversation) = conversations.get(random.random_range(0..conversations.len().max(1)))
    else {
        return "idle".into();
    };
    let request = ViewRequest {
        conversation: *conversation,
        entries: 1,
        entries_before: 0,
    };
    match client.view(request).await {
        Ok(view) => match view.into_inner().run {
            Some(run) => match run.state.as_str() {
                "tools" => "tools".into(),
                "idle" => "idle".into(),
                _ => "model".into(),
            },
            None => "idle".into(),
        },
        Err(_) => "starting".into(),
    }
}

fn count(text: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line).or_insert(0) += 1;
    }
    counts
}

fn check_database(project: &Project) {
    let path = project.state().join("mooring.db");
    let output = std::process::Command::new("sqlite3")
        .arg(&path)
        .arg("PRAGMA integrity_check; PRAGMA foreign_key_check;")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ok");
}

fn enough(hits: &BTreeMap<String, usize>, phases: &[&str]) {
    println!("kills by phase: {hits:?}");
    for phase in phases {
        let count = hits.get(*phase).copied().unwrap_or(0);
        assert!(
            count >= HITS,
            "phase {phase} was hit {count} times only; SEED= another seed"
        );
    }
}

#[tokio::test]
async fn two_hundred_kills_of_the_harness_lose_and_repeat_nothing() {
    let project = Project::with_workspace(POLICY);
    let mut random = StdRng::seed_from_u64(seed());
    let mut load = Load::default();
    let mut hits: BTreeMap<String, usize> = BTreeMap::new();
    for kill in 0..200 {
        load.submit(&project, kill % CONVERSATIONS).await;
        let mut client = project.client().await;
        let pause = random.random_range(0..60);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let conversations: Vec<i64> = load.conversations.values().copied().collect();
        let hit = phase(&mut client, &conversations, &mut random).await;
        *hits.entry(hit).or_default() += 1;
        project.kill_harness().await;
    }
    load.settle(&project).await;
    // Each command ran, and none ran twice.
    let side = project.read("side.txt");
    let counts = count(&side);
    for line in &load.lines {
        assert_eq!(counts.get(line.as_str()), Some(&1), "{line}");
    }
    assert_eq!(counts.len(), load.lines.len());
    // Each input is in the transcript once, and each call has its result.
    let mut client = project.client().await;
    assert_eq!(
        load.entries(&mut client, "pi.user").await.len(),
        load.requests.len()
    );
    let results = load.entries(&mut client, "pi.tool-result").await;
    let told: BTreeSet<&str> = results
        .iter()
        .flat_map(|entry| entry.text.lines())
        .collect();
    for line in &load.lines {
        assert!(
            told.contains(format!("did {line}").as_str()),
            "no result tells of {line}"
        );
    }
    check_database(&project);
    enough(&hits, &["tools", "model"]);
}

#[tokio::test]
async fn fifty_kills_of_the_sandbox_daemon_repeat_nothing_and_tell_what_was_interrupted() {
    let project = Project::with_workspace(POLICY);
    let mut random = StdRng::seed_from_u64(seed());
    let mut load = Load::default();
    for kill in 0..50 {
        load.submit(&project, kill % CONVERSATIONS).await;
        met(|| !project.daemons().is_empty()).await;
        let pause = random.random_range(0..80);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        project.kill_daemon();
    }
    load.settle(&project).await;
    let side = project.read("side.txt");
    let counts = count(&side);
    assert!(counts.values().all(|times| *times == 1), "{counts:?}");
    let mut client = project.client().await;
    assert_eq!(
        load.entries(&mut client, "pi.user").await.len(),
        load.requests.len()
    );
    // What is missing was told to be interrupted.
    let missing = load
        .lines
        .iter()
        .filter(|line| !counts.contains_key(line.as_str()))
        .count();
    let results = load.entries(&mut client, "pi.tool-result").await;
    let interrupted = results
        .iter()
        .filter(|entry| entry.json.contains("interrupted"))
        .count();
    println!(
        "{} lines, {missing} missing, {interrupted} interrupted",
        load.lines.len()
    );
    assert!(
        missing <= interrupted,
        "{missing} missing, {interrupted} told"
    );
    assert_eq!(results.len(), load.lines.len());
    check_database(&project);
}
