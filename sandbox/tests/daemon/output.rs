//! Output: bounded on disk and in memory, however much and whatever it is.

use mooring_wire::sandbox::outcome::End;
use mooring_wire::sandbox::signal_request::Signal;
use mooring_wire::sandbox::{ReadRequest, read_response::Content};

use crate::support::{As, Sandbox, request, unique, users};

/// What the daemon's processes hold for themselves, in bytes: the pages of the binary are left out,
/// for how many processes share them is the machine's doing. Shared pages count once.
fn memory(sandbox: &Sandbox) -> u64 {
    let mut open = vec![sandbox.pid()];
    let mut total = 0;
    while let Some(pid) = open.pop() {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        open.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if !name.starts_with("mooring") {
            continue;
        }
        let rollup =
            std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let anonymous = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Pss_Anon:"));
        let kib = anonymous
            .and_then(|text| text.split_whitespace().next())
            .and_then(|kib| kib.parse::<u64>().ok());
        total += kib.unwrap_or(0) * 1024;
    }
    total
}

#[tokio::test]
async fn an_idle_daemon_is_small() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    sandbox.run("true").await.ok();
    let idle = memory(&sandbox);
    assert!(idle > 0 && idle < 10 << 20, "{idle} bytes");
}

#[tokio::test]
async fn a_hundred_megabytes_are_given_in_bounded_memory() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let ran = sandbox
            .run("head -c 100000000 /dev/zero | tr '\\0' x")
            .await;
        assert_eq!(ran.outcome.as_ref().unwrap().output_bytes, 100_000_000);
        let lost: u64 = ran.gaps.iter().map(|gap| gap.1).sum();
        assert_eq!(ran.bytes + lost, 100_000_000);
        assert!(ran.bytes >= 64 << 20, "{} bytes", ran.bytes);
        let after = memory(&sandbox);
        assert!(after < 24 << 20, "{after} bytes");
    }
}

#[tokio::test]
async fn of_a_gigabyte_the_first_and_the_last_half_of_the_limit_stay() {
    let sandbox = Sandbox::start(As::Caller, &["--output-bytes", "8388608"]).await;
    let id = unique("giga");
    let mut client = sandbox.client().await;
    let command = "echo first; head -c 1000000000 /dev/zero | tr '\\0' y; echo; echo last";
    let path = client
        .exec(request(&id, command))
        .await
        .unwrap()
        .into_inner()
        .output_path;
    // Nobody reads while it runs, as when the harness is down.
    let since = std::time::Instant::now();
    while sandbox
        .status()
        .await
        .executions
        .iter()
        .any(|known| known.state == 1)
    {
        assert!(since.elapsed() < crate::support::PATIENCE * 3);
        tokio::task::yield_now().await;
    }
    let ran = sandbox.attach(&id, 0).await;
    let total = 6 + 1_000_000_000 + 1 + 5;
    assert_eq!(ran.outcome.as_ref().unwrap().output_bytes, total);
    assert!(ran.output.starts_with(b"first\nyyy"));
    assert_eq!(ran.gaps.len(), 1);
    assert_eq!(ran.gaps[0].0, 4 << 20);
    assert!(
        ran.bytes >= 8 << 20 && ran.bytes < 9 << 20,
        "{} bytes",
        ran.bytes
    );
    assert!(sandbox.attach(&id, total - 5).await.text() == "last\n");
    // The file is plain text for a command, and small.
    let text = sandbox.run(&format!("tail -n 1 {path}; head -n 1 {path}; grep -ac 'bytes not kept' {path}; du -k {path} | cut -f1")).await.ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..3], ["last", "first", "1"]);
    assert!(
        lines[3].parse::<u64>().unwrap() < 10_000,
        "{} KiB",
        lines[3]
    );
}

#[tokio::test]
async fn a_command_that_writes_without_end_is_bounded_and_can_be_followed_and_ended() {
    let sandbox = Sandbox::start(As::Caller, &["--output-bytes", "1048576"]).await;
    let id = unique("endless");
    let mut client = sandbox.client().await;
    let path = client
        .exec(request(&id, "yes"))
        .await
        .unwrap()
        .into_inner()
        .output_path;
    let name = std::path::Path::new(&path).file_name().unwrap();
    let file = sandbox.state.join("output").join(name);
    crate::support::eventually("more than the limit is written", || {
        file.metadata().ok().filter(|file| file.len() > 50 << 20)
    })
    .await;
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
    assert!(blocks < 3 << 20, "{blocks} bytes on disk");
    let reader = sandbox.attach(&id, 0);
    let killer = async {
        sandbox.signal(&id, Signal::Kill(true)).await;
    };
    let (ran, ()) = tokio::join!(reader, killer);
    assert_eq!(ran.end().0, End::Killed);
    assert!(!ran.gaps.is_empty());
}

