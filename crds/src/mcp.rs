//! `spec.mcp`: servers whose tools the agent may use.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workspace::SecretRef;

/// One server of the Model Context Protocol: reached at `url` by the harness, or run as
/// `command` inside the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpServer {
    /// The name in its tools' names (`mcp__NAME__TOOL`).
    pub name: String,
    /// Address of a server that speaks streamable HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Secret that holds the headers of its requests, one a key, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_secret_ref: Option<SecretRef>,
    /// The same under `mooring dev`: the environment variable that holds a header's value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_env: BTreeMap<String, String>,
    /// Program and arguments of a server that speaks on its standard input and output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What becomes of a call that a crash of the harness interrupts.
    #[serde(default, skip_serializing_if = "McpReplay::is_default")]
    pub replay: McpReplay,
}

/// What becomes of an interrupted call of a server's tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum McpReplay {
    /// It is told as interrupted: it may have acted.
    #[default]
    Never,
    /// It is sent again: none of the server's tools changes anything, or each may act twice.
    Safe,
}

impl McpReplay {
    fn is_default(&self) -> bool {
        *self == McpReplay::default()
    }
}
