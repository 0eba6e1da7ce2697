//! What a person types at the prompt: a message, or a command after a slash.

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Nothing.
    Nothing,
    /// A message for the agent.
    Message(String),
    /// A message into the run that is going on.
    Steer(String),
    /// Lists conversations.
    Threads,
    /// Goes on with another conversation.
    Resume(i64),
    /// Begins a new conversation.
    New,
    /// Lets the context begin anew.
    Reset(String),
    /// Shows what goes on.
    Tasks,
    /// Answers the open question.
    Answer(String),
    /// Shows what the conversation changed.
    Diff,
    /// Lets a summary take the place of the beginning.
    Compact(String),
    /// Goes on in a fork, from an entry or from here.
    Fork(Option<i64>),
    /// Asks something in a side chat.
    Aside(String),
    /// Stops the run and withdraws what is queued.
    Stop,
    /// Shows what is queued.
    Queue,
    /// Withdraws one queued input.
    Withdraw(i64),
    /// Shows how the harness is.
    Status,
    /// Shows tokens and cost.
    Usage,
    /// Lists open approvals.
    Pending,
    /// Approves; without an id the oldest open one.
    Approve {
        /// Which one.
        id: Option<String>,
        /// How far.
        scope: Scope,
    },
    /// Denies.
    Deny {
        /// Which one.
        id: Option<String>,
        /// Why; told to the model.
        reason: String,
    },
    /// Agrees to a changed Workspace file that permits more.
    Accept,
    /// Shows the commands.
    Help,
    /// Leaves the terminal; the run goes on.
    Quit,
    /// A command that does not exist or is used wrongly; says which is right.
    Wrong(String),
}

/// How far an approval reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This call.
    Once,
    /// The same again in this conversation.
    Conversation,
}

/// Commands with what they do, as `/help` shows them.
pub const COMMANDS: &[(&str, &str)] = &[
    ("/threads", "list conversations"),
    ("/resume ID", "go on with another conversation"),
    ("/new", "begin a new conversation"),
    ("/steer TEXT", "say something to the run that is going on"),
    (
        "/reset [TEXT]",
        "begin the context anew; the model is told the text",
    ),
    (
        "/tasks",
        "what goes on here and in subagents, and what waits for what",
    ),
    ("/answer TEXT", "answer the question that is open"),
    ("/diff", "what this conversation changed in files"),
    (
        "/compact [TEXT]",
        "put a summary in the place of the beginning; TEXT says what it must keep",
    ),
    (
        "/fork [ENTRY]",
        "go on in a copy of this conversation, from here or from an entry",
    ),
    (
        "/btw TEXT",
        "ask in a side chat that knows this conversation; /resume goes back",
    ),
    (
        "/stop",
        "stop the run and withdraw what is queued (also Ctrl-C)",
    ),
    (
        "/queue",
        "show what is queued; /queue withdraw ID takes one back",
    ),
    ("/pending", "list approvals that wait"),
    (
        "/approve [ID]",
        "approve once; /approve [ID] conversation for the same again here",
    ),
    ("/deny [ID] [WHY]", "deny; the model is told why"),
    ("/status", "how the harness and the sandbox are"),
    ("/usage", "tokens and cost"),
    (
        "/accept",
        "agree to a changed Workspace file that permits more",
    ),
    ("/quit", "leave; a run goes on without you (also Ctrl-D)"),
];

/// What nobody may do at a terminal that is attached to a cluster: all of them share one
/// certificate, so that nobody knows who is at it.
const NOT_ATTACHED: &[&str] = &["/reset", "/compact", "/approve", "/deny", "/accept"];

/// The commands of a terminal.
pub fn offered(attached: bool) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    COMMANDS.iter().filter(move |(usage, _)| {
        let name = usage.split(' ').next().unwrap_or(usage);
        !(attached && NOT_ATTACHED.contains(&name))
    })
}

