//! `/applications/{application}…`: the application itself and its commands.

use serde_json::Value;

use super::answer::{Done, Refusal};
use super::{Call, id};
use crate::clock::Id;
use crate::show;
use crate::world::World;

pub(crate) fn route(world: &mut World, call: Call<'_>) -> Result<Done, Refusal> {
    let own = world
        .applications
        .get(&call.application)
        .ok_or_else(Refusal::unauthorized)?;
    match (call.method, &call.path[..]) {
        ("GET", ["applications", "@me"] | ["oauth2", "applications", "@me"]) => {
            Ok(Done::new(show::application(world, own)))
        }
        (method, ["applications", application, rest @ ..]) => {
            if id(application)? != call.application {
                return Err(Refusal::new(
                    403,
                    20012,
                    "You are not authorized to perform this action on this application",
                ));
            }
            let guild = match rest {
                ["commands", ..] => 0,
                ["guilds", guild, "commands", ..] => id(guild)?,
                _ => return Err(Refusal::no_route()),
            };
            match method {
                "GET" => Ok(Done::new(Value::Array(
                    own.commands.get(&guild).cloned().unwrap_or_default(),
                ))),
                "PUT" => replace(world, &call, guild),
                _ => Err(Refusal::no_route()),
            }
        }
        _ => Err(Refusal::no_route()),
    }
}

/// Replaces the whole list, with the fields that Discord fills in.
fn replace(world: &mut World, call: &Call<'_>, guild: Id) -> Result<Done, Refusal> {
    let list = call.body.as_array().ok_or_else(Refusal::not_json)?;
    if list.len() > 100 {
        return Err(Refusal::new(
            400,
            30032,
            "Maximum number of application commands reached (100)",
        ));
    }
    let mut made = Vec::new();
    for command in list {
        let name = command["name"].as_str().unwrap_or("");
        let well_formed = (1..=32).contains(&name.chars().count())
            && name
                .chars()
                .all(|c| c.is_lowercase() || c.is_numeric() || c == '-' || c == '_');
        let described = command["description"]
            .as_str()
            .unwrap_or("")
            .chars()
            .count();
        if !well_formed || !(1..=100).contains(&described) {
            return Err(Refusal::form(
                "name",
                "STRING_TYPE_REGEX",
                "Command name or description is invalid.",
            ));
        }
        let mut command = command.clone();
        let fresh = world.clock.id();
        for (field, value) in [
            ("id", Value::from(fresh.to_string())),
            ("application_id", call.application.to_string().into()),
            ("version", fresh.to_string().into()),
            ("default_member_permissions", Value::Null),
            ("nsfw", false.into()),
            ("integration_types", serde_json::json!([0])),
            ("contexts", Value::Null),
        ] {
            if command.get(field).is_none() {
                command[field] = value;
            }
        }
        if command.get("type").is_none() {
            command["type"] = 1.into();
        }
        // Discord leaves out what equals its default.
        for option in command["options"].as_array_mut().into_iter().flatten() {
            if option["required"] == false
                && let Some(option) = option.as_object_mut()
            {
                option.remove("required");
            }
        }
        made.push(command);
    }
    if let Some(own) = world.applications.get_mut(&call.application) {
        own.commands.insert(guild, made.clone());
    }
    Ok(Done::new(Value::Array(made)))
}
