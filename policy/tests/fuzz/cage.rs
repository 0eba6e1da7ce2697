//! A namespace with a root of its own: no network, no processes but its own, a
//! read-only system, and canary commands that write down how they were called.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The home folder of scripts.
pub const HOME: &str = "/home/agent";

/// Real programs that scripts may use beside the canaries.
const TOOLS: [&str; 18] = [
    "env", "timeout", "nice", "nohup", "setsid", "stdbuf", "xargs", "cat", "echo", "printf",
    "true", "false", "sort", "find", "sed", "head", "bash", "sh",
];

/// Canary commands.
pub const CANARIES: [&str; 4] = ["c1", "c2", "c3", "c4"];

/// Seconds that one script may take.
const SECONDS: &str = "2";

/// Becomes the root of the namespace and runs what is in `/driver`.
const SETUP: &str = r#"
set -e
root=$1
mount -t tmpfs -o size=64m tmpfs "$root"
mkdir -p "$root"/usr "$root"/proc "$root"/dev "$root"/in "$root"/log "$root"/tools "$root"/w "$root"/home/agent "$root"/tmp
mount --bind /usr "$root"/usr
mount -o remount,bind,ro "$root"/usr
mount --bind "$2" "$root"/in
mount -o remount,bind,ro "$root"/in
mount --bind "$3" "$root"/log
for name in bin lib lib64 lib32; do
    if [ -e "/usr/$name" ]; then ln -s "usr/$name" "$root/$name"; fi
done
mount -t proc proc "$root"/proc 2>/dev/null || { mount --rbind /proc "$root"/proc; }
: > "$root"/dev/null
mount --bind /dev/null "$root"/dev/null
ln -s /proc/self/fd "$root"/dev/fd
ln -s /proc/self/fd/0 "$root"/dev/stdin
ln -s /proc/self/fd/1 "$root"/dev/stdout
for tool in $4; do
    if [ -e "/usr/bin/$tool" ]; then ln -s "/usr/bin/$tool" "$root/tools/$tool"; fi
done
cp "$2"/canary "$root"/tools/c1
chmod 755 "$root"/tools/c1
for canary in c2 c3 c4; do cp "$root"/tools/c1 "$root"/tools/$canary; done
cp "$2"/driver "$root"/driver
exec chroot "$root" /usr/bin/bash /driver "$5" "$6"
"#;

/// One `printf`, so that one write: canaries run at the same time.
const CANARY: &str =
    "#!/usr/bin/dash\nprintf '%s\\037' \"${0##*/}\" \"$@\" '\u{1e}' >> \"$CANARY_LOG\"\n";

const DRIVER: &str = r#"
export PATH=/tools HOME=/home/agent
ulimit -f 2048
ulimit -t 20
for ((i = 0; i < $1; i++)); do
    cd /w || exit 1
    CANARY_LOG=/log/$i /usr/bin/timeout -s KILL $2 /usr/bin/bash /in/$i < /dev/null > /dev/null 2>&1
done
exit 0
"#;

/// Whether this machine lets us make such a namespace.
pub fn possible() -> Result<(), String> {
    run(&["c1 probe".to_owned()]).and_then(|runs| {
        if runs[0] == [vec!["c1".to_owned(), "probe".to_owned()]] {
            Ok(())
        } else {
            Err(format!("a canary did not run in it: {runs:?}"))
        }
    })
}

/// Runs each script; for each, the words of every canary command that ran.
pub fn run(scripts: &[String]) -> Result<Vec<Vec<Vec<String>>>, String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = |name: &str| -> Result<std::path::PathBuf, String> {
        let path = place.path().join(name);
        std::fs::create_dir(&path).map_err(|error| error.to_string())?;
        Ok(path)
    };
    let (root, input, log) = (folder("root")?, folder("in")?, folder("log")?);
    for (index, script) in scripts.iter().enumerate() {
        write(&input.join(index.to_string()), script)?;
    }
    write(&input.join("driver"), DRIVER)?;
    write(&input.join("canary"), CANARY)?;
    let output = Command::new("unshare")
        .args([
            "-U",
            "-r",
            "-n",
            "-p",
            "-m",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            SETUP,
            "setup",
        ])
        .args([&root, &input, &log])
        .arg(TOOLS.join(" "))
        .args([&scripts.len().to_string(), SECONDS])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("unshare: {error}"))?;
    // A script may kill the driver; those behind it then ran nothing. Without a
    // first log the namespace itself did not come to be.
    let started = std::fs::read_dir(&log).is_ok_and(|mut logs| logs.next().is_some());
    if !output.status.success() && !started {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok((0..scripts.len())
        .map(|index| calls(&log.join(index.to_string())))
        .collect())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn calls(log: &Path) -> Vec<Vec<String>> {
    let bytes = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .split("\u{1e}\u{1f}")
        .filter(|call| !call.is_empty())
        .map(|call| {
            let mut words: Vec<String> = call.split('\u{1f}').map(str::to_owned).collect();
            words.pop(); // after the last separator
            words
        })
        .collect()
}
