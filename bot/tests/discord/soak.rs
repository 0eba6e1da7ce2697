//! Many threads, random kills of the bot and of the real harnesses, and faults of the
//! wire, with a fixed seed: everything is answered once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mooring_discord_standin::fault::{DispatchFault, DispatchFaultKind, Fault, FaultKind};
use mooring_discord_standin::gateway::{GatewayAct, act_on_gateway};
use mooring_discord_standin::world::TEXT;
use mooring_tests::project::{Project, kill};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::office::{self, Office};
use crate::stage::Stage;

/// How much of it.
struct Size {
    workspaces: usize,
    threads: usize,
    messages: usize,
    kills: usize,
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A message that was written.
struct Said {
    message: u64,
    thread: u64,
    place: usize,
    number: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_with_kills_and_faults_answers_every_message_once() {
    let seed = number("SEED", 20_260_101) as u64;
    println!("SEED={seed}");
    let size = Size {
        workspaces: number("SOAK_WORKSPACES", 2),
        threads: number("SOAK_THREADS", 8),
        messages: number("SOAK_MESSAGES", 100),
        kills: number("SOAK_KILLS", 8),
    };
    // Each is looked for this long: the longest pause of a retry is 20 s.
    let bound = Duration::from_secs(120 + size.messages as u64 / 2);
    let mut random = StdRng::seed_from_u64(seed);
    let office = Office::built(TEXT, ", whenBusy: Queue", "model: \"\"").await;
    let (mut stage, first, grace) = (office.stage, office.project, office.grace);
    stage.sweep = 2;
    let mut places = vec![(stage.channel, Arc::new(first))];
    for n in 1..size.workspaces {
        let (channel, role) = stage.standin.act(|world| {
            let role = world.guilds[&stage.guild].members[&stage.ada].roles[0];
            (
                world.add_channel(stage.guild, &format!("place-{n}"), TEXT),
                role,
            )
        });
        let project =
            Project::with_spec(&office::spec(&stage, channel, role, grace, "model: \"\""));
        project.start().await;
        let address = format!("unix:{}", project.socket().unwrap().display());
        stage.workspace(
            &format!("place-{n}"),
            channel,
            &address,
            ", whenBusy: Queue",
        );
        places.push((channel, Arc::new(project)));
    }
    stage.start().await;
    let threads: Vec<(u64, usize)> = (0..size.threads)
        .map(|n| {
            let place = n % places.len();
            let text = format!("<@{}> run echo t{n} >> side.txt", stage.me);
            (stage.post(places[place].0, &text), place)
        })
        .collect();
    let kill_every = size.messages / (size.kills + 1);
    let mut said = Vec::new();
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..size.messages {
        fault(&stage, &mut random);
        let (thread, place) = threads[random.random_range(0..threads.len())];
        // A thread opens when the bot has seen its message.
        let opened = stage.standin.until(bound, |world| {
            world.channels.contains_key(&thread).then_some(())
        });
        assert!(
            opened.await.is_some(),
            "{thread} is not opened: {}",
            stage.describe()
        );
        let text = format!("run echo m{number} >> side.txt");
        said.push(Said {
            message: stage.post(thread, &text),
            thread,
            place,
            number,
        });
        if number % kill_every == kill_every - 1 && number / kill_every < size.kills {
            if random.random_bool(0.5) {
                stage.kill().await;
                tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
                stage.launch().await;
            } else {
                let project = places[random.random_range(0..places.len())].1.clone();
                for pid in project.harnesses() {
                    kill(pid);
                }
                let pause = Duration::from_millis(random.random_range(0..1_000));
                starts.spawn(async move {
                    tokio::time::sleep(pause).await;
                    project.start().await;
                });
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..40))).await;
    }
    // The weather clears; whatever is left must come to its end.
    stage.standin.act(|world| world.clear_faults());
    starts.join_all().await;
    let describe = |said: &Said| {
        let rows = office::rows(
            &places[said.place].1,
            "SELECT key, kind, attempts, message_id, closed FROM mooring_outbox",
        );
        format!("{}\n{rows:#?}", stage.describe())
    };
    let begun = Instant::now();
    for said in &said {
        let line = format!("`run echo m{} >> side.txt`: ok", said.number);
        let found = stage
            .standin
            .until(bound.saturating_sub(begun.elapsed()), |world| {
                let holds = |text: &str| text.contains(&line);
                let found = world
                    .messages(said.thread)
                    .filter(|message| message.author == stage.me && holds(&message.content));
                Some(found.count()).filter(|count| *count > 0)
            });
        let answers = found.await;
        assert_eq!(
            answers,
            Some(1),
            "m{} in {}: {}",
            said.number,
            said.thread,
            describe(said)
        );
    }
    for (at, (_, project)) in places.iter().enumerate() {
        office::settled(project, || stage.describe()).await;
        office::check_records(project);
        // Each command ran once.
        let side = project.read("side.txt");
        let mut ran: Vec<&str> = side.lines().collect();
        ran.sort_unstable();
        let of_threads = (0..threads.len()).filter(|n| threads[*n].1 == at);
        let of_messages = said.iter().filter(|said| said.place == at);
        let mut wanted: Vec<String> = of_threads
            .map(|n| format!("t{n}"))
            .chain(of_messages.map(|said| format!("m{}", said.number)))
            .collect();
        wanted.sort_unstable();
        assert_eq!(ran, wanted);
    }
    // No orphan anchors: as many as there were runs, and each of them ended.
    // Cursors are at the end.
    for (thread, place) in &threads {
        let project = &places[*place].1;
        let own = stage.own(*thread);
        let ended = own
            .iter()
            .filter(|message| message.content.contains("-# done"));
        let anchors = format!(
            "SELECT count(*) FROM mooring_outbox WHERE kind = 'anchor' AND thread_id = '{thread}'"
        );
        assert_eq!(
            office::rows(project, &anchors),
            [ended.count().to_string()],
            "one message for each run in {thread}: {}",
            stage.describe()
        );
        assert!(
            own.iter()
                .all(|message| !message.content.starts_with("-# ⏳"))
        );
        let last = said
            .iter()
            .filter(|said| said.thread == *thread)
            .map(|said| said.message)
            .max()
            .unwrap_or(*thread);
        let cursor = format!("SELECT cursor FROM mooring_thread WHERE thread_id = '{thread}'");
        while office::rows(project, &cursor)[0].parse::<u64>().unwrap() < last {
            assert!(begun.elapsed() < bound, "the cursor of {thread} stays back");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    println!("settled after {:.1} s", begun.elapsed().as_secs_f64());
    stage.check().await;
}

/// Sometimes something goes wrong.
fn fault(stage: &Stage, random: &mut StdRng) {
    let kinds = [
        FaultKind::CutBefore,
        FaultKind::CommitThenCut,
        FaultKind::Delay { ms: 150 },
        FaultKind::Status {
            status: 502,
            body: serde_json::json!({}),
        },
        FaultKind::CommitThenStatus { status: 500 },
    ];
    match random.random_range(0..10) {
        0..3 => {
            let kind = kinds[random.random_range(0..kinds.len())].clone();
            let method = ["POST", "PATCH", "GET"][random.random_range(0..3)];
            let fault = Fault {
                method: method.into(),
                path: "/messages".into(),
                skip: 0,
                times: 1,
                kind,
            };
            stage.standin.act(|world| world.faults(fault));
        }
        3..5 => {
            let kind = [
                DispatchFaultKind::Duplicate,
                DispatchFaultKind::Swap,
                DispatchFaultKind::Drop,
                DispatchFaultKind::Malform,
                DispatchFaultKind::Cut,
            ][random.random_range(0..5)]
            .clone();
            let fault = DispatchFault {
                event: "MESSAGE_CREATE".into(),
                skip: 0,
                times: 1,
                kind,
            };
            stage.standin.act(|world| world.dispatch_faults(fault));
        }
        5 if random.random_bool(0.3) => {
            let act = [GatewayAct::Cut, GatewayAct::Reconnect, GatewayAct::Zombie]
                [random.random_range(0..3)];
            stage.standin.act(|world| act_on_gateway(world, act));
        }
        _ => {}
    }
}
