//! The command line.

mod place;
mod process;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cluster::ClusterArgs;
use crate::commands::policy::PolicyArgs;

pub use place::{PlaceArgs, PlaceCommand, ServeArgs};
pub use process::{CommandArgs, HarnessArgs, SandboxArgs};

/// Durable coding agents: talk to one in this terminal.
///
/// Start with `mooring dev` in a project's folder. The agent reads, edits and
/// runs things in a sandbox without network, asks before a risky step, and
/// carries on where it was when any of its processes is killed.
#[derive(Debug, Parser)]
#[command(name = "mooring", version, arg_required_else_help = true)]
#[command(after_help = "First steps:\n  \
    mooring dev                     talk to the agent of the project you are in\n  \
    mooring demo                    see a harness killed in the middle of its work, and nothing lost\n  \
    mooring send 'run the tests'    one message from a script, answer on standard output\n  \
    mooring init > workspace.yaml   the settings in use, to be changed and given to `mooring dev`\n\n\
    Without a model key the built-in rehearsal provider answers, which is no language\n\
    model: set ANTHROPIC_API_KEY or OPENAI_API_KEY for a real one.")]
pub struct Cli {
    /// The project's folder, instead of the repository around the current one.
    #[arg(long, global = true, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Talk to the agent in this terminal; starts what is not running.
    Dev(DevArgs),
    /// Kill a harness in the middle of its work, and show that nothing is lost or done twice.
    ///
    /// It takes place in a temporary folder and needs no key; less than half a minute.
    /// Exit status: 0 where all is as it should be, 1 where not.
    Demo(DemoArgs),
    /// Talk to the agent of a workspace in a cluster (also `kubectl mooring attach`).
    Attach(AttachArgs),
    /// Send one message and print the answer, for scripts.
    ///
    /// Exit status: 0 answered, 1 failed, 3 waiting for an approval (its id is
    /// printed), 4 ended unanswered, 5 refused.
    Send(SendArgs),
    /// Print the default Workspace of this project, or write it to a file.
    Init(InitArgs),
    /// Show what happens in conversations as it happens.
    Watch(WatchArgs),
    /// List approvals that wait for a decision.
    Approvals(ApprovalsArgs),
    /// Approve one, by the id that `mooring approvals` shows.
    Approve(ApproveArgs),
    /// Deny one.
    Deny(DenyArgs),
    /// List conversations, the last active first.
    Conversations(ListArgs),
    /// Print what was said and done in a conversation.
    Entries(EntriesArgs),
    /// Show what goes on in a conversation, and what waits for what.
    Tasks(TasksArgs),
    /// Answer a question that the agent asks, by the id that `mooring tasks` shows.
    Answer(AnswerArgs),
    /// Show what a conversation changed in the project's files.
    Diff(ConversationArgs),
    /// List the git worktrees that conversations have of their own, or remove one.
    Worktrees(WorktreesArgs),
    /// Let a conversation begin anew: the model no longer sees what was before.
    Reset(ResetArgs),
    /// Let a summary take the place of the beginning of a conversation's context.
    Compact(CompactArgs),
    /// Begin a conversation with the history of another one, and print its number.
    Fork(ForkArgs),
    /// Write a conversation to a file, whole: JSON Lines that `mooring import` restores.
    Export(ExportArgs),
    /// Restore a conversation that was exported, under a new number.
    Import(ImportArgs),
    /// Delete a conversation; what forks of it still show is kept for them.
    Delete(DeleteArgs),
    /// Stop the run of a conversation and withdraw what is queued in it.
    Abort(AbortArgs),
    /// List or revoke what was approved for more than once.
    Grants(GrantsArgs),
    /// Show every decision about a call, by which rule and whom, and what came of it.
    ///
    /// `--output json` is what `mooring policy diff --calls` reads.
    Audit(AuditArgs),
    /// Show the connections of commands to the world, and what became of each.
    Egress(AuditArgs),
    /// Show tokens and cost, by day and model.
    Usage(UsageArgs),
    /// Show what runs for this project and how it is set up.
    Status(OutputArgs),
    /// End the harness and the sandbox of this project; nothing is lost.
    Stop,
    /// Let commands of a project on another machine run on this one, and pair the two.
    Sandbox(PlaceArgs),
    /// Check, explain, compare and test policies; nothing needs to run for it.
    Policy(PolicyArgs),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// The process that owns a project's conversations.
    #[command(hide = true)]
    Harness(HarnessArgs),
    /// The process that runs a project's commands.
    #[command(hide = true)]
    SandboxDaemon(SandboxArgs),
}

