//! The HTTPS allow-list: `CONNECT` to a host that the policy's `egress` table
//! permits, and to no other.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use mooring_crds::Verdict;
use mooring_policy::{Decision, decide_connection};
use mooring_wire::tunnel::{Connection, Direction, carry};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{
    Boundary,
    ask::{self, Asked},
    book::{Meter, Place},
    credential::Origin,
    hello::{self, BadHello},
    outside::{Refusal, host_name},
    refusal::{Answer, write},
};

/// How long a client may take from the answer to its server name.
const HELLO_PATIENCE: Duration = Duration::from_secs(30);
/// A connection on which nothing moves for so long ends.
const IDLE: Duration = Duration::from_secs(300);
/// A TLS alert (RFC 8446, 6): fatal, unrecognized_name.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// Serves one `CONNECT`; `rest` is what the client sent after its head.
pub async fn serve(
    boundary: &Arc<Boundary>,
    origin: Origin,
    (host, port): (&str, u16),
    rest: Bytes,
    connection: Connection,
) {
    let mut rest = BytesMut::from(&rest[..]);
    match open(boundary, &origin, (host, port), &mut rest, &connection).await {
        Ok(open) => forward(boundary, &origin, host, rest.freeze(), connection, open).await,
        Err(answer) => {
            boundary.credentials.note(&origin, answer.text.clone());
            answer.send(&connection).await;
        }
    }
}

/// A connection that may go on.
struct Open {
    outside: TcpStream,
    meter: Meter,
    /// The longest that it may last.
    longest: Duration,
    place: Place,
}

async fn open(
    boundary: &Arc<Boundary>,
    origin: &Origin,
    (host, port): (&str, u16),
    rest: &mut BytesMut,
    connection: &Connection,
) -> Result<Open, Answer> {
    let workspace = boundary.source.current();
    let book = &boundary.book;
    let mut decision = decide_connection(&workspace.rules, host, port);
    let row = |decision: &Decision| {
        let verdict = decision.verdict.to_string();
        book.asked(origin, host, port, &verdict, &decision.rule.to_string())
    };
    let refuse = |decision: &Decision, answer: Answer| {
        book.refused(&row(decision), &answer.text);
        answer
    };
    if let Err(error) = host_name(host) {
        return Err(refuse(&decision, answer(&error)));
    }
    if decision.verdict == Verdict::Deny {
        let answer = Answer::new(403, denied(&decision, host, port));
        return Err(refuse(&decision, answer));
    }
    let limits = &workspace.spec.sandbox.egress_limits;
    let place = book.enter(limits.connections).ok_or_else(|| {
        let text = format!(
            "{host}:{port} was not connected to: commands have {} connections open already, \
             the most that the Workspace allows (sandbox.egressLimits.connections)",
            limits.connections
        );
        refuse(&decision, Answer::new(429, text))
    })?;
    let daily = limits.bytes().unwrap_or(0);
    if !book.has_left(daily) {
        return Err(refuse(&decision, spent(host, port, &limits.bytes_daily)));
    }
    if decision.verdict == Verdict::Ask {
        match ask::ask(boundary, origin, (host, port), rest, connection).await {
            Asked::Allowed(now) => decision = now,
            Asked::Refused(now, text) => return Err(refuse(&now, Answer::new(403, text))),
        }
    }
    let outside = boundary
        .outside
        .connect(host, port)
        .await
        .map_err(|error| refuse(&decision, answer(&error)))?;
    Ok(Open {
        outside,
        meter: book.made(&row(&decision)),
        longest: limits.longest().unwrap_or(Duration::ZERO),
        place,
    })
}

/// What whoever was refused has to know.
pub fn denied(decision: &Decision, host: &str, port: u16) -> String {
    let by = match decision.rule.pattern.as_str() {
        "" => "no rule of the Workspace's egress table allows it".to_owned(),
        _ => format!("it is denied by {}", decision.rule),
    };
    format!(
        "{host}:{port} cannot be reached from the sandbox: {by}. The rule that would allow \
         it, in the Workspace's policy: egress: {{\"{host}:{port}\": allow}}"
    )
}