/// Reads what was typed. Two slashes at the start are a message with one.
pub fn parse(input: &str) -> Typed {
    let text = input.trim();
    if text.is_empty() {
        return Typed::Nothing;
    }
    if let Some(message) = text.strip_prefix("//") {
        return Typed::Message(format!("/{message}"));
    }
    // A path at the start of a message is no command.
    let Some(rest) = text.strip_prefix('/').filter(|rest| {
        !rest
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .contains('/')
    }) else {
        return Typed::Message(text.to_owned());
    };
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let argument = argument.trim();
    match (name.to_ascii_lowercase().as_str(), argument) {
        ("threads" | "conversations", _) => Typed::Threads,
        ("resume", id) => id.parse().map_or_else(
            |_| Typed::Wrong("/resume needs a conversation's number; /threads lists them".into()),
            Typed::Resume,
        ),
        ("new", "") => Typed::New,
        ("steer", "") => Typed::Wrong("/steer needs a text".into()),
        ("steer", text) => Typed::Steer(text.to_owned()),
        ("reset", brief) => Typed::Reset(brief.to_owned()),
        ("tasks", _) => Typed::Tasks,
        ("answer", "") => Typed::Wrong("/answer needs a text".into()),
        ("answer", text) => Typed::Answer(text.to_owned()),
        ("diff", _) => Typed::Diff,
        ("compact", about) => Typed::Compact(about.to_owned()),
        ("fork", "") => Typed::Fork(None),
        ("fork", entry) => entry.parse().map_or_else(
            |_| Typed::Wrong("/fork needs an entry's number; `mooring entries` lists them".into()),
            |entry| Typed::Fork(Some(entry)),
        ),
        ("btw", "") => Typed::Wrong("/btw needs a text".into()),
        ("btw", text) => Typed::Aside(text.to_owned()),
        ("stop", _) => Typed::Stop,
        ("queue", "") => Typed::Queue,
        ("queue", argument) => match argument.strip_prefix("withdraw").map(str::trim) {
            Some(id) => id.parse().map_or_else(
                |_| Typed::Wrong("/queue withdraw needs a number; /queue lists them".into()),
                Typed::Withdraw,
            ),
            None => Typed::Wrong("/queue, or /queue withdraw ID".into()),
        },
        ("pending" | "approvals", _) => Typed::Pending,
        ("approve", argument) => approve(argument),
        ("deny", argument) => deny(argument),
        ("status", _) => Typed::Status,
        ("usage", _) => Typed::Usage,
        ("accept", _) => Typed::Accept,
        ("help" | "?", _) => Typed::Help,
        ("quit" | "exit" | "q", _) => Typed::Quit,
        (name, _) => Typed::Wrong(match nearest(name) {
            Some(known) => format!("there is no /{name}; did you mean /{known}?"),
            None => format!("there is no /{name}; /help lists what there is"),
        }),
    }
}

fn approve(argument: &str) -> Typed {
    let mut id = None;
    let mut scope = Scope::Once;
    for word in argument.split_whitespace() {
        match word {
            "once" => scope = Scope::Once,
            "conversation" => scope = Scope::Conversation,
            word if id.is_none() => id = Some(word.to_owned()),
            _ => return Typed::Wrong("/approve [ID] [once|conversation]".into()),
        }
    }
    Typed::Approve { id, scope }
}

/// The first word is an id where it looks like one: ids hold a digit.
fn deny(argument: &str) -> Typed {
    let (first, rest) = argument
        .split_once(char::is_whitespace)
        .unwrap_or((argument, ""));
    if first.bytes().any(|b| b.is_ascii_digit()) {
        Typed::Deny {
            id: Some(first.to_owned()),
            reason: rest.trim().to_owned(),
        }
    } else {
        Typed::Deny {
            id: None,
            reason: argument.to_owned(),
        }
    }
}

