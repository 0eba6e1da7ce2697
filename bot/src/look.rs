//! Commands that look at what is: state, queue, spend, changes, rules.

use std::fmt::Write as _;

use mooring_wire::harness as wire;

use crate::bot::Bot;
use crate::harness::HarnessError;
use crate::interact::{NO_CONVERSATION, Said, author, conversation};
use crate::payload::Interaction;
use crate::render::{code_block, one_line};
use crate::rest::File;
use crate::workspace::Place;

/// Characters of a diff that are shown in the text; a longer one is a file.
const DIFF: usize = 1_700;
/// Facts of a call that are listed.
const FACTS: usize = 12;

/// The conversation of the thread, as the harness shows it.
pub async fn view(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Option<wire::ConversationView>, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(None);
    };
    let request = wire::ViewRequest {
        conversation,
        entries: 1,
        ..wire::ViewRequest::default()
    };
    place.harness.view(request).await.map(Some)
}

/// `/status`.
pub async fn status(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let harness = place.harness.status(wire::StatusRequest {}).await?;
    let mut text = format!("Workspace **{}**", place.wanted.name);
    if let Some(sandbox) = &harness.sandbox {
        let state = if sandbox.reachable {
            &sandbox.grade
        } else {
            "not reachable"
        };
        let _ = write!(text, " · sandbox {state}");
    }
    let _ = write!(
        text,
        " · {} running · {} waiting · {} approvals open",
        harness.running, harness.waiting, harness.pending_approvals
    );
    if let Some(view) = view(bot, place, interaction).await? {
        let run = view.run.unwrap_or_default();
        let state = if run.state.is_empty() {
            "idle"
        } else {
            &run.state
        };
        let _ = write!(text, "\nConversation {}: **{state}**", view.conversation);
        let model = if run.model.is_empty() {
            &view.model
        } else {
            &run.model
        };
        let _ = write!(text, " · model {model} · {} in the queue", view.inbox.len());
        if run.turns > 0 {
            let _ = write!(
                text,
                " · {} turns, {} tool calls",
                run.turns, run.tool_calls
            );
        }
        if !run.note.is_empty() {
            let _ = write!(text, "\n{}", one_line(&run.note, 300));
        }
        for call in view.calls.iter().filter(|call| call.ended_ms == 0).take(5) {
            let _ = write!(
                text,
                "\n• {} `{}` ({})",
                call.tool,
                code_line(&call.summary),
                call.state
            );
        }
    }
    Ok(text)
}

/// One line that can stand in single backticks.
fn code_line(text: &str) -> String {
    one_line(text, 120).replace('`', "'")
}

