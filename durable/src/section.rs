//! The system prompt as sections: what changed since it was last told.

use serde::{Deserialize, Serialize};

use crate::{id::Hash, prompt::Section};

/// The data of a `pi.system` entry. The texts are parts, stored once by hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Sections that are new or changed, in order.
    pub sections: Vec<Named>,
    /// Sections that no longer hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Nothing was told before.
    pub baseline: bool,
}

/// A section by its text's hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub name: String,
    pub hash: Hash,
}

/// What has to be told so that `before` becomes `now`; `None`: nothing.
pub(crate) fn change(before: &[Section], now: &[Section]) -> Option<(Told, Vec<Section>)> {
    let changed: Vec<_> = now
        .iter()
        .filter(|section| !before.contains(section))
        .cloned()
        .collect();
    let removed: Vec<_> = before
        .iter()
        .filter(|old| !now.iter().any(|section| section.name == old.name))
        .map(|old| old.name.clone())
        .collect();
    if changed.is_empty() && removed.is_empty() {
        return None;
    }
    let sections = changed
        .iter()
        .map(|section| Named {
            name: section.name.clone(),
            hash: Hash::of(section.text.as_bytes()),
        })
        .collect();
    Some((
        Told {
            sections,
            removed,
            baseline: before.is_empty(),
        },
        changed,
    ))
}

/// The sections after `told`, whose texts are given in its order.
pub(crate) fn apply(before: &mut Vec<Section>, told: &Told, texts: &[String]) {
    before.retain(|section| !told.removed.contains(&section.name));
    for (named, text) in told.sections.iter().zip(texts) {
        match before.iter_mut().find(|section| section.name == named.name) {
            Some(section) => section.text.clone_from(text),
            None => before.push(Section {
                name: named.name.clone(),
                text: text.clone(),
            }),
        }
    }
}

/// The text of the entry.
pub(crate) fn text(told: &Told, texts: &[String]) -> String {
    if told.baseline {
        return texts.join("\n\n");
    }
    let changed = told
        .sections
        .iter()
        .zip(texts)
        .map(|(named, text)| format!("Section \"{}\" now reads:\n{text}", named.name));
    let removed = told
        .removed
        .iter()
        .map(|name| format!("Section \"{name}\" no longer holds."));
    changed.chain(removed).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(pairs: &[(&str, &str)]) -> Vec<Section> {
        pairs
            .iter()
            .map(|(name, text)| Section {
                name: (*name).into(),
                text: (*text).into(),
            })
            .collect()
    }

    #[test]
    fn only_what_changed_is_told() {
        for (before, now, expected) in [
            (vec![], vec![("a", "1"), ("b", "2")], Some("1\n\n2")),
            (vec![("a", "1")], vec![("a", "1")], None),
            (
                vec![("a", "1"), ("b", "2")],
                vec![("a", "1"), ("b", "3")],
                Some("Section \"b\" now reads:\n3"),
            ),
            (
                vec![("a", "1"), ("b", "2")],
                vec![("b", "2")],
                Some("Section \"a\" no longer holds."),
            ),
            (vec![], vec![], None),
        ] {
            let (mut before, now) = (sections(&before), sections(&now));
            let change = change(&before, &now);
            let told = change.map(|(told, changed)| {
                let texts: Vec<_> = changed.into_iter().map(|section| section.text).collect();
                apply(&mut before, &told, &texts);
                text(&told, &texts)
            });
            assert_eq!(told.as_deref(), expected);
            assert_eq!(before, now);
        }
    }
}
