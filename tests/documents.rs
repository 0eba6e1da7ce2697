//! What pages say of the code, held against it.

#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, fs, path::Path};

/// Every `fn NAME` in the sources below a folder.
fn functions(folder: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                functions(&path, names);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            names.extend(text.split("fn ").skip(1).filter_map(|rest| {
                let (name, _) = rest.split_once('(')?;
                Some(name.to_owned())
            }));
        }
    }
}

#[test]
fn every_test_that_the_threat_model_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/threat-model.md")).unwrap();
    let mut known = HashSet::new();
    functions(root, &mut known);
    let named: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | "))
        .flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2))
        .filter(|word| word.contains('_'))
        .collect();
    assert!(named.len() > 30, "{} tests are named", named.len());
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| !known.contains(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "the page names what is not there: {missing:?}"
    );
}
