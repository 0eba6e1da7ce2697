//! Many threads, random kills of the bot, harnesses that go away, and faults of the
//! wire, with a fixed seed: everything is answered once.

use std::sync::Arc;
use std::time::Duration;

use mooring_discord_standin::fault::{DispatchFault, DispatchFaultKind, Fault, FaultKind};
use mooring_discord_standin::gateway::{GatewayAct, act_on_gateway};
use mooring_discord_standin::world::TEXT;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::double::Double;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_with_kills_and_faults_answers_every_message_once() {
    let seed = number("SEED", 20_260_101) as u64;
    println!("SEED={seed}");
    let size = Size {
        workspaces: number("SOAK_WORKSPACES", 3),
        threads: number("SOAK_THREADS", 12),
        messages: number("SOAK_MESSAGES", 160),
        kills: number("SOAK_KILLS", 4),
    };
    let mut random = StdRng::seed_from_u64(seed);
    let mut stage = Stage::set(TEXT, "").await;
    stage.sweep = 2;
    let mut places = vec![(stage.channel, stage.double.clone())];
    for n in 1..size.workspaces {
        let channel = stage
            .standin
            .act(|world| world.add_channel(stage.guild, &format!("place-{n}"), TEXT));
        let double = Double::start().await;
        stage.workspace(&format!("place-{n}"), channel, &double.address, "");
        places.push((channel, double));
    }
    stage.start().await;
    let mut threads: Vec<(u64, Arc<Double>)> = Vec::new();
    for n in 0..size.threads {
        let (channel, double) = &places[n % places.len()];
        let thread = stage.post(*channel, &format!("<@{}> thread {n}", stage.me));
        threads.push((thread, double.clone()));
    }
    let kill_every = size.messages / (size.kills + 1);
    let mut said = Vec::new();
    for n in 0..size.messages {
        let (thread, double) = threads[random.random_range(0..threads.len())].clone();
        fault(&stage, &mut random, &double);
        let opened = stage
            .standin
            .look(|world| world.channels.contains_key(&thread));
        if opened {
            said.push((stage.post(thread, &format!("m{n}")), thread, double, n));
        }
        if n % kill_every == kill_every - 1 && n / kill_every < size.kills {
            stage.kill().await;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
            stage.launch().await;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..40))).await;
    }
    // The weather clears; whatever is left must come to its end.
    stage.standin.act(|world| world.clear_faults());
    for (_, double) in &places {
        double.act(|state| state.away = false);
    }
    assert!(said.len() > size.messages / 2);
    for (message, thread, double, n) in &said {
        double
            .until(&format!("message {message} is admitted"), |state| {
                state.input(&message.to_string()).map(|_| ())
            })
            .await;
        let answers = stage
            .until(&format!("an answer to m{n}"), |world| {
                let answer = format!("answer to m{n}\n");
                let found = world
                    .messages(*thread)
                    .filter(|m| m.author == stage.me && m.content.starts_with(&answer))
                    .count();
                (found > 0).then_some(found)
            })
            .await;
        assert_eq!(answers, 1, "m{n} in {thread}: {}", stage.describe());
    }
    for (_, double) in &places {
        double
            .until("every row is closed", |state| state.settled().then_some(()))
            .await;
    }
    // No orphan anchors: each is of one run, and ended. Cursors are at the end.
    for (thread, double) in &threads {
        let own = stage.own(*thread);
        let runs = double.look(|state| {
            state
                .inputs
                .iter()
                .filter(|input| input.thread.thread_id == thread.to_string())
                .count()
        });
        assert_eq!(
            own.len(),
            runs,
            "one message for each run in {thread}: {}",
            stage.describe()
        );
        assert!(
            own.iter()
                .all(|message| !message.content.starts_with("-# ⏳"))
        );
        let last = said
            .iter()
            .filter(|(_, at, ..)| at == thread)
            .map(|(message, ..)| *message)
            .max();
        double
            .until("the cursor at the end", |state| {
                let cursor: u64 = state.threads[&thread.to_string()]
                    .cursor
                    .parse()
                    .unwrap_or(0);
                (cursor >= last.unwrap_or(*thread)).then_some(())
            })
            .await;
    }
    stage.check().await;
}

/// Sometimes something goes wrong.
fn fault(stage: &Stage, random: &mut StdRng, double: &Double) {
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
    match random.random_range(0..12) {
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
        6 => double.act(|state| state.cut_submits += 1),
        7 => double.break_streams(),
        8 => double.act(|state| state.away = !state.away),
        _ => {}
    }
}