/// `/queue`: what waits, or takes one back.
pub async fn queue(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    if let Some(wanted) = interaction.option("withdraw") {
        let Ok(submission) = wanted.trim().parse() else {
            return Ok("Choose one of the messages that are offered.".into());
        };
        let author = Some(author(interaction));
        let answer = place
            .harness
            .withdraw(wire::WithdrawRequest {
                submission,
                author,
                ..wire::WithdrawRequest::default()
            })
            .await?;
        let state = answer
            .submission
            .map(|submission| submission.state)
            .unwrap_or_default();
        return Ok(match state.as_str() {
            "placed" | "done" => "Too late: the run has it already.".into(),
            _ => "Withdrawn.".into(),
        });
    }
    let Some(view) = view(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    if view.inbox.is_empty() {
        return Ok("Nothing waits.".into());
    }
    let mut text = String::from("Waiting:");
    for submission in view.inbox.iter().take(20) {
        let _ = write!(
            text,
            "\n{}. {}",
            submission.id,
            one_line(&submission.text, 80)
        );
    }
    Ok(text)
}

/// `/usage`.
pub async fn usage(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let conversation = conversation(bot, place, interaction).await?.unwrap_or(0);
    let rows = place
        .harness
        .usage(wire::UsageRequest { conversation })
        .await?
        .rows;
    if rows.is_empty() {
        return Ok("Nothing was used yet.".into());
    }
    let mut text = if conversation == 0 {
        "This workspace:"
    } else {
        "This conversation:"
    }
    .to_owned();
    for row in rows.iter().take(20) {
        let _ = write!(
            text,
            "\n{} {}: {} requests, {} tokens in ({} cached), {} out",
            row.day,
            row.model,
            row.requests,
            row.input_tokens,
            row.cached_tokens,
            row.output_tokens
        );
        if row.cost_known {
            let cost = row.cost_micros;
            let _ = write!(
                text,
                ", ${}.{:02}",
                cost / 1_000_000,
                cost % 1_000_000 / 10_000
            );
        }
    }
    Ok(text)
}

/// Approvals that are open, of the thread's conversation or of all.
pub async fn open_approvals(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Vec<wire::Approval>, HarnessError> {
    let request = wire::ApprovalsRequest {
        conversation: conversation(bot, place, interaction).await?.unwrap_or(0),
        ..wire::ApprovalsRequest::default()
    };
    let mut approvals = place.harness.approvals(request).await?.approvals;
    approvals.retain(|approval| approval.state == "pending");
    Ok(approvals)
}

/// `/pending`.
pub async fn pending(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let approvals = open_approvals(bot, place, interaction).await?;
    if approvals.is_empty() {
        return Ok("Nothing waits for approval.".into());
    }
    let mut text = String::from("Waiting for approval:");
    for approval in approvals.iter().take(15) {
        let _ = write!(
            text,
            "\n`{}` {} `{}`",
            approval.id,
            approval.tool,
            code_line(&approval.summary)
        );
        if approval.expires_ms > 0 {
            let _ = write!(text, " expires <t:{}:R>", approval.expires_ms / 1_000);
        }
    }
    Ok(text)
}

/// `/diff`: what the conversation changed in the project's files.
pub(crate) async fn diff(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Said, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.to_owned().into());
    };
    let request = wire::DiffRequest { conversation };
    let answer = place.harness.diff(request).await?;
    if answer.files == 0 {
        return Ok("This conversation has changed no files.".to_owned().into());
    }
    let files = match answer.files {
        1 => "1 file differs".to_owned(),
        many => format!("{many} files differ"),
    };
    let cut = if answer.cut {
        "; the diff does not hold all of them"
    } else {
        ""
    };
    if answer.diff.chars().count() <= DIFF && !answer.diff.contains("```") {
        let text = format!("{files}{cut}.\n```diff\n{}\n```", answer.diff.trim_end());
        return Ok(text.into());
    }
    Ok(Said {
        text: format!("{files}{cut}; the diff is in the file."),
        file: Some(File {
            name: "diff.patch".into(),
            data: answer.diff.into(),
        }),
    })
}

/// `/model`: which one, and which there are; or another one from now on.
pub async fn model(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    let wanted = interaction.option("name").unwrap_or_default();
    let request = wire::ModelRequest {
        conversation,
        model: wanted.trim().to_owned(),
        author: Some(author(interaction)),
    };
    let answer = place.harness.model(request).await?;
    if !wanted.trim().is_empty() {
        return Ok(format!(
            "The next request of this conversation goes to **{}**.",
            one_line(&answer.model, 80)
        ));
    }
    Ok(format!(
        "This conversation has the model **{}**. The workspace has: {}.",
        one_line(&answer.model, 80),
        one_line(&answer.models.join(", "), 1_000)
    ))
}

/// `/policy`: what would be decided about a call, and why.
pub async fn policy(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let request = wire::ExplainRequest {
        conversation: conversation(bot, place, interaction).await?.unwrap_or(0),
        tool: interaction.option("tool").unwrap_or_default(),
        input: interaction.option("call").unwrap_or_default(),
        author: Some(author(interaction)),
    };
    let shown = code_block(&request.input, 500);
    let tool = match request.tool.as_str() {
        "" => "bash",
        tool => tool,
    };
    let mut text = format!("`{}`\n{shown}", code_line(tool));
    let answer = place.harness.explain(request).await?;
    let word = match answer.verdict.as_str() {
        "allow" => "It would run.",
        "ask" if answer.grant != 0 => "It would run: somebody has granted it.",
        "ask" => "Somebody would be asked.",
        _ => "It would be denied.",
    };
    let _ = write!(
        text,
        "\n**{word}** {}\nRule: {}",
        one_line(&answer.reason, 300),
        one_line(&answer.rule, 150)
    );
    for fact in answer.facts.iter().take(FACTS) {
        let _ = write!(text, "\n• {}", one_line(fact, 150));
    }
    if answer.facts.len() > FACTS {
        let _ = write!(text, "\n• … {} more", answer.facts.len() - FACTS);
    }
    let digest: String = answer.policy_digest.chars().take(12).collect();
    let _ = write!(text, "\n-# policy {digest}");
    Ok(text)
}
