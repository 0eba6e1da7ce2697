//! All processes below one, as `/proc` shows them.
//!
//! Every supervisor is the subreaper of what it started: a process that left
//! its session, its group and its parent is still found here.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to every descendant of the calling process.
///
/// For SIGKILL all are stopped first, again until no new one appears, so that
/// none can fork while the others are killed.
pub fn signal_all(signal: Signal) {
    let own = std::process::id();
    if signal == Signal::KILL {
        let mut seen = Vec::new();
        for _ in 0..20 {
            let all = of(own);
            let new: Vec<u32> = all
                .iter()
                .copied()
                .filter(|pid| !seen.contains(pid))
                .collect();
            if new.is_empty() {
                break;
            }
            send(&new, Signal::STOP);
            seen = all;
        }
    }
    send(&of(own), signal);
}

/// The processes whose parent is the calling one.
pub fn children() -> Vec<u32> {
    let own = std::process::id();
    by_parent().remove(&own).unwrap_or_default()
}

fn send(pids: &[u32], signal: Signal) {
    for pid in pids {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // It may have ended since.
            let _ = kill_process(pid, signal);
        }
    }
}

fn of(root: u32) -> Vec<u32> {
    let tree = by_parent();
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let Some(children) = tree.get(&pid) else {
            continue;
        };
        for child in children {
            // Process ids may be used again while `/proc` is read.
            if *child != root && !found.contains(child) {
                found.push(*child);
                open.push(*child);
            }
        }
    }
    found
}

fn by_parent() -> HashMap<u32, Vec<u32>> {
    let mut tree: HashMap<u32, Vec<u32>> = HashMap::new();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return tree;
    };
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(parent) = parent_of(pid) {
            tree.entry(parent).or_default().push(pid);
        }
    }
    tree
}

/// Field 4 of proc_pid_stat(5); the name before it may hold any character.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(&stat[after..]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}
