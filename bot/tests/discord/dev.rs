//! `mooring dev --discord`: one program, one token, no cluster.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use mooring_discord_standin::world::{Overwrite, TEXT};
use mooring_tests::project::{Project, kill, told};

use crate::office::{self, Office};
use crate::stage::{BOUND, Stage, TOKEN};

/// A running `mooring dev --discord`.
struct Dev {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Vec<String>,
}

impl Dev {
    fn start(stage: &Stage, project: &Project, arguments: &[&str]) -> Dev {
        let mut child = project
            .command(arguments)
            .env("DISCORD_TOKEN", TOKEN)
            .env("DISCORD_REST", stage.standin.rest())
            .env("DISCORD_GATEWAY", stage.standin.gateway())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Dev {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits for a line that holds the text.
    fn says(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(BOUND) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => self.said.push(line),
                Err(_) => panic!("never said {text:?}: {:#?}", self.said),
            }
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const DEV: [&str; 3] = ["dev", "--discord", "workspace.yaml"];

#[tokio::test(flavor = "multi_thread")]
async fn a_person_with_a_token_talks_in_discord_and_a_killed_harness_comes_back() {
    let office = Office::built(TEXT, "", "model: \"\"").await;
    let stage = &office.stage;
    let mut dev = Dev::start(stage, &office.project, &DEV);
    dev.says("Connected");
    let thread = stage.mention("run echo hello");
    office.says(thread, "`run echo hello`: ok").await;
    // The client starts the harness again that it has lost.
    office.kill_harness();
    stage.post(thread, "run echo after-the-kill");
    office.says(thread, "`run echo after-the-kill`: ok").await;
    // Ctrl-C ends the bot and nothing else; what is said meanwhile is not lost.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(dev.child.id() as i32),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    assert!(dev.child.wait().unwrap().success());
    assert_eq!(office.project.harnesses().len(), 1);
    stage.post(thread, "run echo while-it-was-away");
    let mut dev = Dev::start(stage, &office.project, &DEV);
    dev.says("Connected");
    office
        .says(thread, "`run echo while-it-was-away`: ok")
        .await;
    office.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_said_with_the_link_that_gives_it() {
    let office = Office::built(TEXT, "", "model: \"\"").await;
    let stage = &office.stage;
    stage.standin.act(|world| {
        let over = Overwrite {
            id: stage.me,
            allow: 0,
            deny: 1 << 38,
            member: true,
        };
        let channel = world.channels.get_mut(&stage.channel).unwrap();
        channel.overwrites.push(over);
    });
    let mut dev = Dev::start(stage, &office.project, &DEV);
    let line = dev.says("MissingPermission");
    assert!(line.contains("lacks Send Messages in Threads"), "{line}");
    assert!(
        line.contains("oauth2/authorize?client_id=") && line.contains("permissions=309237763136"),
        "{line}"
    );
    stage.standin.act(|world| {
        world
            .channels
            .get_mut(&stage.channel)
            .unwrap()
            .overwrites
            .clear();
        world.channel_changed(stage.channel);
    });
    dev.says("The channel can be used now");
    drop(dev);
    office.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_at_the_start_is_said_with_the_way_out() {
    let stage = Stage::set(TEXT, "").await;
    let nobody = "models: [{name: main, provider: rehearsal}]\n";
    let discord = "discord: {guildId: \"1\", channelId: \"2\"}\n";
    let (role, grace) = (1, 2);
    let whole = office::spec(&stage, stage.channel, role, grace, "model: \"\"");
    for (spec, token, privileged, expected) in [
        (
            None,
            TOKEN,
            true,
            "the default Workspace has no place in Discord",
        ),
        (
            Some(nobody.to_owned()),
            TOKEN,
            true,
            "has no spec.discord; add to its spec",
        ),
        (
            Some(format!("{nobody}{discord}")),
            TOKEN,
            true,
            "names nobody of Discord",
        ),
        (Some(whole.clone()), "", true, "DISCORD_TOKEN is not set"),
        (
            Some(whole.clone()),
            "wrong",
            true,
            "Discord refuses the token",
        ),
        (
            Some(whole),
            TOKEN,
            false,
            "switch on \"Message Content Intent\"",
        ),
    ] {
        stage.standin.act(|world| {
            let application = world.applications.values_mut().next().unwrap();
            application.privileged = if privileged { 1 << 15 } else { 0 };
        });
        let (project, arguments) = match &spec {
            Some(spec) => (Project::with_spec(spec), &DEV[..]),
            None => (Project::new(), &DEV[..2]),
        };
        let mut child = project
            .command(arguments)
            .env("DISCORD_TOKEN", token)
            .env("DISCORD_REST", stage.standin.rest())
            .env("DISCORD_GATEWAY", stage.standin.gateway())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > BOUND {
                kill(child.id());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let mut errors = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(1),
            "{expected}: {errors}{}",
            told(&output)
        );
        assert!(errors.contains(expected), "{expected}: {errors}");
        assert!(!errors.contains(TOKEN), "{errors}");
    }
}
