//! What an operation is about, of what there is at that moment.

use super::{
    driver::{Driver, MOST},
    history::{Entry, Said},
    operation::Op,
    rules::{Act, CallState, Conversation, Phase},
};

impl Driver {
    /// What an operation is about; `None`: there is nothing that it could be.
    pub fn resolve(&self, op: &Op) -> Option<Act> {
        let world = &self.worlds[0];
        let count = world.conversations.len();
        let pick = |found: Vec<usize>, at: usize| found.get(at % found.len().max(1)).copied();
        let those = |holds: &dyn Fn(&Conversation) -> bool| {
            (0..count)
                .filter(|at| holds(&world.conversations[*at]))
                .collect::<Vec<_>>()
        };
        let asks = |at: usize| {
            let asking = |it: &Conversation| {
                let phase = it.run.as_ref().map(|run| &run.phase);
                matches!(phase, Some(Phase::Request { .. }))
            };
            pick(those(&asking), at)
        };
        let place = |at: usize, entry: usize| {
            let length = world.conversations[at].history.len();
            (length > 0).then(|| entry % length)
        };
        let n = self.operations;
        let (key, text) = (format!("k{n}"), format!("t{n}"));
        Some(match op {
            Op::Submit { at, when } => Act::Submit {
                at: at % count,
                key,
                text,
                when: *when,
            },
            Op::Note { at } => Act::Write {
                at: at % count,
                key,
                entry: Said::User(text).into(),
                here: false,
            },
            Op::Head { at, from } => {
                let at = at % count;
                let head = match from {
                    Some(from) => Some(place(at, *from)?),
                    None => None,
                };
                let entry = Said::User(text).into();
                Act::Write {
                    at,
                    key,
                    entry: Entry { head, ..entry },
                    here: head.is_none(),
                }
            }
            Op::Edit {
                at,
                target,
                replace,
            } => {
                let at = at % count;
                let target = place(at, *target)?;
                let replace = match world.conversations[at].history[target].said {
                    Said::User(_) | Said::Answer(_) => replace.then_some(text),
                    Said::Calls(_) | Said::Result { .. } => None,
                    _ => return None,
                };
                let entry: Entry = Said::Nothing("host.edit").into();
                Act::Write {
                    at,
                    key,
                    entry: Entry {
                        edit: Some((target, replace)),
                        ..entry
                    },
                    here: false,
                }
            }
            Op::Answer { at } => Act::Answer {
                at: asks(*at)?,
                text,
            },
            Op::Calls { at, safe } => Act::Call {
                at: asks(*at)?,
                calls: safe
                    .iter()
                    .enumerate()
                    .map(|(of, safe)| (format!("c{n}-{of}"), *safe))
                    .collect(),
            },
            Op::Fail { at, how } => Act::Fail {
                at: asks(*at)?,
                how: *how,
            },
            Op::EndCall { at, end } => {
                let mut running = Vec::new();
                for (conversation, it) in world.conversations.iter().enumerate() {
                    if let Some(Phase::Tools { calls }) = it.run.as_ref().map(|run| &run.phase) {
                        let open = calls.iter().filter(|call| call.state == CallState::Running);
                        running.extend(open.map(|call| (conversation, call.id.clone())));
                    }
                }
                let (at, call) = running.get(at % running.len().max(1))?.clone();
                Act::EndCall {
                    at,
                    call,
                    end: *end,
                    text,
                }
            }
            Op::Summary { at, failing } => Act::Summary {
                at: pick(
                    those(&|it| it.summary.as_ref().is_some_and(|summary| summary.asked)),
                    *at,
                )?,
                text,
                failing: *failing,
            },
            Op::Abort { at, all } => Act::Abort {
                at: at % count,
                all: *all,
            },
            Op::Withdraw { which } => {
                let named = (0..world.submissions.len())
                    .filter(|at| !world.submissions[*at].key.is_empty());
                let which = pick(named.collect(), *which)?;
                let key = world.submissions[which].key.clone();
                Act::Withdraw { which, key }
            }
            Op::Fork { at, entry, own } if count < MOST => {
                let at = at % count;
                Act::Fork {
                    at,
                    through: place(at, *entry)?,
                    own: *own,
                    all: n.is_multiple_of(2),
                }
            }
            Op::Reset { at, brief } => Act::Reset {
                at: at % count,
                key,
                brief: brief.then_some(text),
            },
            Op::Compact { at } => Act::Compact { at: at % count },
            Op::Wait => Act::Wait,
            _ => return None,
        })
    }
}
