//! `mooring watch`: what happens, as it happens.

use std::collections::BTreeMap;
use std::path::Path;

use mooring_wire::harness::WatchFrame;
use mooring_wire::harness::watch_frame::Frame;

use super::say;
use crate::args::{Output, WatchArgs};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::printer::{Inputs, Printer};
use crate::style::{Line, Style};
use crate::view::View;
use crate::watching::{Watch, Watched};
use crate::{json, setup, terminal};

/// Prints until it is interrupted.
pub async fn run(project: Option<&Path>, args: WatchArgs) -> Result<Exit, Error> {
    let connection = Connection::attach(setup::running_plan(project).await?).await?;
    let mut watch = Watch::new(connection, args.conversation.unwrap_or_default());
    let screen = terminal::stdout();
    let out = Printer::new(
        std::io::stdout(),
        screen.colours,
        Inputs::Shown,
        screen.width,
    );
    let mut people = People {
        out,
        views: BTreeMap::new(),
        last: 0,
        many: args.conversation.is_none(),
    };
    while let Some(watched) = watch.next().await {
        match (watched, args.output.output) {
            (Watched::Frame(frame), Output::Json) => say(json::frame(&frame))?,
            (Watched::Frame(frame), Output::Text) => people.frame(*frame)?,
            (Watched::Failed(error), _) => return Err(error),
            (Watched::Begun | Watched::Lost { .. } | Watched::Back, _) => {}
        }
    }
    Ok(Exit::Done)
}

/// Several conversations on one output.
struct People<W> {
    out: Printer<W>,
    views: BTreeMap<i64, View>,
    last: i64,
    many: bool,
}

impl<W: std::io::Write> People<W> {
    fn frame(&mut self, frame: WatchFrame) -> Result<(), Error> {
        let conversation = match &frame.frame {
            Some(Frame::Snapshot(view)) => view.conversation,
            Some(Frame::Change(change)) => change.conversation,
            None => return Ok(()),
        };
        let view = self
            .views
            .entry(conversation)
            .or_insert_with(|| View::new(conversation));
        let events = view.apply(frame);
        if !view.is_busy() && self.many {
            // An idle conversation has nothing to be remembered.
            self.views.remove(&conversation);
        }
        if self.many && self.last != conversation && !events.is_empty() {
            self.last = conversation;
            self.out.line(&Line::new(
                Style::Dim,
                format!("— conversation {conversation} —"),
            ))?;
        }
        Ok(self.out.events(&events)?)
    }
}
