//! The slash commands: their definitions, and their registration when they differ
//! from what is registered.

use serde_json::{Value, json};

use crate::api::Api;
use crate::id::Id;
use crate::rest::RestError;

/// Kind of an option that takes text.
const TEXT: u8 = 3;

/// Name, description and options of every command; [`crate::interact`] has a
/// handler for each.
pub const COMMANDS: [(&str, &str); 18] = [
    ("new", "Start a new conversation in a thread of its own"),
    ("status", "Show what this conversation is doing"),
    ("stop", "Stop the run of this conversation"),
    ("queue", "Show the messages that wait, or withdraw one"),
    ("approve", "Approve a step that waits"),
    ("deny", "Deny a step that waits"),
    ("pending", "List the steps that wait for approval"),
    ("reset", "Let this conversation begin anew"),
    (
        "compact",
        "Let a summary take the place of this conversation's beginning",
    ),
    ("model", "Show or change the model of this conversation"),
    ("diff", "Show what this conversation changed in the files"),
    ("policy", "Explain what would be decided about a call"),
    ("fork", "Go on in a thread of its own with the same history"),
    ("btw", "Ask beside this conversation, which does not see it"),
    (
        "resume",
        "Let a conversation go on in this thread, or in a new one",
    ),
    ("usage", "Show what this conversation has used"),
    ("export", "Give you this conversation as a file"),
    ("help", "Say what the bot can do here"),
];

fn option(name: &str, description: &str, required: bool, completed: bool) -> Value {
    let mut option = json!({"type": TEXT, "name": name, "description": description});
    if required {
        option["required"] = true.into();
    }
    if completed {
        option["autocomplete"] = true.into();
    }
    option
}

fn options(command: &str) -> Vec<Value> {
    match command {
        "new" => vec![option("text", "What to do", true, false)],
        "queue" => vec![option("withdraw", "The message to withdraw", false, true)],
        "approve" => {
            let mut scope = option("scope", "How far the approval goes", false, false);
            scope["choices"] = json!([
                {"name": "this step", "value": "once"},
                {"name": "this conversation", "value": "conversation"},
            ]);
            vec![option("id", "The step", true, true), scope]
        }
        "reset" => vec![option(
            "brief",
            "What the model is told at the new beginning",
            false,
            false,
        )],
        "compact" => vec![option(
            "instructions",
            "What the summary should hold",
            false,
            false,
        )],
        "model" => vec![option("name", "The model from now on", false, true)],
        "policy" => vec![
            option(
                "call",
                "A command, a path, or arguments as JSON",
                true,
                false,
            ),
            option("tool", "The tool; bash where left out", false, true),
        ],
        "fork" => vec![option("title", "What the fork is for", false, false)],
        "btw" => vec![option("text", "What to ask", true, false)],
        "resume" => vec![option("id", "The conversation", true, true)],
        "deny" => vec![
            option("id", "The step", true, true),
            option("reason", "Why, for the agent", false, false),
        ],
        _ => vec![],
    }
}

/// The list as it is registered.
pub fn definitions() -> Value {
    COMMANDS
        .iter()
        .map(|(name, description)| {
            json!({"type": 1, "name": name, "description": description, "options": options(name),
                   "contexts": [0]})
        })
        .collect()
}

/// What of a registered list is ours to say, in one form.
fn essence(list: &Value) -> Vec<Value> {
    let mut commands: Vec<Value> = list
        .as_array()
        .into_iter()
        .flatten()
        .map(|command| {
            let options: Vec<Value> = command["options"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|option| {
                    let flag = |name: &str| option[name].as_bool().unwrap_or(false);
                    let choices: Vec<Value> = option["choices"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|choice| json!([choice["name"], choice["value"]]))
                        .collect();
                    json!([
                        option["type"],
                        option["name"],
                        option["description"],
                        flag("required"),
                        flag("autocomplete"),
                        choices
                    ])
                })
                .collect();
            json!([
                command["name"],
                command["description"],
                options,
                command["contexts"]
            ])
        })
        .collect();
    commands.sort_by_key(|command| command[0].as_str().map(str::to_owned));
    commands
}

/// Registers the commands, only when the registered list is another. Whether it was.
pub async fn register(api: &Api, application: Id) -> Result<bool, RestError> {
    let wanted = definitions();
    let registered = api.commands(application).await?;
    if essence(&wanted) == essence(&registered) {
        return Ok(false);
    }
    api.set_commands(application, wanted).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f56_what_discord_fills_in_makes_no_difference() {
        let mut registered = definitions();
        for command in registered.as_array_mut().into_iter().flatten() {
            command["id"] = "1".into();
            command["version"] = "2".into();
            command["nsfw"] = false.into();
            for option in command["options"].as_array_mut().into_iter().flatten() {
                option["required"] = option["required"].as_bool().unwrap_or(false).into();
            }
        }
        assert_eq!(essence(&definitions()), essence(&registered));
        registered[0]["description"] = "another".into();
        assert_ne!(essence(&definitions()), essence(&registered));
    }
}
