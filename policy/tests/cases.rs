//! Every case file, each line a case.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use mooring_policy::review::{Output, cases};

#[test]
fn every_case_is_decided_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files = 0;
    let mut failed = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "jsonl")
        {
            continue;
        }
        files += 1;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let report = cases(&name, &text, "/work", "/home/agent", Output::Human).unwrap();
        if report.failed {
            failed.push_str(&report.text);
        }
    }
    assert!(files > 1, "the case files are not there");
    assert!(failed.is_empty(), "{failed}");
}