/// What starting the harness needs.
#[derive(Clone, Debug, Default, Args)]
pub struct StartArgs {
    /// Files and commands are in this sandbox on another machine, where
    /// `mooring sandbox serve` runs, also from then on; `local`: on this one again.
    #[arg(long, value_name = "HOST:PORT")]
    pub sandbox: Option<String>,
    /// File with the code that pairs them, `-` for standard input; without it
    /// MOORING_PAIRING_CODE, else it is asked for.
    #[arg(long, value_name = "FILE", requires = "sandbox")]
    pub pairing_code: Option<PathBuf>,
    /// Run commands even where nothing can hold them in a sandbox.
    #[arg(long)]
    pub allow_unisolated: bool,
    /// Send the key in this variable to this server, which the Workspace names.
    #[arg(long, value_name = "VARIABLE@URL")]
    pub allow_key: Vec<String>,
    /// Take the conversations of a moved project along without asking.
    #[arg(long, conflicts_with = "fresh")]
    pub adopt: bool,
    /// Leave the conversations of a moved project behind without asking.
    #[arg(long)]
    pub fresh: bool,
}

/// `mooring dev`.
#[derive(Clone, Debug, Args)]
pub struct DevArgs {
    /// A Workspace file; without one that in use until `mooring stop`, else the default.
    #[arg(value_name = "WORKSPACE.yaml")]
    pub workspace: Option<PathBuf>,
    /// Go on with this conversation, or with the last one.
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "new")]
    pub resume: Option<Option<i64>>,
    /// Begin a new conversation even where the last one is not finished.
    #[arg(long)]
    pub new: bool,
    /// Talk in Discord instead of in this terminal.
    #[command(flatten)]
    pub discord: DiscordArgs,
    /// How the harness is started.
    #[command(flatten)]
    pub start: StartArgs,
}

/// `mooring dev --discord`.
#[derive(Clone, Args)]
pub struct DiscordArgs {
    /// Talk in the Discord channel of the Workspace instead of in this terminal; the
    /// bot's token is taken from DISCORD_TOKEN.
    #[arg(long, conflicts_with_all = ["resume", "new"])]
    pub discord: bool,
    /// The bot's token.
    #[arg(
        long = "discord-token",
        env = "DISCORD_TOKEN",
        hide = true,
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// Base address of Discord's REST interface, in front of `/api/v10`.
    #[arg(
        long = "discord-rest",
        env = "DISCORD_REST",
        default_value = "https://discord.com",
        hide = true
    )]
    pub rest: String,
    /// Address of the gateway. When absent Discord is asked for it.
    #[arg(long = "discord-gateway", env = "DISCORD_GATEWAY", hide = true)]
    pub gateway: Option<String>,
}

/// The token stays out of logs.
impl std::fmt::Debug for DiscordArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscordArgs")
            .field("discord", &self.discord)
            .field("rest", &self.rest)
            .field("gateway", &self.gateway)
            .finish_non_exhaustive()
    }
}

/// `mooring demo`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArgs {
    /// Keep the folder, to look around in it.
    #[arg(long)]
    pub keep: bool,
}

/// `mooring attach`.
#[derive(Clone, Debug, Args)]
pub struct AttachArgs {
    /// The Workspace's name.
    pub workspace: String,
    /// Go on with this conversation, or with the last one.
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "new")]
    pub resume: Option<Option<i64>>,
    /// Begin a new conversation even where the last one is not finished.
    #[arg(long)]
    pub new: bool,
    /// Where it is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `mooring send`.
#[derive(Clone, Debug, Args)]
pub struct SendArgs {
    /// The message; `-` reads it from standard input.
    #[arg(required = true, value_name = "TEXT")]
    pub text: Vec<String>,
    /// The conversation; without this the last active one, or a new one.
    #[arg(long, value_name = "ID")]
    pub conversation: Option<i64>,
    /// Begin a new conversation.
    #[arg(long, conflicts_with = "conversation")]
    pub new: bool,
    /// Into the run that is going on, after its present tools; not after it.
    #[arg(long)]
    pub steer: bool,
    /// Nobody can be asked: what would need an approval is denied.
    #[arg(long)]
    pub autonomous: bool,
    /// Wait for approvals to be decided elsewhere, instead of ending with 3.
    #[arg(long)]
    pub wait: bool,
    /// The model of a new conversation, by its name in the Workspace.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// What a new conversation has, by the names that `mooring status --output json`
    /// lists, with commas; without this it has all.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "conversation"
    )]
    pub extensions: Vec<String>,
    /// Makes a repeated call find the first one's answer instead of sending again.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Print the answer alone, without run card and tools.
    #[arg(long, short)]
    pub quiet: bool,
    /// A Workspace file; without one that in use until `mooring stop`, else the default.
    #[arg(long, value_name = "WORKSPACE.yaml")]
    pub workspace: Option<PathBuf>,
    /// How the harness is started.
    #[command(flatten)]
    pub start: StartArgs,
}

/// `mooring init`.
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    /// Where to write it; without this it is printed.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// `json`: one object a line.
    #[arg(long, short, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,
}

