//! Writes the CRDs for the chart and for kustomize.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in mooring_crds::generated_files() {
        let path = root.join(file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, &file.text)?;
        println!("{} ({} bytes)", file.path, file.text.len());
    }
    Ok(())
}
