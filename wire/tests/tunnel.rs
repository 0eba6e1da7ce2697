//! The tunnel's two sides against each other, and against a hostile one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use mooring_wire::sandbox::{TunnelFrame, tunnel_frame::Frame};
use mooring_wire::tunnel::{Connection, Mux, Outgoing, PIECE, Side, Violation, WINDOW, carry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

const BOUND: Duration = Duration::from_secs(60);

/// Both sides of a tunnel, joined, and what the taking side is given.
fn joined(most: usize) -> (Mux, Mux, mpsc::UnboundedReceiver<Connection>) {
    let (opens, from_opens) = Mux::new(Side::Opens, most);
    let (takes, from_takes) = Mux::new(Side::Takes, most);
    let (given, taken) = mpsc::unbounded_channel();
    move_frames(from_opens, takes.clone(), Some(given));
    move_frames(from_takes, opens.clone(), None);
    (opens, takes, taken)
}

fn move_frames(mut from: Outgoing, to: Mux, given: Option<mpsc::UnboundedSender<Connection>>) {
    tokio::spawn(async move {
        while let Some(frame) = from.next().await {
            if let Some(connection) = to.take(frame).unwrap()
                && let Some(given) = &given
            {
                let _ = given.send(connection);
            }
        }
    });
}

async fn pair(
    opens: &Mux,
    taken: &mut mpsc::UnboundedReceiver<Connection>,
) -> (Connection, Connection) {
    let near = opens.open().unwrap();
    let far = tokio::time::timeout(BOUND, taken.recv())
        .await
        .unwrap()
        .unwrap();
    (near, far)
}

fn frame(connection: u64, frame: Frame) -> TunnelFrame {
    TunnelFrame {
        connection,
        frame: Some(frame),
    }
}

#[tokio::test]
async fn both_directions_carry_all_bytes_in_order_and_end_on_their_own() {
    let (opens, _takes, mut taken) = joined(8);
    let (near, far) = pair(&opens, &mut taken).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    let expected = sent.clone();
    let (mut near_read, mut near_write) = tokio::io::split(near);
    let (mut far_read, mut far_write) = tokio::io::split(far);
    let upload = async {
        near_write.write_all(&sent).await.unwrap();
        near_write.shutdown().await.unwrap();
    };
    let echo = async {
        let mut all = Vec::new();
        far_read.read_to_end(&mut all).await.unwrap();
        far_write.write_all(&all).await.unwrap();
        far_write.shutdown().await.unwrap();
    };
    let download = async {
        let mut all = Vec::new();
        near_read.read_to_end(&mut all).await.unwrap();
        all
    };
    let ((), (), got) = tokio::time::timeout(BOUND, async { tokio::join!(upload, echo, download) })
        .await
        .unwrap();
    assert!(got == expected);
}

#[tokio::test]
async fn a_connection_that_nobody_reads_stalls_no_other() {
    let (opens, _takes, mut taken) = joined(8);
    let (slow, unread) = pair(&opens, &mut taken).await;
    let stuck = tokio::spawn(async move {
        loop {
            slow.room().await.unwrap();
            slow.push(&[0; 1024]).unwrap();
        }
    });
    let (mut near, mut far) = pair(&opens, &mut taken).await;
    let bytes = vec![3; 2_000_000];
    let moved = async {
        let write = async {
            far.write_all(&bytes).await.unwrap();
            far.shutdown().await.unwrap();
        };
        let mut all = Vec::new();
        tokio::join!(write, async { near.read_to_end(&mut all).await.unwrap() });
        all
    };
    assert_eq!(
        tokio::time::timeout(BOUND, moved).await.unwrap().len(),
        2_000_000
    );
    assert!(!stuck.is_finished());
    // What it holds is bounded by its window.
    let mut held = 0;
    while let Ok(Ok(Some(piece))) =
        tokio::time::timeout(Duration::from_millis(50), unread.piece()).await
    {
        held += piece.len();
        if held > 16 * WINDOW {
            break;
        }
    }
    assert!(held >= WINDOW, "{held}");
    stuck.abort();
}

#[tokio::test]
async fn a_reset_is_told_after_what_came_before_it() {
    let (opens, _takes, mut taken) = joined(8);
    let (near, far) = pair(&opens, &mut taken).await;
    far.push(b"half an answer").unwrap();
    // Sent before the reset: that is told first where it waits.
    assert_eq!(near.piece().await.unwrap().unwrap(), "half an answer");
    far.reset("the other side hung up");
    let error = near.piece().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(error.to_string(), "the other side hung up");
    assert_eq!(
        near.push(b"x").unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn the_end_of_the_tunnel_ends_all_connections_with_its_reason() {
    let (opens, takes, mut taken) = joined(8);
    let (near, far) = pair(&opens, &mut taken).await;
    takes.end("the harness stops");
    let error = far.piece().await.unwrap_err();
    assert_eq!(error.to_string(), "the harness stops");
    opens.end("the harness is gone");
    assert_eq!(
        near.room().await.unwrap_err().to_string(),
        "the harness is gone"
    );
    assert!(opens.open().is_none());
}

#[tokio::test]
async fn connections_beyond_the_limit_are_not_opened_until_others_end() {
    let (opens, _takes, mut taken) = joined(2);
    let first = pair(&opens, &mut taken).await;
    let _second = pair(&opens, &mut taken).await;
    assert!(opens.open().is_none());
    drop(first);
    // The place is free once the reset has been sent.
    let free = async {
        while opens.open().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(BOUND, free).await.unwrap();
}

#[test]
fn whoever_breaks_the_rules_loses_the_tunnel() {
    let data = |size: usize| Frame::Data(Bytes::from(vec![0; size]));
    let table: Vec<(&str, Vec<TunnelFrame>, Violation)> = vec![
        (
            "no frame",
            vec![TunnelFrame {
                connection: 1,
                frame: None,
            }],
            Violation::Unknown,
        ),
        (
            "an id twice",
            vec![frame(1, Frame::Open(true)); 2],
            Violation::NotNew(1),
        ),
        (
            "an id that descends",
            vec![frame(5, Frame::Open(true)), frame(4, Frame::Open(true))],
            Violation::NotNew(4),
        ),
        (
            "data of nobody",
            vec![frame(1, data(1))],
            Violation::NeverOpened(1),
        ),
        (
            "data of none",
            vec![frame(0, data(1))],
            Violation::NeverOpened(0),
        ),
        (
            "more than the window",
            vec![
                frame(1, Frame::Open(true)),
                frame(1, data(WINDOW)),
                frame(1, data(1)),
            ],
            Violation::Overrun(1),
        ),
        (
            "data after its end",
            vec![
                frame(1, Frame::Open(true)),
                frame(1, Frame::Finish(true)),
                frame(1, data(1)),
            ],
            Violation::AfterEnd(1),
        ),
        (
            "a second end",
            vec![
                frame(1, Frame::Open(true)),
                frame(1, Frame::Finish(true)),
                frame(1, Frame::Finish(true)),
            ],
            Violation::AfterEnd(1),
        ),
        (
            "anything after a reset",
            vec![
                frame(1, Frame::Open(true)),
                frame(1, Frame::Reset("x".into())),
                frame(1, Frame::Credit(1)),
            ],
            Violation::AfterEnd(1),
        ),
        (
            "credit beyond all bounds",
            vec![
                frame(1, Frame::Open(true)),
                frame(1, Frame::Credit(u32::MAX)),
            ],
            Violation::Credit(1),
        ),
    ];
    for (what, frames, violation) in table {
        let (takes, _outgoing) = Mux::new(Side::Takes, 2);
        let mut connections = Vec::new();
        let mut found = None;
        for frame in frames {
            match takes.take(frame) {
                Ok(connection) => connections.extend(connection),
                Err(error) => found = Some(error),
            }
        }
        assert_eq!(found, Some(violation), "{what}");
        assert!(takes.is_ended(), "{what}");
    }
    let (opens, _outgoing) = Mux::new(Side::Opens, 2);
    assert_eq!(
        opens.take(frame(1, Frame::Open(true))).unwrap_err(),
        Violation::WrongSide(1)
    );
}

#[tokio::test]
async fn a_connection_too_many_is_reset_and_the_others_go_on() {
    let (opens, from_opens) = Mux::new(Side::Opens, 8);
    let (takes, from_takes) = Mux::new(Side::Takes, 1);
    let (given, mut taken) = mpsc::unbounded_channel();
    move_frames(from_opens, takes.clone(), Some(given));
    move_frames(from_takes, opens.clone(), None);
    let (near, far) = pair(&opens, &mut taken).await;
    let second = opens.open().unwrap();
    let error = tokio::time::timeout(BOUND, second.piece()).await.unwrap();
    assert_eq!(error.unwrap_err().to_string(), "too many connections");
    near.push(b"still here").unwrap();
    assert_eq!(far.piece().await.unwrap().unwrap(), "still here");
}

#[test]
fn a_flood_of_connections_that_end_at_once_is_bounded() {
    let (takes, outgoing) = Mux::new(Side::Takes, 16);
    let broken = (1..).find_map(|id| {
        // Each is dropped as soon as it is there; nobody takes the resets away.
        takes
            .take(frame(id, Frame::Open(true)))
            .err()
            .map(|error| (id, error))
    });
    assert_eq!(broken, Some((17, Violation::TooMany(16))));
    drop(outgoing);
}

#[tokio::test]
async fn a_tcp_connection_is_carried_whole_and_half_closed() {
    let (opens, _takes, mut taken) = joined(4);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let carried = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let connection = opens.open().unwrap();
        carry(&mut tcp, &connection, |_, _| Ok(())).await
    });
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&vec![9; 5 * PIECE]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut far = tokio::time::timeout(BOUND, taken.recv())
        .await
        .unwrap()
        .unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 5 * PIECE);
    far.write_all(b"all of it").await.unwrap();
    far.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "all of it");
    carried.await.unwrap().unwrap();
}