/// `mooring watch`.
#[derive(Clone, Debug, Args)]
pub struct WatchArgs {
    /// One conversation, beginning with what it holds; without this the changes
    /// of all.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `mooring approvals`.
#[derive(Clone, Debug, Args)]
pub struct ApprovalsArgs {
    /// Of one conversation.
    #[arg(long, value_name = "ID")]
    pub conversation: Option<i64>,
    /// Also those that were decided.
    #[arg(long)]
    pub all: bool,
    /// In a cluster, by the Approval objects.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How far an approval reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// This call.
    #[default]
    Once,
    /// The same again in this conversation.
    Conversation,
    /// The same again in this workspace, until a time.
    Workspace,
}

/// `mooring approve`.
#[derive(Clone, Debug, Args)]
pub struct ApproveArgs {
    /// Its id.
    pub id: String,
    /// How far it reaches.
    #[arg(long, value_enum, default_value_t)]
    pub scope: ScopeArg,
    /// How long a `workspace` scope lasts (`8h`, `7d`).
    #[arg(long, value_name = "DURATION", default_value = "8h")]
    pub r#for: String,
    /// Why, for the record.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub reason: String,
    /// In a cluster, by the Approval object of that name.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `mooring deny`.
#[derive(Clone, Debug, Args)]
pub struct DenyArgs {
    /// Its id.
    pub id: String,
    /// Why; the model is told.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub reason: String,
    /// In a cluster, by the Approval object of that name.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// A list with a limit.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// How many at most.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: u32,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `mooring entries`.
#[derive(Clone, Debug, Args)]
pub struct EntriesArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// Only those before this entry.
    #[arg(
        long,
        default_value_t = 0,
        value_name = "ENTRY",
        hide_default_value = true
    )]
    pub before: i64,
    /// How many at most.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub limit: u32,
    /// Print the exact request that an answer, or a compaction, was made from, by the
    /// number that stands beside it.
    #[arg(long, value_name = "N", conflicts_with_all = ["before", "limit"])]
    pub request: Option<i64>,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `mooring abort`.
#[derive(Clone, Debug, Args)]
pub struct AbortArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// End the run and leave what is queued.
    #[arg(long)]
    pub run_only: bool,
}

/// `mooring tasks`.
#[derive(Clone, Debug, Args)]
pub struct TasksArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `mooring answer`.
#[derive(Clone, Debug, Args)]
pub struct AnswerArgs {
    /// The question.
    pub question: i64,
    /// The answer.
    #[arg(required = true, value_name = "TEXT")]
    pub text: Vec<String>,
}

/// A command on one conversation.
#[derive(Clone, Debug, Args)]
pub struct ConversationArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
}

/// `mooring worktrees`.
#[derive(Clone, Debug, Args)]
pub struct WorktreesArgs {
    /// What to do; without this they are listed.
    #[command(subcommand)]
    pub command: Option<WorktreesCommand>,
}

/// What to do with worktrees.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum WorktreesCommand {
    /// Remove that of a conversation, with its branch. It stays where something in it
    /// is not committed, or committed on no other branch.
    Remove {
        /// The conversation.
        #[arg(value_name = "CONVERSATION")]
        conversation: i64,
    },
}

/// `mooring reset`.
#[derive(Clone, Debug, Args)]
pub struct ResetArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// What the model is told at the new beginning.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub brief: String,
}

/// `mooring compact`.
#[derive(Clone, Debug, Args)]
pub struct CompactArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// What the summary must keep.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub about: String,
}

/// `mooring fork`.
#[derive(Clone, Debug, Args)]
pub struct ForkArgs {
    /// The conversation; without this the last active one.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// The last entry that is taken along, as `mooring entries` numbers them; without
    /// this the newest.
    #[arg(long, value_name = "ENTRY")]
    pub at: Option<i64>,
    /// A side chat: it knows the history and shows only what is said in it.
    #[arg(long)]
    pub side: bool,
    /// Its title.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub title: String,
    /// Its model, by its name in the Workspace; without this the same.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}

/// `mooring export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The conversation.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: i64,
    /// Where it is written; without this to standard output.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `mooring import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// What `mooring export` wrote; `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `mooring delete`.
#[derive(Clone, Debug, Args)]
pub struct DeleteArgs {
    /// The conversation.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: i64,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// `mooring grants`.
#[derive(Clone, Debug, Args)]
pub struct GrantsArgs {
    /// Revoke this one.
    #[arg(long, value_name = "ID")]
    pub revoke: Option<i64>,
    /// Of one conversation.
    #[arg(long, value_name = "ID")]
    pub conversation: Option<i64>,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `mooring audit`.
#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// Of one conversation.
    #[arg(long, value_name = "ID")]
    pub conversation: Option<i64>,
    /// Only rows after this one.
    #[arg(
        long,
        default_value_t = 0,
        value_name = "ROW",
        hide_default_value = true
    )]
    pub after: i64,
    /// How many at most; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N", hide_default_value = true)]
    pub limit: u64,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `mooring usage`.
#[derive(Clone, Debug, Args)]
pub struct UsageArgs {
    /// Of one conversation; without this of all.
    #[arg(value_name = "CONVERSATION")]
    pub conversation: Option<i64>,
    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn hidden_commands_are_not_in_the_help() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("mooring dev"));
        assert!(!help.contains("sandbox-daemon"), "{help}");
    }
}
