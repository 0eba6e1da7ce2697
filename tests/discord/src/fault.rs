//! Faults by script: what goes wrong on the wire, when, and how often.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What goes wrong with a REST request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum FaultKind {
    /// The connection is cut; nothing was done.
    CutBefore,
    /// It is done, then the connection is cut before the response.
    CommitThenCut,
    /// The response comes late.
    Delay {
        /// By so many milliseconds.
        ms: u64,
    },
    /// This status and body; nothing was done.
    Status {
        /// HTTP status.
        status: u16,
        /// Body.
        body: Value,
    },
    /// It is done, and the answer is this status all the same.
    CommitThenStatus {
        /// HTTP status.
        status: u16,
    },
    /// The stored text is cut to so many characters (F28).
    Truncate {
        /// Characters kept.
        chars: usize,
    },
    /// The body of the response is not the JSON that was promised: in a list, the
    /// item at `item` loses its author.
    Garble {
        /// Index in a list.
        item: usize,
    },
}

/// A fault and the requests that meet it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// HTTP method.
    pub method: String,
    /// Text that the path contains.
    pub path: String,
    /// Requests that pass before.
    #[serde(default)]
    pub skip: u32,
    /// Requests that meet it.
    #[serde(default = "one")]
    pub times: u32,
    /// What goes wrong.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// What goes wrong with a dispatch of the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum DispatchFaultKind {
    /// It comes twice.
    Duplicate,
    /// It comes after the next one.
    Swap,
    /// It never comes, though it happened.
    Drop,
    /// Fields are of another type, or missing.
    Malform,
    /// The connection is cut in its place; a resume brings it.
    Cut,
}

/// A fault and the dispatches that meet it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DispatchFault {
    /// Name of the event, `MESSAGE_CREATE`.
    pub event: String,
    /// Dispatches that pass before.
    #[serde(default)]
    pub skip: u32,
    /// Dispatches that meet it.
    #[serde(default = "one")]
    pub times: u32,
    /// What goes wrong.
    #[serde(flatten)]
    pub kind: DispatchFaultKind,
}

fn one() -> u32 {
    1
}

/// The fault that this request meets, counted down.
pub(crate) fn meet(faults: &mut Vec<Fault>, method: &str, path: &str) -> Option<FaultKind> {
    let at = faults
        .iter()
        .position(|fault| fault.method == method && path.contains(&fault.path))?;
    let fault = &mut faults[at];
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times -= 1;
    let kind = fault.kind.clone();
    if fault.times == 0 {
        faults.remove(at);
    }
    Some(kind)
}

/// The fault that this dispatch meets, counted down.
pub(crate) fn meet_dispatch(
    faults: &mut Vec<DispatchFault>,
    event: &str,
) -> Option<DispatchFaultKind> {
    let at = faults.iter().position(|fault| fault.event == event)?;
    let fault = &mut faults[at];
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times -= 1;
    let kind = fault.kind.clone();
    if fault.times == 0 {
        faults.remove(at);
    }
    Some(kind)
}

/// A payload as a newer server might send it: no string where one was, a field
/// of another type, new members.
pub(crate) fn malform(data: &mut Value) {
    if let Some(object) = data.as_object_mut() {
        object.insert("type".into(), serde_json::json!({"kind": "unheard-of"}));
        object.insert("author".into(), Value::from(7));
        object.remove("content");
    }
}
