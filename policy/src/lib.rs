//! Decides a call of a tool: a policy, the call and facts about the environment in;
//! allow, ask or deny with the reasons out. No input or output of its own, so the
//! same code decides in the harness, in `mooring dev` and in a pull request.
//!
//! ```
//! use mooring_policy::{Action, Call, NoEnvironment, Rules, decide, read};
//!
//! let policy: mooring_crds::Policy = serde_json::from_str(
//!     r#"{"tool": {"bash": "ask"}, "bash": {"git status*": "allow", "rm -rf *": "deny"}}"#,
//! )?;
//! let rules = Rules::new(&policy);
//! let call = Call {
//!     tool: "bash",
//!     action: Action::Bash { text: "git status && rm -r -f build", cwd: "" },
//! };
//! let decision = decide(&rules, &read(&call), &NoEnvironment::default());
//! assert_eq!(decision.verdict, mooring_crds::Verdict::Deny);
//! assert_eq!(decision.rule.pattern, "rm -rf *");
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod bash;
mod call;
mod command_fact;
mod commands;
mod decide;
mod display;
mod egress;
mod environment;
mod facts;
mod flags;
mod folders;
mod grant;
mod paths;
mod pattern;
mod programs;
mod protected;
mod push;
pub mod review;
mod rules;
mod validate;

pub use call::{Action, Call};
pub use decide::{DecidedFact, Decision, decide};
pub use display::escape_for_display;
pub use egress::decide_connection;
pub use environment::{Environment, NoEnvironment, ResolvedPath, ReviewEnvironment};
pub use facts::{Facts, Unresolved, read};
pub use grant::{GrantRule, GrantedFact, grant_covers, propose_grant};
pub use mooring_crds::{Policy, Verdict};
pub use push::{Push, decide_push};
pub use rules::{RuleRef, Rules};
pub use validate::validate;
