//! `mooring tasks` and `mooring answer`: what goes on and what waits, and for what.

use std::path::Path;

use mooring_wire::harness::{AnswerRequest, Task, TaskGraphRequest};

use super::{named_or_last, say};
use crate::args::{AnswerArgs, Output, TasksArgs};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::format;
use crate::style::{Line, Style};
use crate::text::one_line;
use crate::{json, setup, terminal};

/// Prints the tasks of a conversation that have not ended.
pub async fn run(project: Option<&Path>, args: TasksArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let conversation = named_or_last(&connection, args.conversation).await?;
    let (tasks, more) = tasks(&connection, conversation).await?;
    if more {
        eprintln!("mooring: there are more tasks than these");
    }
    if args.output.output == Output::Json {
        for task in &tasks {
            say(json::task(task))?;
        }
        return Ok(Exit::Done);
    }
    let screen = terminal::stdout();
    for line in lines(&tasks, format::now_ms(), screen.width) {
        say(line.render(screen.colours))?;
    }
    Ok(Exit::Done)
}

/// Answers a question.
pub async fn run_answer(project: Option<&Path>, args: AnswerArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let text = args.text.join(" ");
    say(answer(&connection, args.question, text).await?)?;
    Ok(Exit::Done)
}

/// Answers a question, and says what became of it.
pub async fn answer(connection: &Connection, question: i64, text: String) -> Result<String, Error> {
    let request = AnswerRequest {
        question,
        text,
        ..AnswerRequest::default()
    };
    let response = connection
        .call(move |mut c| {
            let request = request.clone();
            async move { c.answer(request).await }
        })
        .await?;
    Ok(match (response.first, response.question) {
        (true, _) => "answered".into(),
        (false, Some(question)) if question.state == "answered" => format!(
            "{} had answered before: {}",
            one_line(&question.answered_by, 60),
            one_line(&question.answer, 200)
        ),
        (false, _) => "the question is not open any more".into(),
    })
}

/// The tasks of a conversation, and of those that they own; whether there are more.
pub async fn tasks(connection: &Connection, conversation: i64) -> Result<(Vec<Task>, bool), Error> {
    let response = connection
        .call(move |mut c| async move { c.task_graph(TaskGraphRequest { conversation }).await })
        .await?;
    Ok((response.tasks, response.more))
}

/// The graph as a tree: what a task owns stands below it.
pub fn lines(tasks: &[Task], now_ms: i64, width: usize) -> Vec<Line> {
    if tasks.is_empty() {
        return vec![Line::new(Style::Dim, "nothing goes on")];
    }
    let known = |id: i64| tasks.iter().any(|task| task.id == id);
    let owned = |conversation: i64| tasks.iter().find(|task| task.owns == conversation);
    let roots = tasks.iter().filter(|task| match task.owner {
        0 => owned(task.conversation).is_none(),
        owner => !known(owner),
    });
    let mut lines = Vec::new();
    for root in roots {
        branch(tasks, root, 0, now_ms, width, &mut lines);
    }
    lines
}

/// No tree is shown deeper.
const DEEPEST: usize = 16;

fn branch(
    tasks: &[Task],
    task: &Task,
    depth: usize,
    now_ms: i64,
    width: usize,
    lines: &mut Vec<Line>,
) {
    lines.push(line(task, depth, now_ms, width));
    let below = |other: &&Task| {
        other.owner == task.id
            || (task.owns != 0 && other.conversation == task.owns && other.owner == 0)
    };
    if depth < DEEPEST {
        for other in tasks.iter().filter(below) {
            branch(tasks, other, depth + 1, now_ms, width, lines);
        }
    }
}

fn line(task: &Task, depth: usize, now_ms: i64, width: usize) -> Line {
    let kind = task
        .kind
        .strip_prefix("pi.")
        .or(task.kind.strip_prefix("mooring."))
        .unwrap_or(&task.kind);
    let mut notes = vec![format::span(now_ms - task.created_ms)];
    if task.background {
        notes.push("in the background".into());
    }
    if task.owns != 0 {
        notes.push(format!("conversation {}", task.owns));
    }
    Line::new(Style::Dim, "  ".repeat(depth))
        .with(Style::Accent, format!("{} ", task.id))
        .with(
            Style::Plain,
            format!("{} {}", one_line(kind, 40), task.status),
        )
        .with(Style::Dim, format!("  {}", notes.join(", ")))
        .with(
            Style::Plain,
            match one_line(&task.about, 200) {
                about if about.is_empty() => String::new(),
                about => format!("  {about}"),
            },
        )
        .cut(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_owns_stands_below_it() {
        let task = |id, owner, conversation, kind: &str, owns| Task {
            id,
            owner,
            conversation,
            kind: kind.into(),
            status: "waiting".into(),
            owns,
            ..Task::default()
        };
        let tasks = [
            task(1, 0, 1, "pi.generation", 0),
            task(2, 1, 1, "pi.tool", 0),
            task(3, 2, 1, "mooring.subagent", 9),
            task(4, 0, 9, "pi.generation", 0),
            task(5, 4, 9, "pi.tool", 0),
        ];
        let texts: Vec<_> = lines(&tasks, 0, 80).iter().map(Line::text).collect();
        let depth = |text: &String| text.len() - text.trim_start().len();
        assert_eq!(texts.iter().map(depth).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert!(texts[2].contains("3 subagent waiting"), "{texts:?}");
        assert_eq!(lines(&[], 0, 80)[0].text(), "nothing goes on");
    }
}
