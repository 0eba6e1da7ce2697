//! ServiceAccount: the harness's identity; the sandbox's is never mounted.

use serde_json::json;

use super::{Input, Kind, Object};
use crate::names::Component;

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let rest = json!({"automountServiceAccountToken": false});
    Object::new(
        input,
        component,
        Kind::ServiceAccount,
        input.names.of(component),
        rest,
    )
}