/// The known command that begins alike.
fn nearest(name: &str) -> Option<&'static str> {
    let known = COMMANDS
        .iter()
        .filter_map(|(usage, _)| usage.split(' ').next()?.strip_prefix('/'));
    let alike = |known: &&str| {
        known
            .bytes()
            .zip(name.bytes())
            .take_while(|(a, b)| a == b)
            .count()
    };
    known.max_by_key(alike).filter(|known| alike(known) >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_messages_or_commands() {
        let message = |text: &str| Typed::Message(text.into());
        let approve = |id: Option<&str>, scope| Typed::Approve {
            id: id.map(Into::into),
            scope,
        };
        let deny = |id: Option<&str>, reason: &str| Typed::Deny {
            id: id.map(Into::into),
            reason: reason.into(),
        };
        for (input, typed) in [
            ("", Typed::Nothing),
            (" \n ", Typed::Nothing),
            ("hello\nthere ", message("hello\nthere")),
            ("/etc/hosts is odd", message("/etc/hosts is odd")),
            ("//help", message("/help")),
            ("/threads", Typed::Threads),
            ("/resume 12", Typed::Resume(12)),
            (
                "/resume",
                Typed::Wrong("/resume needs a conversation's number; /threads lists them".into()),
            ),
            ("/new", Typed::New),
            ("/steer use tabs", Typed::Steer("use tabs".into())),
            ("/steer", Typed::Wrong("/steer needs a text".into())),
            ("/reset", Typed::Reset(String::new())),
            ("/reset now the docs", Typed::Reset("now the docs".into())),
            ("/tasks", Typed::Tasks),
            ("/answer blue", Typed::Answer("blue".into())),
            ("/diff", Typed::Diff),
            ("/compact", Typed::Compact(String::new())),
            ("/compact the names", Typed::Compact("the names".into())),
            ("/fork", Typed::Fork(None)),
            ("/fork 12", Typed::Fork(Some(12))),
            (
                "/fork here",
                Typed::Wrong("/fork needs an entry's number; `mooring entries` lists them".into()),
            ),
            ("/btw what is that?", Typed::Aside("what is that?".into())),
            ("/stop", Typed::Stop),
            ("/queue", Typed::Queue),
            ("/queue withdraw 3", Typed::Withdraw(3)),
            (
                "/queue up",
                Typed::Wrong("/queue, or /queue withdraw ID".into()),
            ),
            ("/approve", approve(None, Scope::Once)),
            ("/approve ap-1", approve(Some("ap-1"), Scope::Once)),
            ("/approve conversation", approve(None, Scope::Conversation)),
            (
                "/approve ap-1 conversation",
                approve(Some("ap-1"), Scope::Conversation),
            ),
            (
                "/approve ap-1 for ever",
                Typed::Wrong("/approve [ID] [once|conversation]".into()),
            ),
            ("/deny", deny(None, "")),
            ("/deny ap-1", deny(Some("ap-1"), "")),
            ("/deny ap-1 too risky", deny(Some("ap-1"), "too risky")),
            ("/deny not this one", deny(None, "not this one")),
            ("/HELP", Typed::Help),
            ("/accept", Typed::Accept),
            ("/quit", Typed::Quit),
            (
                "/thread",
                Typed::Wrong("there is no /thread; did you mean /threads?".into()),
            ),
            (
                "/xyz",
                Typed::Wrong("there is no /xyz; /help lists what there is".into()),
            ),
        ] {
            assert_eq!(parse(input), typed, "{input:?}");
        }
    }

    #[test]
    fn each_command_of_the_help_exists() {
        assert_eq!(offered(false).count(), COMMANDS.len());
        assert_eq!(offered(true).count(), COMMANDS.len() - NOT_ATTACHED.len());
        for (usage, _) in COMMANDS {
            let word = usage.split(' ').next().unwrap_or_default();
            let typed = parse(word);
            let missing = matches!(&typed, Typed::Wrong(text) if text.starts_with("there is no"));
            assert!(!missing, "{usage}: {typed:?}");
        }
    }
}
