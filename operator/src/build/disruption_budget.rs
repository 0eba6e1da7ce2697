//! PodDisruptionBudget: a drain may end the one pod; its volume brings it back.

use serde_json::json;

use super::{Input, Kind, Object};
use crate::names::Component;

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let rest = json!({"spec": {
        "maxUnavailable": 1,
        "selector": {"matchLabels": input.names.selector(component)},
    }});
    Object::new(
        input,
        component,
        Kind::PodDisruptionBudget,
        input.names.of(component),
        rest,
    )
}
