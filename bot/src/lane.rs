//! Lanes: what happens in one thread or channel happens in order, and the others
//! do not wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::bot::Bot;
use crate::id::Id;
use crate::payload::Message;
use crate::queued::{self, News};
use crate::workspace::Place;
use crate::{catchup, intake};

/// Jobs that wait in all lanes; what comes then is left to the next sweep.
const WAITING: usize = 20_000;
/// How long a long piece waits for the next one; Discord may deliver late.
const NEXT_PIECE: Duration = Duration::from_millis(1_200);

/// Something to be done in a thread or channel.
pub enum Job {
    /// A message was written.
    Message(Box<Message>),
    /// A message of this id was written, and its payload could not be read.
    Unread(Id),
    /// What became of messages that were read before.
    Heard(News),
    /// Compare what waits in the thread's queue with its messages.
    Compare {
        /// Whose thread.
        place: Arc<Place>,
        /// Told at the end whether all was compared.
        done: oneshot::Sender<bool>,
    },
    /// Read what came after the id.
    Sweep {
        /// Whose channel or thread.
        place: Arc<Place>,
        /// The harness's cursor; `None` where it has no row.
        cursor: Option<Id>,
        /// Where to begin.
        after: Id,
        /// Told at the end whether all was read.
        done: oneshot::Sender<bool>,
    },
}

/// All lanes.
#[derive(Default)]
pub struct Lanes {
    lanes: Mutex<HashMap<Id, mpsc::UnboundedSender<Job>>>,
    waiting: AtomicUsize,
}

impl Lanes {
    /// Adds a job to the lane of a thread or channel. `false`: there is too much to
    /// do; the next sweep finds it.
    pub fn push(&self, bot: &Arc<Bot>, channel: Id, job: Job) -> bool {
        if self.waiting.load(Ordering::Relaxed) >= WAITING {
            bot.health.count("events_left_to_sweep_total", 1);
            return false;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(channel).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(work(bot.clone(), channel, receiver));
            sender
        });
        // The worker takes itself off the map under this lock, so it is there.
        let _ = lane.send(job);
        true
    }

    /// Whether the worker may end: nothing came while it looked.
    fn leave(&self, channel: Id, jobs: &mut mpsc::UnboundedReceiver<Job>) -> Option<Job> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        match jobs.try_recv() {
            Ok(job) => Some(job),
            Err(_) => {
                lanes.remove(&channel);
                None
            }
        }
    }
}

async fn work(bot: Arc<Bot>, channel: Id, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut held = None;
    loop {
        let next = match held.take() {
            Some(job) => Some(job),
            None => bot.lanes.leave(channel, &mut jobs),
        };
        let Some(job) = next else { return };
        bot.lanes.waiting.fetch_sub(1, Ordering::Relaxed);
        match job {
            Job::Message(message) => {
                let mut group = vec![*message];
                while intake::may_go_on(&group) {
                    let next = tokio::time::timeout(NEXT_PIECE, jobs.recv()).await;
                    match next {
                        Ok(Some(Job::Message(message))) if intake::joins(&group, &message) => {
                            bot.lanes.waiting.fetch_sub(1, Ordering::Relaxed);
                            group.push(*message);
                        }
                        Ok(Some(other)) => {
                            held = Some(other);
                            break;
                        }
                        _ => break,
                    }
                }
                intake::live(&bot, channel, group).await;
            }
            Job::Unread(message) => intake::unread(&bot, channel, message).await,
            Job::Heard(news) => queued::heard(&bot, channel, &news).await,
            Job::Compare { place, done } => {
                let compared = queued::compare(&bot, &place, channel, &News::Unheard).await;
                let _ = done.send(compared);
            }
            Job::Sweep {
                place,
                cursor,
                after,
                done,
            } => {
                let read = catchup::read_after(&bot, &place, channel, cursor, after).await;
                let _ = done.send(read);
            }
        }
    }
}