fn spent(host: &str, port: u16, most: &str) -> Answer {
    Answer::new(
        429,
        format!(
            "{host}:{port} was not connected to: commands have sent and fetched the {most} of \
             this day that the Workspace allows (sandbox.egressLimits.bytesDaily)"
        ),
    )
}

fn answer(refusal: &Refusal) -> Answer {
    let status = match refusal {
        Refusal::Host { .. } | Refusal::Inside { .. } => 403,
        Refusal::Unknown { .. } | Refusal::Unreachable { .. } => 502,
    };
    Answer::new(status, refusal.to_string())
}

/// Why a connection that was made ended before its time.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("{0}")]
    Hello(#[from] BadHello),
    #[error("the client began no TLS in {} s", HELLO_PATIENCE.as_secs())]
    Silent,
    #[error("nothing moved for {} s", IDLE.as_secs())]
    Idle,
    #[error("it lasted longer than the Workspace allows (sandbox.egressLimits.time)")]
    Time,
    #[error("the day's bytes are used up (sandbox.egressLimits.bytesDaily)")]
    Bytes,
    #[error("{0}")]
    Io(#[from] io::Error),
}

async fn forward(
    boundary: &Arc<Boundary>,
    origin: &Origin,
    host: &str,
    rest: Bytes,
    connection: Connection,
    open: Open,
) {
    let Open {
        mut outside,
        meter,
        longest,
        place: _place,
    } = open;
    let carried = tokio::select! {
        carried = pass(boundary, host, rest, &connection, &mut outside, &meter) => carried,
        () = idle(&meter) => Err(Cut::Idle),
        () = tokio::time::sleep(longest) => Err(Cut::Time),
    };
    let Err(cut) = carried else {
        meter.outcome("done");
        return;
    };
    let text = cut.to_string();
    meter.outcome(&text);
    match cut {
        Cut::Hello(_) => {
            // No client shows more than this; the model is told at the command's end.
            boundary.credentials.note(origin, format!("{host}: {text}"));
            let alert = async {
                write(&connection, &UNRECOGNIZED_NAME).await?;
                connection.finish().await
            };
            let _ = tokio::time::timeout(HELLO_PATIENCE, alert).await;
        }
        Cut::Time | Cut::Bytes => boundary.credentials.note(origin, format!("{host}: {text}")),
        Cut::Silent | Cut::Idle | Cut::Io(_) => {}
    }
    connection.reset(text);
}

/// Both directions, from the answer to the end.
async fn pass(
    boundary: &Arc<Boundary>,
    host: &str,
    rest: Bytes,
    connection: &Connection,
    outside: &mut TcpStream,
    meter: &Meter,
) -> Result<(), Cut> {
    let begin = async {
        write(connection, b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        Ok::<_, Cut>(hello::read(rest, connection, host).await?)
    };
    let said = tokio::time::timeout(HELLO_PATIENCE, begin)
        .await
        .map_err(|_| Cut::Silent)??;
    outside.write_all(&said).await?;
    meter.sent(said.len());
    let limits = boundary.source.current().spec.sandbox.egress_limits.bytes();
    let daily = limits.unwrap_or(0);
    let full = std::sync::atomic::AtomicBool::new(false);
    let count = |direction: Direction, bytes: usize| -> io::Result<()> {
        match direction {
            Direction::In => meter.received(bytes),
            Direction::Out => meter.sent(bytes),
        }
        if boundary.book.has_left(daily) {
            return Ok(());
        }
        full.store(true, std::sync::atomic::Ordering::Relaxed);
        Err(io::ErrorKind::QuotaExceeded.into())
    };
    let carried = carry(outside, connection, count).await;
    match carried {
        _ if full.into_inner() => Err(Cut::Bytes),
        // The command's own end of it: programs that have what they want close
        // without taking the rest, which TCP tells as a reset.
        Err(_) if connection.was_reset() => Ok(()),
        carried => Ok(carried?),
    }
}

/// Returns when nothing has moved for long.
async fn idle(meter: &Meter) {
    let mut before = meter.moved();
    loop {
        tokio::time::sleep(IDLE).await;
        let now = meter.moved();
        if now == before {
            return;
        }
        before = now;
    }
}
