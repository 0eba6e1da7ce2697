//! A terminal with a screen: a pseudo-terminal that `script` makes, and a parser
//! that keeps what a person would see.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::project::{Project, program};

/// How long anything may take until it is seen.
const BOUND: Duration = Duration::from_secs(180);

pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// `mooring` with these arguments in a terminal of that size.
    pub fn open(project: &Project, arguments: &str, rows: u16, columns: u16) -> Terminal {
        let line = format!(
            "stty rows {rows} cols {columns}; exec {} {arguments}",
            program().display()
        );
        let mut command = project.command_of("script", &["-qefc", &line, "/dev/null"]);
        let mut child = command
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 1_000)));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal {
            child,
            keys,
            screen,
        }
    }

    /// What is on the screen, line by line.
    pub fn lines(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap();
        let text = screen.screen().contents();
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Column of the cursor, from 0.
    pub fn cursor_column(&self) -> u16 {
        self.screen.lock().unwrap().screen().cursor_position().1
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen shows what `seen` looks for.
    pub fn until(&mut self, what: &str, seen: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if seen(&text) {
                return text;
            }
            assert!(
                begun.elapsed() < BOUND,
                "waited for {what} in vain:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn shows(&mut self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits for the end of the program.
    pub fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                begun.elapsed() < BOUND,
                "the program does not end:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
