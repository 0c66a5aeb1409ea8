//! Contents of an image put together for an engine's `load`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::domain::sync::Digest;

/// What an archive is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The name that the image gets, if any.
    pub name: Option<String>,
    /// The hash of its configuration, and where that is.
    pub config: (Digest, PathBuf),
    /// The hash of each layer, from the bottom up, and where it is; nowhere for one that the engine has.
    pub layers: Vec<(Digest, Option<PathBuf>)>,
}

/// Writes the archive.
pub fn write(parts: &Parts, out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    let (config, layers): (String, Vec<String>) = (
        format!("{}.json", parts.config.0),
        parts.layers.iter().map(|(name, _)| format!("{name}.tar")).collect(),
    );
    let list =
        json!([{ "Config": config, "RepoTags": parts.name.iter().collect::<Vec<_>>(), "Layers": layers }]);
    let list = list.to_string();
    let header = |size: usize| {
        let mut header = tar::Header::new_gnu();
        header.set_size(size as u64);
        header.set_mode(0o644);
        header
    };
    archive.append_data(&mut header(list.len()), "manifest.json", list.as_bytes())?;
    archive.append_file(&config, &mut File::open(&parts.config.1)?)?;
    let mut written = BTreeSet::new();
    for ((name, path), entry) in parts.layers.iter().zip(&layers) {
        if let Some(path) = path.as_ref().filter(|_| written.insert(name)) {
            archive.append_file(entry, &mut File::open(path)?)?;
        }
    }
    archive.into_inner()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::saved;
    use crate::sha256::of_bytes;

    #[test]
    fn what_was_taken_apart_is_put_together_again() {
        let dir = tempfile::tempdir().unwrap();
        let put = |content: &[u8]| {
            let name = of_bytes(content);
            std::fs::write(dir.path().join(name.to_string()), content).unwrap();
            (name, dir.path().join(name.to_string()))
        };
        let (config, below, above) = (put(b"{}"), put(b"below"), put(b"above"));
        let layers =
            vec![(below.0, Some(below.1)), (above.0, Some(above.1.clone())), (above.0, Some(above.1))];
        let parts = Parts { name: Some("x:1".to_owned()), config, layers };
        let mut text = Vec::new();
        write(&parts, &mut text).unwrap();
        let again = tempfile::tempdir().unwrap();
        let saved = saved::read(&text[..], again.path(), |_, _| true).unwrap();
        assert_eq!(saved.layers.iter().map(|blob| blob.size).collect::<Vec<_>>(), [5, 5, 5]);
        assert_eq!(saved.config.name, of_bytes(b"{}"));
        let without = Parts { layers: vec![(of_bytes(b"below"), None)], ..parts };
        let mut text = Vec::new();
        write(&without, &mut text).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(&format!("{}.tar", of_bytes(b"below"))) && !text.contains("ustar  \0below"));
        let fault = saved::read(text.as_bytes(), again.path(), |_, _| true).unwrap_err().to_string();
        assert!(fault.contains("it has no "), "the engine has it: {fault}");
    }
}