#[tokio::test]
async fn bytes_that_are_no_text_are_passed_on_and_read_as_text() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("bytes");
    let mut client = sandbox.client().await;
    let command = "printf 'a\\xff\\xfe\\x00b\\n'; printf 'error\\n' >&2";
    let path = client
        .exec(request(&id, command))
        .await
        .unwrap()
        .into_inner()
        .output_path;
    let ran = sandbox.attach(&id, 0).await;
    assert_eq!(ran.output, b"a\xff\xfe\0b\nerror\n");
    assert_eq!(sandbox.attach(&id, 6).await.text(), "error\n");
    assert_eq!(sandbox.attach(&id, 1000).await.text(), "");
    let answer = client
        .read(ReadRequest {
            path,
            ..ReadRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let Some(Content::Text(text)) = answer.content else {
        panic!("{answer:?}")
    };
    assert_eq!(text.text, "a\u{fffd}\u{fffd}\0b\nerror\n");
}

#[tokio::test]
async fn output_that_a_full_disk_has_no_room_for_is_told_as_lost() {
    // Only root may mount the small disk.
    if !crate::support::is_root() {
        return;
    }
    let sandbox = Sandbox::prepare(As::Caller, &[], |sandbox| {
        std::fs::create_dir_all(&sandbox.state).unwrap();
        let state = sandbox.state.display().to_string();
        crate::support::host(
            "mount",
            &["-t", "tmpfs", "-o", "size=4m", "tmpfs", &state],
            &sandbox.project,
        );
    })
    .await;
    let total = 10_000_000;
    let id = unique("full");
    let command = format!("head -c {total} /dev/zero | tr '\\0' x");
    let ran = sandbox.run_as(&id, request(&id, &command)).await;
    // Nothing at all fits any more.
    let none = sandbox.run("echo nothing of this").await;
    let later = sandbox.attach(&id, 5_000_000).await;
    let state = sandbox.state.display().to_string();
    crate::support::host("umount", &["-l", &state], &sandbox.project);
    for (ran, from, total) in [(&ran, 0, total), (&none, 0, 16), (&later, 5_000_000, total)] {
        ran.ok();
        let outcome = ran.outcome.as_ref().unwrap();
        assert_eq!(outcome.output_bytes, total);
        assert_eq!(ran.gaps.len(), 1, "{:?}", ran.gaps);
        let (offset, lost) = ran.gaps[0];
        assert_eq!(offset, from + ran.bytes);
        assert_eq!(offset + lost, total);
        if from == 0 {
            assert_eq!(
                outcome.message,
                format!("{lost} bytes of output could not be kept: no space left on the disk")
            );
        }
    }
    assert!(ran.bytes > 1 << 20, "{} bytes", ran.bytes);
    assert_eq!(none.bytes, 0);
}

#[tokio::test]
async fn the_oldest_released_output_goes_when_all_together_is_too_much() {
    let limit = (4 << 20).to_string();
    let sandbox = Sandbox::start(As::Caller, &["--output-total-bytes", &limit]).await;
    let mut client = sandbox.client().await;
    let mut files = Vec::new();
    for number in 0..6 {
        let id = unique("megabyte");
        let command = format!("head -c 1000000 /dev/zero | tr '\\0' {number}");
        let ran = sandbox.run_as(&id, request(&id, &command)).await;
        let path = ran.outcome.unwrap().output_path;
        let name = std::path::Path::new(&path).file_name().unwrap().to_owned();
        files.push((id, sandbox.state.join("output").join(name)));
    }
    // Unreleased output stays, however much it is.
    assert!(files.iter().all(|(_, file)| file.exists()));
    // The third is released first; the order of writing decides among those that are.
    for number in [2, 0, 1, 3, 4] {
        let execution_ids = vec![files[number].0.clone()];
        client
            .release(mooring_wire::sandbox::ReleaseRequest { execution_ids })
            .await
            .unwrap();
    }
    let stay = || -> Vec<bool> { files.iter().map(|(_, file)| file.exists()).collect() };
    crate::support::eventually("the oldest released ones are gone", || {
        (stay() == [false, false, false, true, true, true]
            || stay() == [false, true, false, true, true, true])
        .then_some(())
    })
    .await;
    // One that was not released is there to the last byte.
    let text = sandbox.attach(&files[5].0, 0).await;
    assert_eq!((text.bytes, text.gaps.len()), (1_000_000, 0));
}
