//! The model stand-in: a server on loopback that speaks OpenAI's chat
//! completions and Anthropic's messages, both streaming, and is as hard to
//! please as they are.
//!
//! ```no_run
//! # async fn example() {
//! use mooring_tests::model::{Fault, ModelServer, Reply};
//!
//! let server = ModelServer::start().await;
//! server.script(
//!     "deploy", // stands in the conversation's first user message
//!     [
//!         Reply::says("I look first.").call("bash", serde_json::json!({"command": "ls"})),
//!         Reply::says("Done.").failing(Fault::status(529)), // the first attempt fails
//!     ],
//! );
//! // `endpoint: {server.openai_url()}` or `{server.anthropic_url()}` in the Workspace
//! let requests = server.requests(); // bytes and JSON of each
//! # }
//! ```
//!
//! A script's turn is chosen by the number of assistant messages in the
//! request, so that a request that is sent again gets the same turn. A
//! conversation that matches no script takes the next reply of the queue.

mod anthropic;
mod fault;
mod openai;
mod reply;
mod server;

pub use fault::Fault;
pub use reply::{Call, Reply};
pub use server::{ModelServer, Recorded, WRONG_KEY, Wire};
